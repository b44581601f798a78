/** Sampling: one loop for every method, order and number of candidates and latents (Algorithms 1 to 5). */

import { RULES, visibleSlots } from "./attention.js";
import { numCandidatesAndLatents } from "./decoding.js";
import { demote, leftToRight, nextLayout, promote, shuffle } from "./layout.js";
import { inputIds } from "./methods.js";
import { argmax, CONFIDENCES, leastProbable, mostConfident, sampleToken, softmax } from "./probability.js";
import { perSampleRng } from "./rng.js";
import { forward } from "./transformer.js";

/** @typedef {import("./network.js").Network} Network */
/** @typedef {import("./methods.js").Method} Method */
/** @typedef {import("./decoding.js").Decoding} Decoding */
/** @typedef {import("./layout.js").Layout} Layout */
/**
 * @typedef {object} Step
 * @property {number} number
 * @property {Layout} layout
 * @property {number[][]} probabilities of each masked slot of the layout, before temperature and top-p
 * @property {number} position the decoded position
 * @property {number} token the decoded token
 */

/**
 * Decode the masked positions of a sequence, one per step, and yield the steps (Algorithm 5 with refresh).
 * With remasking, the token decoded least surely is masked again now and then, within twice the steps.
 *
 * @param {Network} net
 * @param {Method} method
 * @param {(number | null)[]} given the token of each position, null if masked
 * @param {Decoding} decoding
 * @returns {Generator<Step, void>}
 */
export function* sample(net, method, given, decoding) {
  const uniform = perSampleRng(decoding.seed, decoding.row);
  const isRandom = decoding.order !== "left_to_right"; // adaptive orders follow a random schedule
  const confidence = CONFIDENCES[decoding.order] ?? CONFIDENCES.top_prob;
  const tokens = given.map((token) => token ?? net.maskId);
  let order = leftToRight(given.map((token) => token !== null));
  const numGiven = given.filter((token) => token !== null).length;
  const sureness = tokens.map(() => 1); // by position: the probability of its token when it was decoded
  let numClean = numGiven;
  const reshuffle = () => {
    if (isRandom) order = shuffle(order, numClean, Array.from({ length: order.length - numClean }, uniform));
  };

  reshuffle();
  for (let number = 0; numClean < tokens.length; number++) {
    // Lines 6-10: arrange [clean | latents | candidates], predict the masked tokens.
    const numMasked = tokens.length - numClean;
    const { k, n } = numCandidatesAndLatents(method, decoding, numClean, numMasked);
    const layout = nextLayout(order, numClean, k, n);
    const logits = maskedLogits(net, method, tokens, layout);
    const probabilities = logits.map(softmax);

    // Line 11: choose the most confident candidate, sample its token.
    const pick = mostConfident(probabilities.slice(n), confidence);
    const token = sampleToken(logits[n + pick], decoding, uniform());

    // Algorithm 4, line 10: promote it to clean; then reshuffle what is masked.
    const entry = numClean + pick;
    const position = order[entry];
    tokens[position] = token;
    order = promote(order, numClean, entry);
    numClean += 1;
    sureness[position] = probabilities[n + pick][token];
    if (decoding.refresh) reshuffle();
    yield { number, layout, probabilities, position, token };

    // Remasking: the token that was decoded least surely is decoded once more. As this happens at most
    // every second step, the budget of the package, twice the steps, never ends it.
    const taken = number + 1;
    if (decoding.remaskEvery !== null && taken % decoding.remaskEvery === 0) {
      const decoded = order.slice(numGiven, numClean);
      const least = leastProbable(decoded.map((place) => sureness[place]));
      tokens[decoded[least]] = net.maskId;
      order = demote(order, numClean, numGiven + least);
      numClean -= 1;
      if (decoding.refresh) reshuffle();
    }
  }
}

/**
 * Return the logits of the masked slots of a layout, with MASK excluded (D-2, MASK token).
 *
 * @param {Network} net
 * @param {Method} method
 * @param {number[]} tokens by position; MASK where masked
 * @param {Layout} layout
 * @param {Float32Array[]} [attention] as `forward` takes it
 * @param {import("./attention.js").RuleName} [rule] another than that of the method
 */
export function maskedLogits(net, method, tokens, layout, attention, rule = method.attention) {
  const { positions, numClean } = layout;
  const ids = inputIds(method, tokens, layout, net.maskId);
  const visible = visibleSlots(RULES[rule], positions.length, numClean);
  const logits = forward(net, { ids, positions, visible }, attention).slice(numClean);
  for (const values of logits) values[net.maskId] = -Infinity;
  if (!logits.every((values) => Number.isFinite(values[argmax(values)]))) {
    throw new Error("the net's logits are not finite: its weights have diverged, or are corrupt");
  }
  return logits;
}
