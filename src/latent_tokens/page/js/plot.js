/** The curve of accuracy over tokens: one model at several n, and the other methods by name. */

import { $, svg, times } from "./dom.js";

/**
 * @typedef {object} Point a row of bundled/results.jsonl
 * @property {string} method
 * @property {number | "all"} latents
 * @property {number} accuracy
 * @property {number} low of its interval
 * @property {number} high
 * @property {number} relative tokens processed, relative to n = all
 */
/** @typedef {{ width: number, x: (relative: number) => number, y: (accuracy: number) => number }} Axes */

const HEIGHT = 340;
const FRAME = { left: 48, right: 16, top: 20, bottom: 48 };
const LEAST = 0.5; // relative cost

/**
 * Draw the points.
 *
 * @param {Point[]} points
 * @param {number} width
 */
export function drawPlot(points, width) {
  const axes = {
    width,
    x: (/** @type {number} */ relative) =>
      FRAME.left + ((relative - LEAST) / (1.04 - LEAST)) * (width - FRAME.left - FRAME.right),
    y: (/** @type {number} */ accuracy) => FRAME.top + (1 - accuracy) * (HEIGHT - FRAME.top - FRAME.bottom),
  };
  const label = "Valid boards over relative cost. The table below has the numbers.";
  const picture = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  picture.append(...gridLines(axes));
  const curve = points.filter(({ method }) => method === "scdm");
  const path = curve.map(({ relative, accuracy }) => `${axes.x(relative)},${axes.y(accuracy)}`).join(" ");
  picture.append(svg("polyline", { points: path, class: "curve" }));
  for (const point of points) picture.append(...mark(point, axes));
  $("#plot").replaceChildren(picture);
}

/** @param {Axes} axes */
function gridLines({ width, x, y }) {
  const lines = [0, 0.25, 0.5, 0.75, 1].flatMap((share) => [
    svg("line", { x1: FRAME.left, x2: width - FRAME.right, y1: y(share), y2: y(share), class: "line" }),
    svg("text", { x: FRAME.left - 8, y: y(share) + 5, "text-anchor": "end" }, `${100 * share}%`),
  ]);
  const ticks = [0.5, 0.6, 0.7, 0.8, 0.9, 1].map((relative) =>
    svg("text", { x: x(relative), y: HEIGHT - 26, "text-anchor": "middle" }, times(relative)),
  );
  const middle = (width + FRAME.left) / 2;
  const title = "tokens processed, relative to n = all";
  return [...lines, ...ticks, svg("text", { x: middle, y: HEIGHT - 6, "text-anchor": "middle" }, title)];
}

/**
 * Return a point with its interval and its name. scdm has circles, the others squares.
 *
 * @param {Point} point
 * @param {Axes} axes
 */
function mark({ method, latents, accuracy, low, high, relative }, axes) {
  const x = axes.x(relative);
  const y = axes.y(accuracy);
  const isCurve = method === "scdm";
  const shape = isCurve
    ? svg("circle", { cx: x, cy: y, r: 5, class: "dot" })
    : svg("rect", { x: x - 5, y: y - 5, width: 10, height: 10, class: "other" });
  const bar = svg("path", { d: `M${x} ${axes.y(low)}V${axes.y(high)}`, class: "bar" });
  const isEnd = latents === 0 || latents === "all";
  const name = isCurve ? `scdm, n = ${latents}` : method;
  const isLast = relative > 0.9;
  const anchor = isLast ? "end" : "start";
  const place = { x: isLast ? x - 10 : x + 10, y: isCurve && !isLast ? y + 20 : y - 10 };
  const text = svg("text", { ...place, "text-anchor": anchor, class: "name" }, name);
  return [bar, shape, ...(isCurve && !isEnd ? [] : [text])];
}
