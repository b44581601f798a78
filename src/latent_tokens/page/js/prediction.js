/** One prediction of a frozen board: the cells in the input are chosen, and nothing is decoded. */

import { latentControl, maxVisible, nameOf } from "./methods.js";
import { maskedLogits } from "./sampling.js";
import { softmax } from "./probability.js";
import { checkTokens, mostLikely } from "./trace.js";

/** @typedef {import("./model.js").Model} Model */
/**
 * @typedef {object} PredictionRequest
 * @property {(number | null)[]} tokens the clean token of each cell, null if masked
 * @property {number[]} candidates masked cells
 * @property {number[] | null} [latents] other masked cells; null is the method's own
 * @property {import("./attention.js").RuleName} [rule] attention with another rule than in training
 */
/**
 * @typedef {object} Prediction
 * @property {number[]} candidates
 * @property {number[]} latents
 * @property {Record<string, import("./trace.js").Beliefs>} beliefs of the latent and candidate cells
 * @property {Record<string, number[]>} attention per latent and candidate cell, how much it attends to each
 *   cell, the mean over heads and layers
 */

/**
 * Predict some cells of a board once.
 *
 * @param {Model} model
 * @param {PredictionRequest} request
 * @returns {Prediction}
 * @throws {Error} a cell is not masked or named twice, or the method does not support these latent tokens.
 */
export function predict(model, { tokens, candidates, latents = null, rule }) {
  checkTokens(model, tokens);
  const masked = tokens.flatMap((token, cell) => (token === null ? [cell] : []));
  const others = masked.filter((cell) => !candidates.includes(cell));
  const isFixed = latentControl(model.method) === "fixed";
  const numFixed = isFixed ? maxVisible(model.method, masked.length) - candidates.length : 0;
  const latentCells = latents ?? others.slice(0, numFixed);
  checkCells(model, masked, candidates, latentCells);
  checkLatents(model, latentCells.length, numFixed);

  // Arrange [clean | latents | candidates] and compute one pass.
  const clean = tokens.flatMap((token, cell) => (token === null ? [] : [cell]));
  const positions = [...clean, ...latentCells, ...candidates];
  const layout = { positions, numClean: clean.length, numLatents: latentCells.length };
  const weights = positions.map(() => new Float32Array(positions.length));
  const ids = tokens.map((token) => token ?? model.net.maskId);
  const probabilities = maskedLogits(model.net, model.method, ids, layout, weights, rule).map(softmax);

  const shown = positions.slice(clean.length);
  const byCell = weights.slice(clean.length).map((row) => spread(row, positions, tokens.length));
  return {
    candidates,
    latents: latentCells,
    beliefs: Object.fromEntries(
      shown.map((cell, i) => [cell, mostLikely(probabilities[i], model.board.side)]),
    ),
    attention: Object.fromEntries(shown.map((cell, i) => [cell, byCell[i]])),
  };
}

/**
 * Return the values of slots by cell, 0 for a cell that is not in the input.
 *
 * @param {Float32Array} values
 * @param {number[]} positions
 * @param {number} numCells
 */
function spread(values, positions, numCells) {
  const byCell = new Array(numCells).fill(0);
  positions.forEach((cell, slot) => {
    byCell[cell] = values[slot];
  });
  return byCell;
}

/**
 * @param {Model} model
 * @param {number[]} masked
 * @param {number[]} candidates
 * @param {number[]} latents
 */
function checkCells({ method }, masked, candidates, latents) {
  const cells = [...latents, ...candidates];
  const wrong = cells.find((cell, i) => !masked.includes(cell) || cells.indexOf(cell) !== i);
  if (wrong !== undefined) throw new Error(`cell=${wrong}: must be an empty cell, named once`);
  if (!candidates.length) throw new Error("candidates=: must name at least one cell");
  if (method.readout === "shifted" && candidates.join() !== `${masked[0]}`) {
    throw new Error(
      `candidates=${candidates}: ${nameOf(method)} predicts the first empty cell only. Use ${masked[0]}.`,
    );
  }
}

/**
 * @param {Model} model
 * @param {number} numLatents
 * @param {number} fixed the number of latent tokens of a method that does not let it be set
 */
function checkLatents({ method }, numLatents, fixed) {
  if (latentControl(method) === "free" || numLatents === fixed) return;
  const reason = fixed ? "all empty cells are in its input" : "it has no latent tokens";
  throw new Error(
    `latents=${numLatents} is not supported by ${nameOf(method)}: ${reason}. Use a scdm or esolm model.`,
  );
}
