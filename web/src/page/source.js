/** A source decodes puzzles: the engine with the models in the page, the server with the others. */

import { events, post, query } from "./server.js";
import { solutions } from "./solver.js";
import { count, turnsOf } from "./turns.js";

/** @typedef {import("./sudoku.js").Digits} Digits */
/** @typedef {import("./types.js").Request} Request */
/**
 * @typedef {object} Source
 * @property {(model: import("./types.js").ModelEntry, text: string, digits: Digits) =>
 *   Promise<number | null>} check return the number of solutions, 2 for several and null if it is unknown
 * @property {(request: Request, digits: Digits, signal: AbortSignal) => import("./types.js").Events} decode
 */

/** @type {Source} */
const server = {
  check: async ({ name }, puzzle) => {
    const { solutions, conflicts } = await post("/api/check", { model: name, puzzle });
    return conflicts.length ? 0 : solutions;
  },
  decode: (request, _, signal) => events(`/api/decode?${query(request)}`, signal),
};

/**
 * Return the source of models, some of which the page has.
 *
 * @param {import("./types.js").ModelEntry[]} models
 * @param {import("./engine.js").Engine} engine
 * @returns {Source}
 */
export function sourceOf(models, engine) {
  const local = inPage(engine);
  const names = models.filter((model) => model.in_page).map(({ name }) => name);
  return {
    check: (model, ...rest) => (model.in_page ? local : server).check(model, ...rest),
    decode: (request, ...rest) => (names.includes(request.model) ? local : server).decode(request, ...rest),
  };
}

/**
 * Return the source that decodes in the page.
 *
 * @param {import("./engine.js").Engine} engine
 * @returns {Source}
 */
const inPage = (engine) => ({
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
  const { model, latents, candidates, order, temperature, seed, refresh } = request;
  const n = latents === undefined ? {} : { latents: turnsOf(latents) };
  const settings = { ...n, refresh, candidates: count(candidates), order, temperature, seed: Number(seed) };
  const { start, frames, end } = await engine.decode(model, { tokens, ...settings }, signal);
  yield ["start", start];
  for (const frame of frames) yield ["frame", frame];
  yield ["end", end];
}
