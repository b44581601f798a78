/** The four attention rules, as core/attention.py: (query slot, key slot, clean slots) -> boolean. */

/** @typedef {(query: number, key: number, numClean: number) => boolean} Rule */
/** @typedef {"bidirectional" | "independent" | "semi_causal" | "causal"} RuleName */

/** @type {Record<RuleName, Rule>} */
export const RULES = {
  bidirectional: () => true,
  independent: (query, key, numClean) => key < numClean || key === query, // equation 1
  semi_causal: (query, key, numClean) => key < numClean || key <= query, // equation 2
  causal: (query, key) => key <= query,
};

/**
 * Return whether a masked slot attends to a masked one after it.
 *
 * @param {Rule} rule
 */
export const attendsLater = (rule) => rule(0, 1, 0);

/**
 * Return whether a masked slot attends to a masked one before it.
 *
 * @param {Rule} rule
 */
export const attendsEarlier = (rule) => rule(1, 0, 0);

/**
 * Return the slots that each slot attends to.
 *
 * @param {Rule} rule
 * @param {number} numSlots
 * @param {number} numClean
 * @returns {Int32Array[]}
 */
export function visibleSlots(rule, numSlots, numClean) {
  const slots = Array.from({ length: numSlots }, (_, slot) => slot);
  return slots.map((query) => Int32Array.from(slots.filter((key) => rule(query, key, numClean))));
}
