/** One decode as a trace, in the format of docs/formats.md: `start`, one `frame` per step, `end`. */

import { decodingFor, reportedCounts } from "./decoding.js";
import { latentControl } from "./methods.js";
import { sample } from "./sampling.js";
import { conflicts, verify } from "./sudoku.js";

/** @typedef {import("./model.js").Model} Model */
/** @typedef {import("./sampling.js").Step} Step */
/** @typedef {{ tokens: (number | null)[] } & import("./decoding.js").Settings} Request */
/** @typedef {[number, number][]} Beliefs pairs of a token and its probability, in descending order */
/**
 * @typedef {object} Start
 * @property {string} model
 * @property {string} method
 * @property {string} task
 * @property {"sudoku"} kind
 * @property {number} columns
 * @property {string[]} heads
 * @property {string[]} signs
 * @property {number} side
 * @property {number[]} box
 * @property {(number | null)[]} tokens
 * @property {string[]} words
 * @property {{ latents: number | string, candidates: number | string, order: string, temperature: number,
 *   seed: number, off_distribution?: boolean, remask_every?: number, remask_below?: number }} settings
 * @property {boolean} dial
 * @property {number} all_processed
 */
/**
 * @typedef {object} Frame
 * @property {number} step
 * @property {[number, number][]} chosen
 * @property {number[]} [again] the cells that were masked again before the step
 * @property {number[]} candidates
 * @property {number[]} latents
 * @property {Record<string, Beliefs>} beliefs
 * @property {number} processed
 * @property {number} all_processed
 */
/**
 * @typedef {object} End
 * @property {boolean} right
 * @property {string[]} wrong
 * @property {number[]} broken
 * @property {number} processed
 * @property {number} seconds
 */
/** @typedef {{ start: Start, frames: Frame[], end: End }} Trace */
/** @typedef {["start", Start] | ["frame", Frame] | ["end", End]} Event */

const TOP_TOKENS = 6; // most likely tokens of a cell
const NINE = 9; // on a board of 9x9, all digits

/**
 * Decode a puzzle and return its trace.
 *
 * @param {Model} model
 * @param {Request} request
 * @returns {Trace}
 * @throws {Error} the puzzle or a setting is not supported.
 */
export function decode(model, request) {
  const [start, ...frames] = Array.from(events(model, request), ([, payload]) => payload);
  return /** @type {Trace} */ ({ start, frames: frames.slice(0, -1), end: frames.at(-1) });
}

/**
 * Decode a puzzle and yield `start`, a `frame` per step, and `end`.
 *
 * @param {Model} model
 * @param {Request} request
 * @returns {Generator<Event, void>}
 */
export function* events(model, request) {
  const begin = performance.now();
  const decoding = decodingFor(model.method, request);
  checkPuzzle(model, request.tokens);
  yield ["start", startOf(model, request.tokens, decoding)];

  const tokens = [...request.tokens];
  const numGiven = tokens.filter((token) => token !== null).length;
  let processed = 0;
  for (const step of sample(model.net, model.method, request.tokens, decoding)) {
    processed += step.layout.positions.length;
    const clean = new Set(step.layout.positions.slice(0, step.layout.numClean));
    const again = [...tokens.keys()].filter((cell) => tokens[cell] !== null && !clean.has(cell));
    for (const cell of again) tokens[cell] = null;
    tokens[step.position] = step.token;
    const numDecoded = tokens.filter((token) => token !== null).length - numGiven;
    const all_processed = tokens.length * numDecoded;
    const shown = again.length ? { again } : {};
    yield ["frame", { ...cellsOf(model, step), ...shown, processed, all_processed }];
  }

  const { wrong, broken } = verify(model.board, tokens.map(Number));
  const seconds = rounded((performance.now() - begin) / 1000);
  yield ["end", { right: !wrong.length, wrong, broken, processed, seconds }];
}

/**
 * @param {Model} model
 * @param {(number | null)[]} tokens
 * @param {import("./decoding.js").Decoding} decoding
 * @returns {Start}
 */
function startOf({ name, methodName, task, method, board }, tokens, decoding) {
  const { side, box } = board;
  const { order, temperature, seed } = decoding;
  return {
    model: name,
    method: methodName,
    task,
    kind: "sudoku",
    columns: side,
    heads: [],
    signs: Array.from({ length: side }, (_, digit) => `${digit + 1}`),
    side,
    box,
    tokens,
    words: [],
    settings: {
      ...reportedCounts(method, decoding),
      order,
      temperature,
      seed,
      ...(decoding.isOffDistribution ? { off_distribution: true } : {}),
      ...(decoding.remaskEvery === null ? {} : { remask_every: decoding.remaskEvery }),
    },
    dial: latentControl(method) === "free",
    all_processed: tokens.length * tokens.filter((token) => token === null).length,
  };
}

/**
 * Return the cells of a step. The cells of a board are the positions of its sequence.
 *
 * @param {Model} model
 * @param {Step} step
 */
function cellsOf({ board }, { number, layout, probabilities, position, token }) {
  const masked = layout.positions.slice(layout.numClean);
  const most = board.side === NINE ? NINE : TOP_TOKENS;
  return {
    step: number,
    chosen: /** @type {[number, number][]} */ ([[position, token]]),
    candidates: masked.slice(layout.numLatents),
    latents: masked.slice(0, layout.numLatents),
    beliefs: Object.fromEntries(masked.map((cell, slot) => [cell, mostLikely(probabilities[slot], most)])),
  };
}

/**
 * Return the most likely tokens and their probabilities, if they do not round to 0.
 *
 * @param {number[]} probabilities
 * @param {number} most
 * @returns {Beliefs}
 */
export function mostLikely(probabilities, most) {
  const ranked = [...probabilities.keys()].sort((a, b) => probabilities[b] - probabilities[a]);
  const pairs = ranked
    .slice(0, most)
    .map((token) => /** @type {[number, number]} */ ([token, rounded(probabilities[token])]));
  return pairs.filter(([, probability]) => probability > 0);
}

/**
 * Raise an error if the model cannot decode a puzzle.
 *
 * @param {Model} model
 * @param {(number | null)[]} tokens
 */
function checkPuzzle(model, tokens) {
  checkTokens(model, tokens);
  const contradictions = conflicts(model.board, tokens);
  if (contradictions.length) throw new Error(`puzzle contradicts itself: ${contradictions.join("; ")}`);
  if (!tokens.includes(null)) throw new Error("puzzle has nothing to solve: every cell is given");
}

/**
 * Raise an error if tokens are not cells of the model's board, or the model cannot take them.
 *
 * @param {Model} model
 * @param {(number | null)[]} tokens
 */
export function checkTokens({ board, method }, tokens) {
  const numCells = board.side ** 2;
  if (tokens.length !== numCells) {
    throw new Error(`puzzle of ${tokens.length} cells: must have ${numCells} (${board.side}x${board.side})`);
  }
  const wrong = tokens.find(
    (token) => token !== null && !(Number.isInteger(token) && token >= 0 && token < board.side),
  );
  if (wrong !== undefined)
    throw new Error(`token=${wrong}: must be 0 to ${board.side - 1}, or null for an empty cell`);
  const firstMasked = tokens.indexOf(null);
  const isPrefix = firstMasked < 0 || tokens.slice(firstMasked).every((token) => token === null);
  if (method.readout === "shifted" && !isPrefix) {
    throw new Error(
      "row 0: its known positions are not a prefix, and a shifted readout only continues one. " +
        "Use scdm or mdm to infill.",
    );
  }
}

/** @param {number} value */
const rounded = (value) => Math.round(1000 * value) / 1000;
