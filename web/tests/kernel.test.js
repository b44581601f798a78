import assert from "node:assert/strict";
import { test } from "node:test";
import { bestKernel, plainKernel, wasmKernel } from "../../src/latent_tokens/page/js/kernel.js";

/**
 * Return the product that a kernel computes of two matrices of noise.
 *
 * @param {import("../../src/latent_tokens/page/js/kernel.js").Kernel} kernel
 * @param {[number, number, number]} shape
 */
function product(kernel, [rows, inner, columns]) {
  const [x, weights, out] = [rows * inner, inner * columns, rows * columns].map(kernel.allocate);
  x.forEach((_, i) => (x[i] = Math.sin(i)));
  weights.forEach((_, i) => (weights[i] = Math.cos(7 * i)));
  kernel.multiply(x, weights, out, rows, inner, columns);
  return Array.from(out);
}

test("kernels return the same bits, which are the product", () => {
  for (const shape of /** @type {[number, number, number][]} */ ([
    [4, 1, 8],
    [8, 3, 16],
    [36, 128, 24],
  ])) {
    const [rows, inner, columns] = shape;
    const out = product(wasmKernel(2 ** 14, 3), shape);
    assert.deepEqual(out, product(plainKernel(), shape));
    for (const [row, column] of [
      [0, 0],
      [rows - 1, columns - 1],
      [1, 5],
    ]) {
      let sum = 0;
      for (let k = 0; k < inner; k++) sum += Math.sin(row * inner + k) * Math.cos(7 * (k * columns + column));
      assert.ok(Math.abs(out[row * columns + column] - sum) < 1e-4);
    }
  }
});

test("the plain kernel takes over without WebAssembly", () => {
  const { Module } = WebAssembly;
  try {
    Object.assign(WebAssembly, { Module: undefined });
    assert.equal(bestKernel(8, 1).name, "plain");
  } finally {
    Object.assign(WebAssembly, { Module });
  }
  assert.equal(bestKernel(8, 1).name, "wasm");
});
