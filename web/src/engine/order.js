/** Decoding orders, as core/order.py: permutations of the positions, clean ones first, as decoded. */

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
