/** A curve that is measured in the page: its samples are decoded in several workers. */

import { readSudoku } from "./sudoku.js";
import { wilson } from "./series.js";

/** @typedef {import("./engine.js").Engine} Engine */
/** @typedef {import("./series.js").Point} Point */
/** @typedef {import("../engine/trace.js").Request} EngineRequest */
/**
 * @typedef {object} Plan what to measure
 * @property {import("./types.js").ModelEntry} model
 * @property {number} count samples per number of latent tokens
 * @property {string[] | null} puzzles null to decode from an empty grid
 * @property {Omit<EngineRequest, "tokens">} settings
 */

const MOST_WORKERS = 4;
/** @type {(number | "all")[]} */
const NUM_LATENTS = [0, 4, 16, "all"];

export const numWorkers = () => Math.max(1, Math.min(MOST_WORKERS, (navigator.hardwareConcurrency || 2) - 1));

/**
 * Decode the samples of a curve, and tell the points so far after each.
 *
 * @param {Engine[]} engines
 * @param {Plan} plan
 * @param {AbortSignal} signal
 * @param {(point: Point) => void} tell
 */
export async function measure(engines, plan, signal, tell) {
  const requests = requestsOf(plan);
  /** @type {Map<string, Point>} */
  const points = new Map();
  const work = async (/** @type {Engine} */ engine) => {
    for (let next = requests.next(); !next.done; next = requests.next()) {
      const trace = await engine.decode(plan.model.name, next.value, signal);
      const key = String(trace.start.settings.latents);
      const point = withSample(points.get(key), plan.count, trace);
      points.set(key, point);
      tell(point);
    }
  };
  await Promise.all(engines.map(work));
}

/**
 * Yield the requests of a curve: of the first sample with each number of latent tokens, then of the second.
 *
 * Sample i of the empty grid draws the random numbers of row i, as `latent-tokens evaluate` does.
 *
 * @param {Plan} plan
 * @returns {Generator<EngineRequest, void>}
 */
export function* requestsOf({ model, count, puzzles, settings }) {
  const side = model.side ?? 0;
  const empty = new Array(side ** 2).fill(null);
  for (let i = 0; i < count; i++) {
    const sample = puzzles
      ? { tokens: readSudoku(puzzles[i], side), temperature: 0 }
      : { tokens: empty, temperature: 1, row: i };
    for (const latents of model.dial ? NUM_LATENTS : [null]) yield { ...settings, ...sample, latents };
  }
}

/**
 * Return a point after another sample.
 *
 * @param {Point | undefined} point
 * @param {number} of samples in all
 * @param {import("../engine/trace.js").Trace} trace
 * @returns {Point}
 */
export function withSample(point, of, { start, end }) {
  const before = point ?? { done: 0, right: 0, processed: 0, relative: 0 };
  const done = before.done + 1;
  const right = before.right + (end.right ? 1 : 0);
  const mean = (/** @type {number} */ value, /** @type {number} */ next) => value + (next - value) / done;
  return {
    latents: start.settings.latents,
    of,
    done,
    right,
    ...wilson(right / done, done),
    processed: mean(before.processed, end.processed),
    relative: mean(before.relative, end.processed / start.all_processed),
  };
}
