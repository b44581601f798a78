/** The solutions of a Sudoku board. */

import { unitsOf } from "./sudoku.js";

/** @typedef {import("./sudoku.js").Digits} Digits */

const MAX_TRIES = 5_000; // digits, until the search ends without a result

/**
 * Return the first solutions of a board, or null if the search takes too long.
 *
 * The cell with the fewest possible digits is tried first.
 *
 * @param {Digits} digits
 * @param {number} side
 * @param {readonly number[]} box
 * @param {number} most solutions to return
 * @returns {Digits[] | null}
 */
export function solutions(digits, side, box, most) {
  const units = unitsOf(side, box);
  const unitsWith = digits.map((_, cell) => [...units.keys()].filter((unit) => units[unit].includes(cell)));
  const used = units.map((cells) => new Set(cells.map((cell) => digits[cell])));
  const board = [...digits];
  /** @type {Digits[]} */
  const results = [];
  let tries = 0;

  /** @param {number} cell */
  const isPossible = (cell) => (/** @type {number} */ digit) =>
    unitsWith[cell].every((unit) => !used[unit].has(digit));
  const search = () => {
    const empty = [...board.keys()].filter((cell) => board[cell] === null);
    const all = [...Array(side).keys()];
    const choices = empty.map((cell) => ({ cell, options: all.filter(isPossible(cell)) }));
    if (!choices.length) return void results.push([...board]);
    const { cell, options } = choices.reduce((a, b) => (b.options.length < a.options.length ? b : a));
    for (const digit of options) {
      tries += 1;
      if (results.length >= most || tries > MAX_TRIES) return;
      board[cell] = digit;
      unitsWith[cell].forEach((unit) => used[unit].add(digit));
      search();
      unitsWith[cell].forEach((unit) => used[unit].delete(digit));
      board[cell] = null;
    }
  };
  search();
  return tries > MAX_TRIES ? null : results;
}
