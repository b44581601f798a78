/** The picture of the curves: accuracy over relative cost, each point with its interval. */

import { el, svg, times } from "./dom.js";

/** @typedef {import("./curve.js").Series} Series */
/** @typedef {import("./curve.js").Point} Point */
/**
 * @typedef {object} Axes
 * @property {number} width
 * @property {number} start the least relative cost
 * @property {number} top the largest accuracy
 * @property {(relative: number) => number} x
 * @property {(accuracy: number) => number} y
 */

export const MARKS = [
  "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0",
  "M-5 -5h10v10h-10z",
  "M0 -7l7 7l-7 7l-7 -7z",
  "M0 -7l7 12h-14z",
];
const INKS = ["var(--blue)", "var(--orange-line)", "var(--green)", "var(--soft)"];
const FRAME = { left: 52, right: 24, top: 16, bottom: 46, height: 360 };

/**
 * Return an entry per curve, with its mark.
 *
 * @param {Series[]} series
 */
export function legend(series) {
  return series.map(({ name, look }) => {
    const key = svg("svg", { viewBox: "-9 -9 18 18", width: 18, height: 18, "aria-hidden": "true" });
    key.append(mark(look, 0, 0, true));
    return el("li", {}, key, name);
  });
}

/**
 * @param {Series[]} series
 * @param {number} width
 * @param {boolean} isBusy
 */
export function plot(series, width, isBusy) {
  const all = series.flatMap(({ points }) => [...points.values()]);
  const axes = axesOf(all, width);
  const label = all.length
    ? "Accuracy over relative cost, with the numbers in the table below"
    : "An empty plot";
  const { height } = FRAME;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label });
  picture.append(...grid(axes));
  const center = { x: (width + FRAME.left) / 2, "text-anchor": "middle" };
  const words = isBusy ? "The first points are being decoded." : "Press Run to measure the curve.";
  if (!all.length) picture.append(svg("text", { ...center, y: height / 2 - 30, class: "name" }, words));
  const title =
    width < 500
      ? "tokens processed, relative to n = all"
      : "relative cost: tokens processed / tokens processed with n = all";
  picture.append(svg("text", { ...center, y: height - 6 }, title));
  for (const entry of series) picture.append(...curve(entry, axes));
  return picture;
}

/**
 * @param {Point[]} points
 * @param {number} width
 * @returns {Axes}
 */
function axesOf(points, width) {
  const low = Math.min(0.5, ...points.map(({ relative }) => relative));
  const start = Math.floor(10 * low - 0.001) / 10;
  const top = Math.min(1, Math.ceil(10 * Math.max(0.2, ...points.map(({ high }) => high))) / 10);
  const height = FRAME.height - FRAME.top - FRAME.bottom;
  return {
    width,
    start,
    top,
    x: (relative) => FRAME.left + ((relative - start) / (1 - start)) * (width - FRAME.left - FRAME.right),
    y: (accuracy) => FRAME.top + (1 - accuracy / top) * height,
  };
}

/** @param {Axes} axes */
function grid({ width, start, top, x, y }) {
  const parts = [];
  for (let tenth = 0; tenth <= Math.round(10 * top); tenth += top > 0.6 ? 2 : 1) {
    const at = y(tenth / 10);
    const line = { x1: FRAME.left, x2: width - FRAME.right, y1: at, y2: at, stroke: "var(--line)" };
    const label = { x: FRAME.left - 8, y: at + 4, "text-anchor": "end" };
    parts.push(svg("line", line), svg("text", label, `${10 * tenth}%`));
  }
  for (let tenth = Math.round(10 * start); tenth <= 10; tenth++) {
    const label = { x: x(tenth / 10), y: FRAME.height - FRAME.bottom + 18, "text-anchor": "middle" };
    parts.push(svg("text", label, times(tenth / 10).replace("0\u00d7", "\u00d7")));
  }
  return parts;
}

/**
 * @param {Series} series
 * @param {Axes} axes
 */
function curve({ look, points }, { x, y }) {
  const dots = [...points.values()].filter(({ done }) => done).sort((a, b) => a.relative - b.relative);
  const path = dots.map((p) => `${x(p.relative)},${y(p.right / p.done)}`).join(" ");
  const stroke = INKS[look];
  const dash = look ? "6 4" : null;
  const line = svg("polyline", {
    points: path,
    fill: "none",
    stroke,
    "stroke-width": 1.5,
    "stroke-dasharray": dash,
  });
  const marks = dots.flatMap((p) => {
    const cx = x(p.relative);
    const cy = y(p.right / p.done);
    const bar = `M${cx} ${y(p.low)}V${y(p.high)}M${cx - 5} ${y(p.low)}h10M${cx - 5} ${y(p.high)}h10`;
    const isFirst = cx < FRAME.left + 60; // the others are labeled on the left, away from a rising line
    const side = { x: cx + (isFirst ? 10 : -10), "text-anchor": isFirst ? "start" : "end" };
    return [
      svg("path", { d: bar, stroke, "stroke-width": 1.5 }),
      mark(look, cx, cy, p.done === p.of),
      svg("text", { ...side, y: cy - 8, class: "name" }, `n = ${p.latents}`),
    ];
  });
  return [line, ...marks];
}

/**
 * Return a point, filled when all of its samples are decoded.
 *
 * @param {number} look
 * @param {number} x
 * @param {number} y
 * @param {boolean} isFilled
 */
function mark(look, x, y, isFilled) {
  const fill = isFilled ? INKS[look] : "var(--paper)";
  return svg("path", {
    d: MARKS[look],
    transform: `translate(${x} ${y})`,
    fill,
    stroke: INKS[look],
    "stroke-width": 2,
  });
}
