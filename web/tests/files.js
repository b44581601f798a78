/** Models and a puzzle for the tests. */

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const BUNDLED = fileURLToPath(new URL("../../src/latent_tokens/bundled/", import.meta.url));
export const TOKENS = tokensOf(".....1.1.5..45.162..23....1.2.6.541.");

/**
 * Return the bytes of the weights of a saved model, as a fetch would, and its config.
 *
 * @param {string} folder
 */
export function filesOf(folder) {
  const bytes = new Uint8Array(readFileSync(`${folder}/model.safetensors`)).buffer;
  return { bytes, config: JSON.parse(readFileSync(`${folder}/config.json`, "utf8")) };
}

/**
 * Return the tokens of a board, with null for empty cells.
 *
 * @param {string} board
 */
export function tokensOf(board) {
  return Array.from(board, (sign) => (sign === "." ? null : Number(sign) - 1));
}
