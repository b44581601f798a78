/** The text of a Sudoku puzzle, and its solutions. */

import { BOXES, boardOf, cellName } from "./sudoku.js";

/** @typedef {(number | null)[]} Digits a digit from 0 per cell, or null */

const SIGNS = "123456789ABCDEFG"; // the characters of the digits
const MAX_TRIES = 5_000; // digits, until the search ends without a result

/**
 * Return the digits of a puzzle. A cell is empty if it has 0 or a dot.
 *
 * @param {string} text characters, or numbers separated by spaces
 * @param {number} side
 * @returns {Digits}
 * @throws {Error} the text is not a puzzle of this side.
 */
export function readPuzzle(text, side) {
  const words = text.replace(/[-+|]/g, " ").trim().split(/\s+/);
  const signs = words.length === side ** 2 ? words : [...words.join("")];
  if (signs.length !== side ** 2) {
    throw new Error(
      `puzzle of ${signs.length} characters: ${side}x${side} has ${side ** 2}. ` +
        "Write it row by row, with 0 or . for an empty cell.",
    );
  }
  return signs.map((text, cell) => {
    const digit = digitOf(text);
    if (digit === null || (digit >= 0 && digit < side)) return digit;
    const allowed = `1 to ${SIGNS[side - 1]}, or 0 or . for an empty cell`;
    throw new Error(`"${text}" in ${cellName(side, cell)}: must be ${allowed}.`);
  });
}

/**
 * Return the digit of a character or a number, null for an empty cell, and -1 for anything else.
 *
 * @param {string} text
 */
export function digitOf(text) {
  if ([".", "0", "Delete", "Backspace"].includes(text)) return null;
  if (/^\d\d$/.test(text)) return Number(text) - 1;
  return text.length === 1 ? SIGNS.indexOf(text.toUpperCase()) : -1;
}

/** @param {Digits} digits */
export const writePuzzle = (digits) => digits.map((digit) => (digit === null ? "." : SIGNS[digit])).join("");

/**
 * Return the solution of a board if it has exactly one, else null. The search ends after MAX_TRIES digits.
 * Boards of other sides than those of `BOXES` are not searched.
 *
 * The cell with the fewest possible digits is tried first.
 *
 * @param {Digits} digits
 * @param {number} side
 * @returns {Digits | null}
 */
export function onlySolution(digits, side) {
  if (!(side in BOXES)) return null;
  const { units } = boardOf(`sudoku-${side}`, side, side ** 2);
  const unitsWith = digits.map((_, cell) => [...units.keys()].filter((unit) => units[unit].includes(cell)));
  const used = units.map((cells) => new Set(cells.map((cell) => digits[cell])));
  const board = [...digits];
  /** @type {Digits[]} */
  const results = [];
  let tries = 0;

  const search = () => {
    const empty = [...board.keys()].filter((cell) => board[cell] === null);
    const choices = empty.map((cell) => {
      const isPossible = (/** @type {number} */ digit) =>
        unitsWith[cell].every((unit) => !used[unit].has(digit));
      return { cell, options: [...Array(side).keys()].filter(isPossible) };
    });
    if (!choices.length) return void results.push([...board]);
    const { cell, options } = choices.reduce((a, b) => (b.options.length < a.options.length ? b : a));
    for (const digit of options) {
      tries += 1;
      if (results.length > 1 || tries > MAX_TRIES) return;
      board[cell] = digit;
      unitsWith[cell].forEach((unit) => used[unit].add(digit));
      search();
      unitsWith[cell].forEach((unit) => used[unit].delete(digit));
      board[cell] = null;
    }
  };
  search();
  return results.length === 1 && tries <= MAX_TRIES ? results[0] : null;
}
