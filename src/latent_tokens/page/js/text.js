/** Text: the masked words of a sentence are decoded, and the author's words are scored in the same order. */

import { decodingFor } from "./decoding.js";
import { argmax, softmax } from "./probability.js";
import { maskedLogits, sample } from "./sampling.js";

/** @typedef {ReturnType<typeof import("./model.js").loadNetwork>} TextModel */
/**
 * @typedef {object} FillRequest
 * @property {(number | null)[]} tokens of the sentence, null if masked
 * @property {number[]} answer the author's tokens
 * @property {number | "all"} latents
 * @property {number} seed of the order
 */
/**
 * @typedef {object} FilledStep
 * @property {number} position that is decoded
 * @property {number} token
 * @property {[number, number][]} guesses the latent tokens: a position and its most likely token
 * @property {number} processed tokens, in this step and those before
 * @property {number} nats of the author's tokens, in this step and those before
 */

/**
 * Decode the masked tokens of a sentence, one per step in a random order that n does not change.
 *
 * @param {TextModel} model
 * @param {FillRequest} request
 * @returns {FilledStep[]}
 */
export function fill({ net, method }, { tokens, answer, latents, seed }) {
  const decoding = decodingFor(method, { latents, order: "uniform", seed, refresh: false });
  const correct = tokens.map((token) => token ?? net.maskId); // decoded are the author's tokens
  let processed = 0;
  let nats = 0;
  return Array.from(sample(net, method, tokens, decoding), ({ layout, probabilities, position, token }) => {
    const { positions, numClean, numLatents } = layout;
    processed += positions.length;
    const scored = softmax(maskedLogits(net, method, correct, layout)[numLatents]);
    nats -= Math.log(scored[answer[position]]);
    correct[position] = answer[position];
    const latentPositions = positions.slice(numClean, numClean + numLatents);
    const guesses = latentPositions.map((latent, slot) => [latent, argmax(probabilities[slot])]);
    return { position, token, guesses: /** @type {[number, number][]} */ (guesses), processed, nats };
  });
}
