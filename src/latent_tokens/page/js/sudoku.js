/** Sudoku boards: their geometry, contradictions among given cells, and the verdict on an answer. */

/**
 * @typedef {object} Board
 * @property {number} side cells per row
 * @property {[number, number]} box rows and columns of a box
 * @property {number[][]} units the cells of each row, column and box
 */

/** @type {Record<number, [number, number]>} Rows and columns of a box, by side. */
export const BOXES = { 4: [2, 2], 6: [2, 3], 9: [3, 3], 16: [4, 4] };
const UNITS = ["row", "column", "box"];

/**
 * Return the board that a model decodes.
 *
 * @param {string} task its task
 * @param {number} side the number of digits
 * @param {number} numCells
 * @returns {Board}
 * @throws {Error} the task is not a Sudoku board.
 */
export function boardOf(task, side, numCells) {
  const box = BOXES[side];
  if (!/^sudoku-\d+(-pattern)?$/.test(task) || numCells !== side ** 2 || !box) {
    throw new Error(
      `task=${task}: is not supported in the browser. Use sudoku-4, sudoku-6, sudoku-9 or sudoku-16.`,
    );
  }
  const [rows, columns] = box;
  /** @type {number[][]} */
  const units = Array.from({ length: 3 * side }, () => []);
  for (let cell = 0; cell < numCells; cell++) {
    const row = Math.floor(cell / side);
    const column = cell % side;
    const boxNumber = Math.floor(row / rows) * (side / columns) + Math.floor(column / columns);
    for (const unit of [row, side + column, 2 * side + boxNumber]) units[unit].push(cell);
  }
  return { side, box, units };
}

/**
 * Return each pair of cells of a unit with the same digit, in words.
 *
 * @param {Board} board
 * @param {(number | null)[]} cells
 */
export function conflicts({ side, units }, cells) {
  return units.flatMap((unit, number) => {
    const filled = unit.filter((cell) => cells[cell] !== null);
    return filled.flatMap((cell, i) => {
      const earlier = filled.slice(0, i).findLast((other) => cells[other] === cells[cell]);
      if (earlier === undefined) return [];
      const pair = `${cellName(side, earlier)} and ${cellName(side, cell)}`;
      return [`${Number(cells[cell]) + 1} twice in ${unitName(side, number)}, at ${pair}`];
    });
  });
}

/**
 * Return the errors of an answer in words, and their cells.
 *
 * @param {Board} board
 * @param {number[]} cells
 */
export function verify({ side, units }, cells) {
  const wrong = units.flatMap((unit, number) => {
    const isComplete = new Set(unit.map((cell) => cells[cell])).size === side;
    return isComplete ? [] : [`${unitName(side, number)} lacks a digit`];
  });
  const repeated = units.flatMap((unit) =>
    unit.filter((cell) => unit.some((other) => other !== cell && cells[other] === cells[cell])),
  );
  const broken = [...new Set(repeated)].sort((a, b) => a - b);
  return { wrong, broken };
}

/**
 * @param {number} side
 * @param {number} unit
 */
const unitName = (side, unit) => `${UNITS[Math.floor(unit / side)]} ${(unit % side) + 1}`;

/**
 * @param {number} side
 * @param {number} cell
 */
export const cellName = (side, cell) => `row ${Math.floor(cell / side) + 1} column ${(cell % side) + 1}`;
