/** The buttons below the boards of the laboratory: digits for the chosen square, and arrows from it. */

import { $, el } from "./dom.js";
import { writePuzzle } from "./puzzle.js";

// Squares of two boards next to each other are smaller than a finger.
const ARROWS = ["◀ Left", "▲ Up", "▼ Down", "▶ Right"].map((each) => each.split(" "));

/**
 * Offer one button per digit, one that empties the square, and the arrows.
 *
 * @param {number} side of the board
 * @param {(key: string) => void} typed
 * @param {(key: string) => void} moved
 */
export function offerPad(side, typed, moved) {
  const digits = Array.from({ length: side }, (_, digit) => writePuzzle([digit]));
  if ($("#pad").dataset.side === String(side)) return;
  $("#pad").dataset.side = String(side);
  const button = (/** @type {string} */ text, /** @type {() => void} */ pressed, label = text) => {
    const element = el("button", { type: "button", "aria-label": label }, text);
    element.addEventListener("click", pressed);
    return element;
  };
  $("#pad").replaceChildren(
    ...digits.map((digit) => button(digit, () => typed(digit))),
    button("Empty", () => typed("Delete")),
    ...ARROWS.map(([text, label]) => button(text, () => moved(`Arrow${label}`), label)),
  );
}
