import assert from "node:assert/strict";
import { test } from "node:test";
import { joinNames, readAddress, splitNames, writeAddress } from "../../src/latent_tokens/page/js/address.js";
import { beliefsAt, cellsAt, firstMistake } from "../../src/latent_tokens/page/js/moment.js";
import { percents, shortName } from "../../src/latent_tokens/page/js/dom.js";
import { onlySolution, readPuzzle, writePuzzle } from "../../src/latent_tokens/page/js/puzzle.js";

const ONE_SOLUTION = "..6.31.1...6.6.3..2..6....51.3..1.6.";

test("a puzzle with one solution has that, and no other has one", () => {
  const given = readPuzzle(ONE_SOLUTION, 6);
  const solution = onlySolution(given, 6);
  assert.ok(given.every((digit, cell) => digit === null || digit === solution?.[cell]));
  assert.equal(new Set(solution?.slice(0, 6)).size, 6);
  assert.equal(onlySolution(readPuzzle(`12345.${".....6"}${".".repeat(24)}`, 6), 6), null);
  assert.equal(onlySolution(Array(36).fill(null), 6), null);
  assert.equal(onlySolution(Array(81).fill(null), 9), null);
  assert.equal(onlySolution(Array(36 ** 2).fill(0), 36), null);
});

test("a puzzle is read as it is written", () => {
  assert.equal(writePuzzle(readPuzzle(ONE_SOLUTION, 6)), ONE_SOLUTION);
  assert.deepEqual(readPuzzle("1 2 3 4\n. . . .\n0 0 0 0\n2 . . .", 4).slice(0, 5), [0, 1, 2, 3, null]);
  assert.throws(() => readPuzzle("7".repeat(36), 6), /"7" in row 1 column 1: must be 1 to 6/);
  assert.throws(() => readPuzzle(`123${" 2".repeat(15)}`, 4), /"123" in row 1 column 1/);
  assert.throws(() => readPuzzle("12", 6), /puzzle of 2 characters: 6x6 has 36/);
});

test("a cell is wrong if it differs from the only solution, else if it is in conflict", () => {
  const start = { kind: "sudoku", columns: 2, tokens: [0, null, null, null], signs: ["1", "2"] };
  const rest = { candidates: [], latents: [], beliefs: {} };
  const frames = [1, 2, 3].map((cell) => ({ chosen: [[cell, 0]], ...rest }));
  const trace = /** @type {any} */ ({ start, frames, end: { broken: [0, 1, 2] } });
  const wrong = (/** @type {(number | null)[] | null} */ solution) =>
    cellsAt(trace, 3, solution).map(({ kind }) => kind.includes("wrong"));
  assert.deepEqual(wrong([0, 1, 0, 1]), [false, true, false, true]);
  assert.deepEqual(wrong(null), [false, true, true, false]);
  assert.match(cellsAt(trace, 3, null)[1].label, /in conflict$/);
});

test("a token that is masked again is empty, no mistake, and predicted again", () => {
  const start = { kind: "sudoku", columns: 2, tokens: [0, null, null, null], signs: ["1", "2"] };
  const beliefs = [0.2, 0.3, 0.4].map((p) => ({ 1: [[0, p]] }));
  const frames = [
    { chosen: [[1, 0]], candidates: [1], latents: [2], beliefs: beliefs[0] },
    { again: [1], chosen: [[2, 0]], candidates: [2], latents: [], beliefs: beliefs[1] },
    { chosen: [[1, 1]], candidates: [1], latents: [], beliefs: beliefs[2] },
  ];
  const trace = /** @type {any} */ ({ start, frames, end: { broken: [] } });
  const signs = [1, 2, 3].map((at) => cellsAt(trace, at, null).map(({ sign }) => sign));
  assert.deepEqual(signs, [["1", "1", "", ""], ["1", "", "1", ""], ["1", "2", "1", ""]]);
  assert.deepEqual([1, 2, 3].map((at) => beliefsAt(trace, at, 1)), [[[0, 0.2]], [[0, 0.3]], [[0, 0.4]]]);
  assert.equal(firstMistake(trace, [0, 1, 0, 1]), null);
  assert.equal(firstMistake(trace, [0, 0, 0, 1]), 3);
});

test("names of models with a comma are in an address", () => {
  const names = ["runs/lr=0.1,bs=64", "plain"];
  const entries = readAddress(writeAddress({ model: joinNames(names) }));
  assert.deepEqual(splitNames(entries?.model ?? ""), names);
});

test("percentages of a prediction have the sum 100", () => {
  assert.deepEqual(percents([0.825, 0.175]), ["83%", "17%"]);
  assert.deepEqual(percents([0.996, 0.003, 0.001]), ["100%", "<1%", "<1%"]);
  assert.deepEqual(percents([1 / 3, 1 / 3, 1 / 3]), ["34%", "33%", "33%"]);
  assert.deepEqual(percents([0.5, 0.2]), ["50%", "20%"]);
});

test("a run has the name of its directory", () => {
  assert.deepEqual(["runs/mine/", "runs/mine", "mine"].map(shortName), ["mine", "mine", "mine"]);
});
