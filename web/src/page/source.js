/** A source decodes puzzles: the engine, with the models in the page. */

import { solutions } from "./solver.js";
import { count, turnsOf } from "./turns.js";

/** @typedef {import("./sudoku.js").Digits} Digits */
/** @typedef {import("./types.js").Request} Request */
/**
 * @typedef {object} Source
 * @property {(model: import("./types.js").ModelEntry, digits: Digits) => number | null} check
 *   return the number of solutions, 2 for several and null if it is unknown
 * @property {(request: Request, digits: Digits, signal: AbortSignal) => import("./types.js").Events} decode
 */

/**
 * Return the source of the models in the page.
 *
 * @param {import("./engine.js").Engine} engine
 * @returns {Source}
 */
export const sourceOf = (engine) => ({
  check: ({ side, box }, digits) =>
    side && box ? (solutions(digits, side, box, 2)?.length ?? null) : null,
  decode: (request, digits, signal) => decode(engine, request, digits, signal),
});

/**
 * @param {import("./engine.js").Engine} engine
 * @param {Request} request
 * @param {Digits} tokens
 * @param {AbortSignal} signal
 * @returns {import("./types.js").Events}
 */
async function* decode(engine, request, tokens, signal) {
  const { model, latents, candidates, order, temperature, seed, refresh } = request;
  const n = latents === undefined ? {} : { latents: turnsOf(latents) };
  const settings = { ...n, refresh, candidates: count(candidates), order, temperature, seed: Number(seed) };
  const { start, frames, end } = await engine.decode(model, { tokens, ...settings }, signal);
  yield ["start", start];
  for (const frame of frames) yield ["frame", frame];
  yield ["end", end];
}
