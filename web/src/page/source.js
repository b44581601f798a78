/** A source decodes puzzles: the server of the page, or the engine in the page. */

import { events, post, query } from "./server.js";
import { solutions } from "./solver.js";

/** @typedef {import("./sudoku.js").Digits} Digits */
/** @typedef {import("./types.js").Request} Request */
/**
 * @typedef {object} Source
 * @property {(model: import("./types.js").ModelEntry, text: string, digits: Digits) =>
 *   Promise<number | null>} check return the number of solutions, 2 for several and null if it is unknown
 * @property {(request: Request, digits: Digits, signal: AbortSignal) => import("./types.js").Events} decode
 */

/** @type {Source} */
export const server = {
  check: async ({ name }, puzzle) => {
    const { solutions, conflicts } = await post("/api/check", { model: name, puzzle });
    return conflicts.length ? 0 : solutions;
  },
  decode: (request, _, signal) => events(`/api/decode?${query(request)}`, signal),
};

/**
 * Return the source that decodes in the page.
 *
 * @param {import("./engine.js").Engine} engine
 * @returns {Source}
 */
export const inPage = (engine) => ({
  check: async ({ side, box }, _, digits) =>
    side && box ? (solutions(digits, side, box, 2)?.length ?? null) : null,
  decode: (request, digits, signal) => decodeInPage(engine, request, digits, signal),
});

/**
 * @param {import("./engine.js").Engine} engine
 * @param {Request} request
 * @param {Digits} tokens
 * @param {AbortSignal} signal
 * @returns {import("./types.js").Events}
 */
async function* decodeInPage(engine, request, tokens, signal) {
  const { model, latents, candidates, order, temperature, seed } = request;
  const n = latents === undefined ? {} : { latents: count(latents) };
  const settings = { ...n, candidates: count(candidates), order, temperature, seed: Number(seed) };
  const { start, frames, end } = await engine.decode(model, { tokens, ...settings }, signal);
  yield ["start", start];
  for (const frame of frames) yield ["frame", frame];
  yield ["end", end];
}

/**
 * Return the number that a setting names, or its word.
 *
 * @param {string} value
 */
const count = (value) => (/^\d+$/.test(value) ? Number(value) : /** @type {"all"} */ (value));
