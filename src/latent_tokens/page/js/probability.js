/** Probabilities: softmax, the confidence of a prediction, nucleus sampling and sampling by inverse CDF. */

/** @typedef {(probabilities: number[]) => number} Confidence larger means decoded earlier */

/**
 * Return the softmax of logits, in float64.
 *
 * @param {ArrayLike<number>} logits
 * @returns {number[]}
 */
export function softmax(logits) {
  const values = Array.from(logits);
  const largest = Math.max(...values);
  const exponentials = values.map((value) => Math.exp(value - largest));
  const total = sum(exponentials);
  return exponentials.map((value) => value / total);
}

/** @type {Record<string, Confidence>} The confidence of each adaptive order, as core/decoding.py. */
export const CONFIDENCES = {
  top_prob: (probabilities) => Math.max(...probabilities),
  margin: (probabilities) => {
    const [first, second] = [...probabilities].sort((a, b) => b - a);
    return first - second;
  },
  entropy: (probabilities) => sum(probabilities.map((p) => (p === 0 ? 0 : p * Math.log(p)))),
};

/**
 * Return the index of the largest value, the first of equal ones.
 *
 * @param {ArrayLike<number>} values
 */
export function argmax(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

// Confidences and logits that differ by less than rounding are equal (D-43, ties), as in core/sampling.py.
const TOLERANCE = 1e-5;
const SMALLEST = 0.1;

/**
 * Return the index of the most confident candidate, of equal ones the first.
 *
 * @param {number[][]} candidates the probabilities of each
 * @param {Confidence} confidence
 */
export function mostConfident(candidates, confidence) {
  const confidences = candidates.map(confidence);
  const largest = Math.max(...confidences);
  // A margin is rounded as the probabilities that it is a difference of.
  const size = confidence === CONFIDENCES.margin ? Math.max(...candidates.flat()) : Math.abs(largest);
  return confidences.findIndex((c) => c >= largest - TOLERANCE * Math.max(size, SMALLEST));
}

/**
 * Return the index of the smallest probability, of equal ones the first.
 *
 * @param {number[]} probabilities
 */
export function leastProbable(probabilities) {
  const least = Math.min(...probabilities);
  return probabilities.findIndex((p) => p <= least + TOLERANCE * Math.max(least, SMALLEST));
}

/**
 * Sample a token by inverse CDF, at temperature 0 the argmax (D-18, token sampling).
 *
 * @param {ArrayLike<number>} logits
 * @param {{ temperature: number, top_p: number }} settings
 * @param {number} noise in [0, 1)
 */
export function sampleToken(logits, { temperature, top_p }, noise) {
  const largest = logits[argmax(logits)];
  if (temperature === 0) return Array.from(logits).findIndex((logit) => logit >= largest - TOLERANCE);
  const scaled = temperature === 1 ? logits : Array.from(logits, (logit) => (logit - largest) / temperature);
  const probabilities = top_p < 1 ? nucleus(softmax(scaled), top_p) : softmax(scaled);
  const cdf = cumulative(probabilities);
  return cdf.filter((value) => value / cdf[cdf.length - 1] <= noise).length;
}

/**
 * Return the probabilities of the smallest set of tokens with at least topP of them, 0 for all others.
 *
 * Of equally probable tokens those of smaller id come first.
 *
 * @param {number[]} probabilities
 * @param {number} topP
 */
export function nucleus(probabilities, topP) {
  const ranked = [...probabilities.keys()].sort((a, b) => probabilities[b] - probabilities[a]);
  const before = cumulative(ranked.map((token) => probabilities[token]));
  const inside = new Set(ranked.filter((token, rank) => before[rank] - probabilities[token] < topP));
  return probabilities.map((p, token) => (inside.has(token) ? p : 0));
}

/** @param {number[]} values */
function cumulative(values) {
  let total = 0;
  return values.map((value) => (total += value));
}

/** @param {number[]} values */
const sum = (values) => values.reduce((total, value) => total + value, 0);
