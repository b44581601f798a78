/** Decoding orders and the input of one forward pass, as core/order.py and core/layout.py. */

/**
 * @typedef {object} Layout
 * @property {number[]} positions the position in the sequence that each slot has
 * @property {number} numClean slots [0, numClean) have their token
 * @property {number} numLatents the next slots are latent tokens, the others candidates
 */

/**
 * Arrange the input of a step: [clean | latents | candidates] (Algorithm 5, lines 6-9).
 *
 * @param {number[]} order
 * @param {number} numClean
 * @param {number} candidates how many of the next masked tokens of the order are candidates
 * @param {number} latents how many of the masked tokens after these are latent tokens
 * @returns {Layout}
 */
export function nextLayout(order, numClean, candidates, latents) {
  const firstLatent = numClean + candidates;
  const positions = [
    ...order.slice(0, numClean),
    ...order.slice(firstLatent, firstLatent + latents),
    ...order.slice(numClean, firstLatent),
  ];
  return { positions, numClean, numLatents: latents };
}

/**
 * Return the given positions, then the others, both ascending.
 *
 * @param {boolean[]} known
 * @returns {number[]}
 */
export function leftToRight(known) {
  const positions = [...known.keys()];
  return [...positions.filter((i) => known[i]), ...positions.filter((i) => !known[i])];
}

/**
 * Return an order with its entries from index `start` on sorted by the noise.
 *
 * @param {number[]} order
 * @param {number} start
 * @param {number[]} noise one number per entry from `start` on
 */
export function shuffle(order, start, noise) {
  const masked = order.slice(start);
  const ranked = [...masked.keys()].sort((a, b) => noise[a] - noise[b]);
  return [...order.slice(0, start), ...ranked.map((i) => masked[i])];
}

/**
 * Return an order with a chosen entry moved to index numClean (Algorithm 4, line 10).
 *
 * @param {number[]} order
 * @param {number} numClean
 * @param {number} entry index in the order
 */
export function promote(order, numClean, entry) {
  const clean = order.slice(0, numClean);
  return [...clean, order[entry], ...order.slice(numClean).filter((_, i) => numClean + i !== entry)];
}

/**
 * Return an order with a clean entry moved behind the other clean ones, the inverse of `promote`.
 *
 * @param {number[]} order
 * @param {number} numClean
 * @param {number} entry index in the order
 */
export function demote(order, numClean, entry) {
  const clean = order.slice(0, numClean).filter((_, i) => i !== entry);
  return [...clean, order[entry], ...order.slice(numClean)];
}
