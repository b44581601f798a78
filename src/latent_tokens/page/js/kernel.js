/** The matrix product in float32: a WASM SIMD kernel, and a plain one that returns the same bits. */

import { MATMUL } from "./matmul.js";

/**
 * @typedef {object} Kernel
 * @property {"wasm" | "plain"} name
 * @property {(length: number) => Float32Array} allocate return an array of zeros that `multiply` takes
 * @property {Multiply} multiply
 */
/**
 * Write x . weights to `out`. All matrices are row by row.
 *
 * @callback Multiply
 * @param {Float32Array} x (rows, inner)
 * @param {Float32Array} weights (inner, columns)
 * @param {Float32Array} out (rows, columns)
 * @param {number} rows a multiple of ROWS
 * @param {number} inner
 * @param {number} columns a multiple of COLUMNS
 * @returns {void}
 */

export const ROWS = 4; // rows that the kernel computes at a time
export const COLUMNS = 8;
const ALIGNMENT = 16; // bytes
const PAGE_BYTES = 65536; // of WASM memory

/**
 * Return the smallest multiple of a unit that is at least a number.
 *
 * @param {number} number
 * @param {number} unit
 */
export const roundUp = (number, unit) => unit * Math.ceil(number / unit);

/**
 * Return the WASM kernel, or the plain one if the browser has no SIMD or its policy forbids WASM.
 *
 * @param {number} numFloats the sum of all lengths that will be allocated
 * @param {number} numArrays how many arrays will be allocated
 * @returns {Kernel}
 */
export function bestKernel(numFloats, numArrays) {
  try {
    return wasmKernel(numFloats, numArrays);
  } catch {
    return plainKernel();
  }
}

/**
 * Return the kernel in WASM. Its arrays lie in a memory of fixed size.
 *
 * @param {number} numFloats
 * @param {number} numArrays
 * @returns {Kernel}
 */
export function wasmKernel(numFloats, numArrays) {
  const bytes = Uint8Array.from(atob(MATMUL), (character) => character.charCodeAt(0));
  const numBytes = Float32Array.BYTES_PER_ELEMENT * numFloats + ALIGNMENT * numArrays;
  const memory = new WebAssembly.Memory({ initial: Math.ceil(numBytes / PAGE_BYTES) });
  const instance = new WebAssembly.Instance(new WebAssembly.Module(bytes), { engine: { memory } });
  const matmul = /** @type {(...numbers: number[]) => void} */ (instance.exports.matmul);
  let end = 0;
  return {
    name: "wasm",
    allocate: (length) => {
      const array = new Float32Array(memory.buffer, end, length);
      end = roundUp(end + array.byteLength, ALIGNMENT);
      return array;
    },
    multiply: (x, weights, out, rows, inner, columns) =>
      matmul(x.byteOffset, weights.byteOffset, out.byteOffset, rows, inner, columns),
  };
}

/**
 * Return the kernel in JavaScript.
 *
 * @returns {Kernel}
 */
export function plainKernel() {
  return { name: "plain", allocate: (length) => new Float32Array(length), multiply: plainMultiply };
}

/** @type {Multiply} Four columns at a time. Every product and every sum is rounded to float32, as in WASM. */
function plainMultiply(x, weights, out, rows, inner, columns) {
  const { fround } = Math;
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column += 4) {
      let sum0 = fround(0);
      let sum1 = fround(0);
      let sum2 = fround(0);
      let sum3 = fround(0);
      for (let k = 0; k < inner; k++) {
        const value = x[row * inner + k];
        const first = k * columns + column;
        sum0 = fround(sum0 + fround(value * weights[first]));
        sum1 = fround(sum1 + fround(value * weights[first + 1]));
        sum2 = fround(sum2 + fround(value * weights[first + 2]));
        sum3 = fround(sum3 + fround(value * weights[first + 3]));
      }
      out.set([sum0, sum1, sum2, sum3], row * columns + column);
    }
  }
}
