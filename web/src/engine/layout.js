/** The input of one forward pass: the arrangement [clean | latents | candidates], as core/layout.py. */

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
