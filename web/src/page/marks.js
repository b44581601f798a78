/** The predicted probabilities of a cell as pencil marks. */

import { svg } from "./dom.js";

/** @typedef {import("./types.js").Board} Board */

/**
 * Return where a pencil mark is and how large, in percent of the cell.
 *
 * @param {Board} start
 * @param {number} token
 * @param {number} p its probability
 */
export function markPlace(start, token, p) {
  const columns = Math.ceil(Math.sqrt(start.columns));
  const rows = Math.ceil(start.columns / columns);
  const place = start.signs.indexOf(start.signs[token]) - firstDigit(start);
  const x = (((place % columns) + 0.5) * 82) / columns + 9;
  const y = ((Math.floor(place / columns) + 0.5) * 74) / rows + 20;
  return pulled(x, y, p);
}

/**
 * Return a mark moved to the center, as far as it is likely.
 *
 * @param {number} x
 * @param {number} y
 * @param {number} p
 */
function pulled(x, y, p) {
  const pull = Math.max(0, 4 * p - 3);
  return { x: x + (50 - x) * pull, y: y + (53 - y) * pull, size: 15 + 17 * p + 18 * pull };
}

/**
 * Return the predicted probabilities as pencil marks, larger and darker if more likely. Small cells show two.
 *
 * @param {Board} start
 * @param {import("./types.js").Prediction[]} beliefs
 */
export function marks(start, beliefs) {
  const isSudoku = start.kind === "sudoku";
  const many = svg("g", { class: "many" });
  (isSudoku ? beliefs : beliefs.slice(0, 4)).forEach(([token, p], rank) => {
    if (p < 0.02) return;
    const quarter = pulled((rank % 2) * 41 + 29.5, Math.floor(rank / 2) * 37 + 38.5, p);
    const { x, y, size } = isSudoku ? markPlace(start, token, p) : quarter;
    many.append(mark(start, token, p, x, y, size));
  });
  const few = svg("g", { class: "few" });
  beliefs.slice(0, 2).forEach(([token, p], rank) => {
    const isAlone = beliefs[0][1] > 0.75;
    if (p >= 0.1 && !(isAlone && rank))
      few.append(mark(start, token, p, isAlone ? 50 : 30 + 40 * rank, 56, 50));
  });
  return svg("svg", { viewBox: "0 0 100 100", "aria-hidden": "true" }, many, few);
}

/** @param {Board} start */
const firstDigit = (start) => Math.max(0, start.signs.indexOf("1"));

/**
 * @param {Board} start
 * @param {number} token
 * @param {number} p
 * @param {number} x
 * @param {number} y
 * @param {number} size
 */
function mark(start, token, p, x, y, size) {
  const attributes = { x, y, "font-size": size, "fill-opacity": Math.min(1, 0.3 + 0.7 * p) };
  return svg("text", attributes, start.signs[token] || "_");
}
