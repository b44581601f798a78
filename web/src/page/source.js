/** A source decodes puzzles: the server of the page. */

import { events, post, query } from "./server.js";

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
