import assert from "node:assert/strict";
import { test } from "node:test";
import { RULES, visibleSlots } from "../../src/latent_tokens/page/js/attention.js";
import {
  decodingFor,
  numCandidatesAndLatents,
  reportedCounts,
} from "../../src/latent_tokens/page/js/decoding.js";
import { leftToRight, nextLayout, promote, shuffle } from "../../src/latent_tokens/page/js/layout.js";
import { inputIds, latentControl, METHODS, nameOf } from "../../src/latent_tokens/page/js/methods.js";
import {
  CONFIDENCES,
  mostConfident,
  nucleus,
  sampleToken,
} from "../../src/latent_tokens/page/js/probability.js";
import { onlySolution, readPuzzle } from "../../src/latent_tokens/page/js/puzzle.js";
import { boardOf, verify } from "../../src/latent_tokens/page/js/sudoku.js";
import { loadModel } from "../../src/latent_tokens/page/js/model.js";
import { events, mostLikely } from "../../src/latent_tokens/page/js/trace.js";
import { lineBetween } from "../../src/latent_tokens/page/js/board.js";
import { BUNDLED, filesOf } from "./files.js";

/** @typedef {import("../../src/latent_tokens/page/js/trace.js").Frame} Frame */
/** @typedef {import("../../src/latent_tokens/page/js/methods.js").Method} Method */

const WINDOW = { ...METHODS["ar-mtp"], window: 4 }; // three latent tokens
const SEMI_CAUSAL_WINDOW = { ...METHODS.scdm, window: 6 };

test("the latent tokens of a window are what the candidates leave of it", () => {
  const decoding = decodingFor(SEMI_CAUSAL_WINDOW, { latents: 5, candidates: 4 });
  assert.deepEqual(reportedCounts(SEMI_CAUSAL_WINDOW, decoding), { candidates: 4, latents: 2 });
  assert.deepEqual(numCandidatesAndLatents(SEMI_CAUSAL_WINDOW, decoding, 3, 30), { k: 4, n: 2 });
  assert.deepEqual(numCandidatesAndLatents(SEMI_CAUSAL_WINDOW, decoding, 31, 5), { k: 4, n: 1 });
  const growing = { ...decoding, candidates: /** @type {const} */ ("growing"), latents: 1 };
  assert.deepEqual(numCandidatesAndLatents(METHODS.scdm, growing, 2, 9), { k: 3, n: 1 });
});

test("fewer latent tokens than in training are off-distribution", () => {
  const isLabeled = (/** @type {number | null} */ latents, /** @type {Method} */ method = WINDOW) =>
    decodingFor(method, { latents, off_distribution: true }).isOffDistribution;
  assert.deepEqual([3, 2, 0, null].map((latents) => isLabeled(latents)), [false, true, true, false]);
  assert.deepEqual([isLabeled(4, METHODS.mdm), isLabeled(4, METHODS.scdm)], [true, false]);
});

test("the number of latent tokens is none, fixed or free", () => {
  const names = ["sidm", "arm", "mdm", "ar-mtp", "scdm", "esolm", "mdm-depth", "scdm-depth"];
  const controls = names.map((name) => latentControl(METHODS[name]));
  assert.deepEqual(controls, ["none", "none", "fixed", "fixed", "free", "free", "free", "free"]);
  assert.deepEqual([WINDOW, SEMI_CAUSAL_WINDOW].map(nameOf), ["ar-mtp-window-4", "custom"]);
});

test("a step attends and reads by its method", () => {
  const rows = (/** @type {keyof typeof RULES} */ rule) =>
    visibleSlots(RULES[rule], 4, 2).map((slots) => slots.join(""));
  assert.deepEqual(rows("independent"), ["01", "01", "012", "013"]);
  assert.deepEqual(rows("semi_causal"), ["01", "01", "012", "0123"]);
  assert.deepEqual(rows("causal"), ["0", "01", "012", "0123"]);
  const layout = nextLayout([2, 0, 1, 3], 1, 1, 2);
  assert.deepEqual(layout.positions, [2, 1, 3, 0]);
  assert.deepEqual(inputIds(METHODS.scdm, [9, 9, 5, 9], layout, 9), [5, 9, 9, 9]);
  assert.deepEqual(inputIds(METHODS.arm, [5, 6, 9], nextLayout([0, 1, 2], 2, 1, 0), 9), [9, 5, 6]);
  assert.deepEqual(leftToRight([false, true, false]), [1, 0, 2]);
  assert.deepEqual(shuffle([4, 5, 6, 7], 1, [0.5, 0.9, 0.1]), [4, 7, 5, 6]);
  assert.deepEqual(promote([3, 0, 2, 1], 1, 2), [3, 2, 0, 1]);
});

test("confidences and tokens are those of a half, a third and a sixth", () => {
  const probabilities = [1 / 3, 1 / 2, 1 / 6];
  const { top_prob, margin, entropy } = CONFIDENCES;
  const nats = Math.log(3) / 3 + Math.log(2) / 2 + Math.log(6) / 6;
  assert.equal(top_prob(probabilities), 0.5);
  assert.ok(Math.abs(margin(probabilities) - 1 / 6) < 1e-12);
  assert.ok(Math.abs(entropy(probabilities) + nats) < 1e-12);
  assert.equal(mostConfident([[0.9], [0.95], [0.950001]], top_prob), 1); // as close as rounding
  assert.deepEqual(nucleus(probabilities, 0.4), [0, 1 / 2, 0]);
  assert.deepEqual(nucleus(probabilities, 0.6), [1 / 3, 1 / 2, 0]);
  const logits = probabilities.map(Math.log);
  const drawn = (/** @type {number} */ noise, temperature = 1, top_p = 1) =>
    sampleToken(logits, { temperature, top_p }, noise);
  assert.deepEqual([0.3, 0.34, 0.82, 0.84].map((noise) => drawn(noise)), [0, 1, 1, 2]);
  assert.deepEqual([drawn(0.9, 0), drawn(0.39, 1, 0.6), drawn(0.41, 1, 0.6)], [1, 0, 1]);
  assert.deepEqual([drawn(0.27, 0.5), drawn(0.3, 0.5)], [0, 1]); // 4 : 9 : 1
});

test("likely tokens are listed, on a board of 9x9 all nine", () => {
  const probabilities = [0.02, 0.3, 0.2, 0.48];
  assert.deepEqual(mostLikely(probabilities, 2), [
    [3, 0.48],
    [1, 0.3],
  ]);
  assert.deepEqual(mostLikely([0.9996, 0.0004], 6), [[0, 1]]); // what rounds to 0 is left out
  const { bytes, config } = filesOf(`${BUNDLED}sudoku-9-scdm`);
  const request = { tokens: Array(81).fill(null), latents: 0, candidates: 1 };
  const steps = events(loadModel(bytes, config, "nine"), request);
  steps.next(); // the start
  const [, frame] = /** @type {["frame", Frame]} */ (steps.next().value);
  assert.equal(Object.values(frame.beliefs)[0].length, 9); // nearly 1/9 each
});

test("boxes of a 6x6 board have two rows and three columns", () => {
  const { units } = boardOf("sudoku-6", 6, 36);
  assert.deepEqual(units[12 + 3], [15, 16, 17, 21, 22, 23]);
  const board = boardOf("sudoku-4", 4, 16);
  const right = [0, 1, 2, 3, 2, 3, 0, 1, 1, 0, 3, 2, 3, 2, 1, 0];
  assert.deepEqual(verify(board, right), { wrong: [], broken: [] });
  const { wrong, broken } = verify(board, [...right.slice(0, 15), 1]);
  assert.deepEqual(wrong, ["row 4 lacks a digit", "column 4 lacks a digit", "box 4 lacks a digit"]);
  assert.deepEqual(broken, [7, 14, 15]);
});

test("a line between two cells ends inside their edges", () => {
  const rounded = (/** @type {number} */ to) =>
    Object.values(lineBetween(7, to, 6)).map((value) => Math.round(100 * value) / 100);
  assert.deepEqual(rounded(8), [1.9, 1.5, 2.1, 1.5]); // the next one
  assert.deepEqual(rounded(3), [1.9, 1.3, 3.1, 0.7]); // two columns on, one row up
});

test("a puzzle of two solutions has no only one", () => {
  const [one, other] = ["1234341221434321", "2134341212434321"].map((text) => readPuzzle(text, 4));
  const ambiguous = one.map((digit, cell) => (digit === other[cell] ? digit : null));
  assert.equal(ambiguous.filter((digit) => digit === null).length, 4);
  assert.equal(onlySolution(ambiguous, 4), null);
  assert.deepEqual(onlySolution([null, ...one.slice(1)], 4), one);
});
