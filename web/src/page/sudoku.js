/** Sudoku boards: their units, contradictions, text and solutions. A cell has a digit from 0, or null. */

import { Fault } from "./fault.js";

/** @typedef {(number | null)[]} Digits */

export const SIGNS = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ@"; // the characters of the digits
const UNITS = ["row", "column", "box"];

/**
 * Return the cells of each row, column and box.
 *
 * @param {number} side
 * @param {readonly number[]} box its rows and columns
 */
export function unitsOf(side, [rows, columns]) {
  /** @type {number[][]} */
  const units = Array.from({ length: 3 * side }, () => []);
  for (let cell = 0; cell < side * side; cell++) {
    const row = Math.floor(cell / side);
    const column = cell % side;
    const boxNumber = Math.floor(row / rows) * (side / columns) + Math.floor(column / columns);
    units[row].push(cell);
    units[side + column].push(cell);
    units[2 * side + boxNumber].push(cell);
  }
  return units;
}

/**
 * Return the name of a unit, for example "column 2".
 *
 * @param {number} unit
 * @param {number} side
 */
export const unitName = (unit, side) => `${UNITS[Math.floor(unit / side)]} ${(unit % side) + 1}`;

/**
 * Return the kind of the first unit that has both cells, for example "box", or null.
 *
 * @param {number} first
 * @param {number} second
 * @param {number} side
 * @param {readonly number[]} box
 */
export function sharedUnit(first, second, side, box) {
  const unit = unitsOf(side, box).findIndex((cells) => cells.includes(first) && cells.includes(second));
  return unit < 0 ? null : UNITS[Math.floor(unit / side)];
}

/**
 * Return the cells whose digit is also in another cell of a unit, and these contradictions in words.
 *
 * @param {Digits} digits
 * @param {number} side
 * @param {readonly number[]} box
 */
export function clashes(digits, side, box) {
  /** @type {Set<number>} */
  const cells = new Set();
  /** @type {string[]} */
  const words = [];
  unitsOf(side, box).forEach((unit, index) => {
    for (const digit of new Set(unit.map((cell) => digits[cell]))) {
      const twins = unit.filter((cell) => digits[cell] === digit);
      if (digit === null || twins.length < 2) continue;
      words.push(`${unitName(index, side)} holds ${digit + 1} twice`);
      twins.forEach((twin) => cells.add(twin));
    }
  });
  return { cells, words };
}

/**
 * Return the characters of a puzzle, or its numbers if they are separated by spaces.
 *
 * @param {string} text
 */
function signsOf(text) {
  const lines = text
    .trim()
    .split("\n")
    .filter((line) => !/^[-+|=\s]*$/.test(line));
  const words = lines.join(" ").replaceAll("|", " ").split(/\s+/).filter(Boolean);
  const isSpaced = words.length > 1 && words.every(({ length }) => length <= 2);
  return isSpaced && sideOfCount(words.length) ? words : [...words.join("")];
}

/** @param {number} count */
const sideOfCount = (count) => (Number.isInteger(Math.sqrt(count)) ? Math.sqrt(count) : null);

/**
 * Return the side of the board that a text describes, or null.
 *
 * @param {string} text
 */
export const sideOf = (text) => sideOfCount(signsOf(text).length);

/**
 * Return the digits of a puzzle. A cell is empty if it has 0 or a dot.
 *
 * @param {string} text characters, or numbers separated by spaces
 * @param {number} side
 * @returns {Digits}
 * @throws {Fault} if the text is not a puzzle of this side
 */
export function readSudoku(text, side) {
  const signs = signsOf(text);
  if (signs.length !== side * side) {
    throw new Fault(
      `A puzzle of ${signs.length} characters: ${side}x${side} has ${side * side}, row by row, ` +
        "0 or . for an empty cell.",
    );
  }
  return signs.map((sign, cell) => {
    if (sign === "." || sign === "0") return null;
    const digit = /^\d+$/.test(sign) ? Number(sign) - 1 : SIGNS.indexOf(sign.toUpperCase());
    if (digit >= 0 && digit < side) return digit;
    throw new Fault(
      `"${sign}" in ${cellName(cell, side)}: must be 1 to ${SIGNS[side - 1]}, or 0 or . for an empty cell.`,
    );
  });
}

/** @param {Digits} digits */
export const writeSudoku = (digits) => digits.map((digit) => (digit === null ? "." : SIGNS[digit])).join("");

/**
 * Return the name of a cell, for example "row 1 column 2".
 *
 * @param {number} cell
 * @param {number} side
 */
export const cellName = (cell, side) => `row ${Math.floor(cell / side) + 1} column ${(cell % side) + 1}`;
