/** The rotary position embedding, half-split: a pair of channels is rotated by an angle of its position. */

/** @typedef {{ half: number, cos: Float32Array, sin: Float32Array }} RotaryTable (positions, half) */

const ROTARY_BASE = 10_000; // D-1, transformer architecture

/**
 * Return cosine and sine of the angles of positions 0..length-1.
 *
 * @param {number} length
 * @param {number} half half the channels of a head
 * @returns {RotaryTable}
 */
export function rotaryTable(length, half) {
  const angles = Array.from({ length: length * half }, (_, i) => {
    const frequency = Math.fround(ROTARY_BASE ** (-(i % half) / half));
    return Math.fround(Math.floor(i / half) * frequency);
  });
  return { half, cos: Float32Array.from(angles, Math.cos), sin: Float32Array.from(angles, Math.sin) };
}

/**
 * Rotate the channels of one head of one slot in place.
 *
 * @param {Float32Array} channels
 * @param {number} first the index of the first channel
 * @param {number} position
 * @param {RotaryTable} table
 */
export function applyRotary(channels, first, position, { half, cos, sin }) {
  for (let i = 0; i < half; i++) {
    const angle = position * half + i;
    const a = channels[first + i];
    const b = channels[first + half + i];
    channels[first + i] = a * cos[angle] - b * sin[angle];
    channels[first + half + i] = a * sin[angle] + b * cos[angle];
  }
}
