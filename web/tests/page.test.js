import assert from "node:assert/strict";
import { test } from "node:test";
import { shortName } from "../src/page/dom.js";
import { IDLE, drawnTrace, hasArrived, loading, traceOf, withEvent } from "../src/page/decode.js";
import { solutions } from "../src/page/solver.js";
import { clashes, readSudoku, sharedUnit, sideOf, writeSudoku } from "../src/page/sudoku.js";

/** @typedef {import("../src/page/types.js").Trace} Trace */

const BOX = [2, 3];
const ONE_SOLUTION = "..6.31.1...6.6.3..2..6....51.3..1.6.";

test("a puzzle has no, one or several solutions", () => {
  const count = (/** @type {string} */ text) => solutions(readSudoku(text, 6), 6, BOX, 2)?.length;
  assert.equal(count(ONE_SOLUTION), 1);
  assert.equal(count(`12345.${".....6"}${".".repeat(24)}`), 0);
  assert.equal(count(".".repeat(36)), 2);
});

test("a solution has the given digits and contradicts nothing", () => {
  const given = readSudoku(ONE_SOLUTION, 6);
  const [solution] = solutions(given, 6, BOX, 1) ?? [];
  assert.deepEqual(
    given.map((digit, cell) => digit === null || digit === solution[cell]),
    given.map(() => true),
  );
  assert.equal(clashes(solution, 6, BOX).cells.size, 0);
  assert.equal(new Set(solution).size, 6);
});

test("a search that takes too long has no result", () => {
  assert.equal(solutions(Array(81).fill(null), 9, [3, 3], Infinity), null);
});

test("a puzzle is read as it is written", () => {
  assert.equal(writeSudoku(readSudoku(ONE_SOLUTION, 6)), ONE_SOLUTION);
  assert.equal(sideOf("1 2 3 4\n. . . .\n0 0 0 0\n2 . . ."), 4);
  assert.equal(sideOf("123"), null);
  assert.throws(() => readSudoku("7".repeat(36), 6), /"7" in row 1 column 1: must be 1 to 6/);
  assert.throws(() => readSudoku("12", 6), /A puzzle of 2 characters: 6x6 has 36/);
});

test("two cells share a row, a column, a box or nothing", () => {
  const units = [5, 30, 8, 14].map((cell) => sharedUnit(0, cell, 6, BOX));
  assert.deepEqual(units, ["row", "column", "box", null]);
});

test("the previous trace is drawn until the new one has come as far", () => {
  const previous = /** @type {Trace} */ (/** @type {unknown} */ ({ start: 1, frames: [1, 2, 3], end: 1 }));
  let decode = loading({ kind: "playing", trace: previous }, null);
  assert.equal(drawnTrace(decode, 2), previous);
  for (const name of ["start", "frame"]) decode = withEvent(decode, [name, name]);
  assert.equal(drawnTrace(decode, 2), previous);
  assert.deepEqual(
    [1, 2].map((at) => hasArrived(decode, at)),
    [true, false],
  );
  decode = withEvent(decode, ["frame", "frame"]);
  assert.equal(drawnTrace(decode, 2)?.frames.length, 2);
  assert.equal(traceOf(decode), null);
  decode = withEvent(decode, ["end", "end"]);
  assert.equal(traceOf(decode)?.frames.length, 2);
  assert.equal(drawnTrace(IDLE, 1), null);
});

test("a run has the name of its directory", () => {
  assert.equal(shortName("sudoku-6-scdm"), "sudoku-6-scdm");
  assert.equal(shortName("runs/mine"), "mine");
  assert.equal(shortName("runs/mine/"), "mine");
});
