/** GELU, in the two forms that a model may have been trained with. They differ by at most 5e-4. */

const TANH_SCALE = 2 * Math.sqrt(2 / Math.PI);
const TANH_CUBIC = 0.044715;

/** @type {Record<"tanh" | "exact", (values: Float32Array, length: number) => void>} In place. */
export const gelu = {
  tanh(values, length) {
    for (let i = 0; i < length; i++) {
      const x = values[i];
      // (1 + tanh(u)) / 2 is the logistic function of 2u.
      values[i] = x / (1 + Math.exp(-TANH_SCALE * (x + TANH_CUBIC * x * x * x)));
    }
  },
  exact(values, length) {
    for (let i = 0; i < length; i++) {
      values[i] *= 0.5 * (1 + erf(values[i] * Math.SQRT1_2));
    }
  },
};

/**
 * Return the error function, to 1.5e-7 (Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26).
 *
 * @param {number} x
 */
export function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const polynomial =
    t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  const tail = polynomial * Math.exp(-x * x);
  return x < 0 ? tail - 1 : 1 - tail;
}
