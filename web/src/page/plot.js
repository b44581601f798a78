/** The picture of the curves: accuracy over relative cost, each point with its interval. */

import { $, disable, el, number, onPress, percent, svg, times } from "./dom.js";

/** @typedef {import("./series.js").Series} Series */
/** @typedef {import("./series.js").Point} Point */
/**
 * @typedef {object} Axes
 * @property {number} width
 * @property {number} start the least relative cost
 * @property {number} top the largest accuracy
 * @property {(relative: number) => number} x
 * @property {(accuracy: number) => number} y
 */

const MARKS = [
  "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0",
  "M-5 -5h10v10h-10z",
  "M0 -7l7 7l-7 7l-7 -7z",
  "M0 -7l7 12h-14z",
  "M0 7l7 -12h-14z",
];
const DASHES = [null, "6 4", "2 3"];
const REACH = 14; // pixels around a point that show its values

/** @param {Series} series */
const ink = ({ method }) => `var(--${method}, var(--edge))`; // that of the method in all figures
const FRAME = { left: 52, right: 24, top: 28, bottom: 46, height: 360 };

/**
 * Return an entry per curve, with its mark and a button that removes it.
 *
 * @param {Series[]} series
 * @param {((series: Series) => void) | null} remove null while a curve is measured
 */
export function legend(series, remove) {
  return series.map((entry) => {
    const key = svg("svg", { viewBox: "-9 -9 18 18", width: 18, height: 18, "aria-hidden": "true" });
    key.append(mark(entry, 0, 0, true));
    const attributes = { type: "button", class: "remove", "aria-label": `Remove ${entry.name}` };
    const button = el("button", attributes, "\u00d7");
    disable(button, remove === null);
    onPress(button, () => remove?.(entry));
    return el("li", {}, key, entry.name, button);
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
  const words = isBusy ? "The first points are being decoded." : "Press Run to measure a curve.";
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
function curve(series, { x, y, width }) {
  const dots = [...series.points.values()]
    .filter(({ done }) => done)
    .sort((a, b) => a.relative - b.relative);
  const path = dots.map((p) => `${x(p.relative)},${y(p.right / p.done)}`).join(" ");
  const stroke = ink(series);
  const line = svg("polyline", {
    points: path,
    fill: "none",
    stroke,
    "stroke-width": 1.5,
    "stroke-dasharray": DASHES[series.mark % DASHES.length],
  });
  const marks = dots.map((p) => {
    const cx = x(p.relative);
    const cy = y(p.right / p.done);
    const bar = `M${cx} ${y(p.low)}V${y(p.high)}M${cx - 5} ${y(p.low)}h10M${cx - 5} ${y(p.high)}h10`;
    const area = svg("circle", { cx, cy, r: REACH, fill: "transparent" });
    const group = svg("g", { class: "point" });
    group.append(
      svg("path", { d: bar, stroke, "stroke-width": 1.5 }),
      mark(series, cx, cy, p.done === p.of),
      area,
    );
    group.addEventListener("pointerenter", () => showTip(valuesOf(series, p), cx, cy, width));
    group.addEventListener("pointerleave", () => ($("#curve-tip").hidden = true));
    return group;
  });
  return [line, ...marks, ...labels(dots, x, y)];
}

/**
 * Return n at the first and the last point of a curve. The values of the others are shown under the pointer.
 *
 * @param {Point[]} dots
 * @param {Axes["x"]} x
 * @param {Axes["y"]} y
 */
function labels(dots, x, y) {
  if (dots.length < 2) return [];
  const [first, last] = [dots[0], dots[dots.length - 1]];
  const below = { x: x(first.relative), y: y(first.low) + 16, "text-anchor": "middle" };
  const above = { x: x(last.relative) + 6, y: y(last.high) - 6, "text-anchor": "end" };
  return [
    svg("text", { ...below, class: "name" }, `n = ${first.latents}`),
    svg("text", { ...above, class: "name" }, `n = ${last.latents}`),
  ];
}

/**
 * @param {Series} series
 * @param {Point} point
 */
function valuesOf({ name }, { latents, right, done, low, high, relative }) {
  const interval = `${percent(right / done)} (${percent(low)} to ${percent(high)})`;
  return `${name}, n = ${latents}: ${interval}, ${number(right)} of ${number(done)}, cost ${times(relative)}`;
}

/**
 * Show values above a point, within the plot.
 *
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {number} width of the plot
 */
function showTip(text, x, y, width) {
  const tip = $("#curve-tip");
  tip.textContent = text;
  tip.hidden = false;
  tip.style.left = `${Math.max(0, Math.min(x - tip.offsetWidth / 2, width - tip.offsetWidth))}px`;
  tip.style.top = `${Math.max(0, y - tip.offsetHeight - REACH)}px`;
}

/**
 * Return a point, filled when all of its samples are decoded.
 *
 * @param {Series} series
 * @param {number} x
 * @param {number} y
 * @param {boolean} isFilled
 */
function mark(series, x, y, isFilled) {
  return svg("path", {
    d: MARKS[series.mark % MARKS.length],
    transform: `translate(${x} ${y})`,
    fill: isFilled ? ink(series) : "var(--paper)",
    stroke: ink(series),
    "stroke-width": 2,
  });
}
