/** The lines and the sentences of the tab "One cell". */

/** @typedef {import("./types.js").PageRecord} PageRecord */

export const SIDE = 6;
export const BOX = [2, 3];
const DIGIT_RADIUS = 0.3; // of a cell's side

/**
 * Return the ends of a line from one cell to another, which leaves their digits free.
 *
 * @param {number} first
 * @param {number} second
 */
export function between(first, second) {
  const x = (first % SIDE) + 0.5;
  const y = Math.floor(first / SIDE) + 0.5;
  const dx = (second % SIDE) - (first % SIDE);
  const dy = Math.floor(second / SIDE) - Math.floor(first / SIDE);
  const gap = DIGIT_RADIUS / Math.hypot(dx, dy);
  return { x1: x + gap * dx, y1: y + gap * dy, x2: x + (1 - gap) * dx, y2: y + (1 - gap) * dy };
}

/**
 * Return the board of a puzzle.
 *
 * @param {(number | null)[]} tokens
 * @returns {import("./types.js").Board}
 */
export function boardOf(tokens) {
  const signs = Array.from({ length: SIDE }, (_, digit) => `${digit + 1}`);
  return { kind: "sudoku", columns: SIDE, box: BOX, heads: [], words: [], signs, tokens };
}

/** @param {number} count of latent tokens */
export function discarded(count) {
  if (!count) return "";
  return count === 1
    ? " The guess in the other cell is discarded."
    : " The guesses in the other cells are discarded.";
}

/** @param {PageRecord} record */
export function ratesOf({ counts, givens }) {
  const { states, wrong, mended, mended_by_one: byOne, spoiled } = counts;
  return (
    `This board shows the effect most clearly, out of ${states} random 6x6 boards ` +
    `(${givens} givens, one cell to decode). Without latent tokens, ${wrong} of the ${states} predictions ` +
    `are wrong. With all latent tokens, ${mended} of these become right, and a single one is enough for ` +
    `${byOne}. The reverse: ${spoiled} right predictions become wrong.`
  );
}
