/** The first wrong digit of a decode, and the step in which two decodes part. */

import { SIGNS } from "./sudoku.js";
import { solutions } from "./solver.js";

/** @typedef {import("./types.js").Board} Board */
/** @typedef {import("./types.js").Drawn} Drawn */
/**
 * @typedef {object} Mistake a decoded digit that the only solution does not have
 * @property {number} step from 1
 * @property {number} cell
 * @property {number} token
 * @property {string} solution the character that the solution has
 */

/** @type {WeakMap<object, string[] | null>} by the given tokens of a board */
const known = new WeakMap();

/**
 * Return the character of each cell in the only solution of a Sudoku, or null if there is no single one.
 *
 * @param {Board} start
 */
export function onlySolution(start) {
  const { kind, box, columns, tokens, signs } = start;
  if (kind !== "sudoku" || !box) return null;
  const earlier = known.get(tokens);
  if (earlier !== undefined) return earlier;
  const digits = tokens.map((token) => (token === null ? null : SIGNS.indexOf(signs[token])));
  const boards = solutions(digits, columns, box, 2);
  const solution = boards?.length === 1 ? boards[0].map((digit) => SIGNS[Number(digit)]) : null;
  known.set(tokens, solution);
  return solution;
}

/**
 * Return the first decoded digit that differs from the only solution, or null.
 *
 * @param {Drawn} trace
 * @returns {Mistake | null}
 */
export function firstMistake({ start, frames }) {
  const solution = onlySolution(start);
  if (!solution) return null;
  const decoded = frames.flatMap(({ chosen }, index) =>
    chosen.map(([cell, token]) => ({ step: index + 1, cell, token, solution: solution[cell] })),
  );
  return decoded.find(({ cell, token }) => start.signs[token] !== solution[cell]) ?? null;
}

/**
 * Return the first step, from 1, in which two decodes decode different tokens, or null.
 *
 * @param {Drawn} first
 * @param {Drawn} second
 */
export function partingStep(first, second) {
  const steps = Math.max(first.frames.length, second.frames.length);
  const isEqual = (/** @type {number} */ index) =>
    JSON.stringify(first.frames[index]?.chosen) === JSON.stringify(second.frames[index]?.chosen);
  const index = [...Array(steps).keys()].findIndex((step) => !isEqual(step));
  return index < 0 ? null : index + 1;
}
