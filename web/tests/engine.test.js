import assert from "node:assert/strict";
import { test } from "node:test";
import { connect } from "../../src/latent_tokens/page/js/client.js";
import { bestKernel, plainKernel, wasmKernel } from "../../src/latent_tokens/page/js/kernel.js";
import { loadModel } from "../../src/latent_tokens/page/js/model.js";
import { predict } from "../../src/latent_tokens/page/js/prediction.js";
import { perSampleRng } from "../../src/latent_tokens/page/js/rng.js";
import { decode } from "../../src/latent_tokens/page/js/trace.js";
import { answering } from "../../src/latent_tokens/page/js/worker.js";
import { BUNDLED, TOKENS, filesOf, tokensOf } from "./files.js";

/** @typedef {import("../../src/latent_tokens/page/js/prediction.js").PredictionRequest} Request */

const { config: CONFIG } = filesOf(`${BUNDLED}sudoku-6-scdm`);
const REQUEST = { tokens: tokensOf(`123456456123${".".repeat(24)}`), latents: 2, candidates: 2 };

/**
 * Return a bundled model.
 *
 * @param {string} folder
 */
function bundled(folder, name = folder) {
  const { bytes, config } = filesOf(BUNDLED + folder);
  return loadModel(bytes, config, name);
}

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
  const shapes = /** @type {[number, number, number][]} */ ([
    [4, 1, 8],
    [8, 3, 16],
    [36, 128, 24],
  ]);
  for (const shape of shapes) {
    const [rows, inner, columns] = shape;
    const out = product(wasmKernel(2 ** 14, 3), shape);
    assert.deepEqual(out, product(plainKernel(), shape));
    out.forEach((value, at) => {
      const [row, column] = [Math.floor(at / columns), at % columns];
      let sum = 0;
      for (let k = 0; k < inner; k++) sum += Math.sin(row * inner + k) * Math.cos(7 * (k * columns + column));
      assert.ok(Math.abs(value - sum) < 1e-4);
    });
    assert.equal(out.length, rows * columns);
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

// python -c "import numpy as np; print(np.random.default_rng((SEED, ROW)).random(3).tolist())"
const DRAWS = /** @type {[number, number, number[]][]} */ ([
  [0, 0, [0.6369616873214543, 0.2697867137638703, 0.04097352393619469]],
  [1, 7, [0.3596767659247476, 0.6165463657853983, 0.6447812664683817]],
  [4294967301, 3, [0.33029505204248966, 0.7324629634337174, 0.8783024596153973]],
  [9007199254740991, 1099511627776, [0.5669432522696594, 0.10385946608160168, 0.6270773872586928]],
]);

test("the per-sample RNG draws numpy's numbers", () => {
  for (const [seed, row, numbers] of DRAWS) {
    assert.deepEqual(numbers.map(perSampleRng(seed, row)), numbers);
  }
});

test("a model that the engine cannot run is refused in one line", () => {
  const { bytes } = filesOf(`${BUNDLED}sudoku-6-scdm`);
  const changed = (/** @type {object} */ changes) => ({ model: { ...CONFIG.model, ...changes } });
  const cases = /** @type {[object, RegExp][]} */ ([
    [{ model: { network: "own", class: "Mine" } }, /^config\.json: has no transformer/],
    [changed({ size: { width: 12, heads: 2, layers: 1 } }), /^width=12: must be a multiple/],
    [changed({ max_length: 49 }), /place\.weight is \(36, 128\), and \(49, 128\) by its config/],
    [changed({ size: { width: 128, heads: 4, layers: 5 } }), /blocks\.4\.\S+ is \(missing\)/],
    [{ task: { name: "text8" } }, /^task=text8: is not supported in the browser/],
  ]);
  for (const [changes, message] of cases) {
    assert.throws(() => loadModel(bytes, { ...CONFIG, ...changes }), { message });
  }
  assert.equal(loadModel(bytes, CONFIG).name, "sudoku-6");
});

test("a prediction of the cells of a step is the step's", () => {
  const model = bundled("sudoku-6-scdm");
  const [frame] = decode(model, { tokens: TOKENS, latents: 4, candidates: 3 }).frames;
  assert.deepEqual(predict(model, { tokens: TOKENS, ...frame }).beliefs, frame.beliefs);
});

test("attention of a prediction follows the rule and sums to 1", () => {
  const cells = { candidates: [0, 1], latents: [2, 8] };
  const { attention } = predict(bundled("sudoku-6-scdm"), { tokens: TOKENS, ...cells });
  const clean = TOKENS.flatMap((token, cell) => (token === null ? [] : [cell]));
  const order = [2, 8, 0, 1];
  assert.deepEqual(Object.keys(attention).map(Number).sort(), [...order].sort());
  for (const [cell, row] of Object.entries(attention)) {
    const expected = [...clean, ...order.slice(0, order.indexOf(Number(cell)) + 1)].sort((a, b) => a - b);
    const attended = row.flatMap((weight, other) => (weight ? [other] : []));
    assert.deepEqual(attended, expected);
    assert.ok(Math.abs(row.reduce((a, b) => a + b) - 1) < 1e-6);
  }
});

test("a prediction refuses what the method does not support", () => {
  const cases = /** @type {[string, object, RegExp][]} */ ([
    ["sudoku-6-scdm", { candidates: [5] }, /^cell=5: must be an empty cell/],
    ["sudoku-6-scdm", { candidates: [0], latents: [0] }, /^cell=0: must be an empty cell/],
    ["sudoku-6-sidm", { candidates: [0], latents: [1] }, /^latents=1 is not supported by sidm/],
    ["sudoku-6-mdm", { candidates: [0], latents: [1] }, /^latents=1 is not supported by mdm/],
  ]);
  for (const [name, cells, message] of cases) {
    const request = /** @type {Request} */ ({ tokens: TOKENS, ...cells });
    assert.throws(() => predict(bundled(name), request), { message });
  }
  assert.equal(predict(bundled("sudoku-6-mdm"), { tokens: TOKENS, candidates: [0] }).latents.length, 19);
});

/** Return a client whose worker is on the same thread, and has loaded the model. */
async function loadedClient() {
  /** @type {import("../../src/latent_tokens/page/js/client.js").Port} */
  const port = {
    onmessage: null,
    onerror: null,
    postMessage: (message) => void answer(message),
    terminate() {},
  };
  const answer = answering((data) =>
    port.onmessage?.call(/** @type {any} */ (port), new MessageEvent("message", { data })),
  );
  const client = connect(port);
  const { bytes, config } = filesOf(`${BUNDLED}sudoku-6-scdm`);
  await client.load("six", bytes, config);
  return client;
}

test("a client returns the trace of a direct decode", async () => {
  const client = await loadedClient();
  /** @type {string[]} */
  const types = [];
  const trace = await client.decode("six", REQUEST, { onEvent: ([type]) => types.push(type) });
  const direct = decode(bundled("sudoku-6-scdm", "six"), REQUEST);
  assert.deepEqual({ ...trace.end, seconds: 0 }, { ...direct.end, seconds: 0 });
  assert.deepEqual([trace.start, trace.frames], [direct.start, direct.frames]);
  assert.deepEqual(types, ["start", ...trace.frames.map(() => "frame"), "end"]);
});

test("an aborted decode ends between two steps", async () => {
  const client = await loadedClient();
  const control = new AbortController();
  let frames = 0;
  const onEvent = () => ++frames === 3 && control.abort();
  await assert.rejects(client.decode("six", REQUEST, { onEvent, signal: control.signal }), {
    name: "AbortError",
  });
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(frames, 3);
  assert.equal((await client.decode("six", REQUEST)).frames.length, 24);
});

test("a mistake in a request rejects with its line", async () => {
  const client = await loadedClient();
  await assert.rejects(client.decode("nine", REQUEST), {
    message: "model=nine: is not loaded. Send load first.",
  });
  await assert.rejects(client.decode("six", { ...REQUEST, latents: -1 }), {
    message: /^latents=-1: must be a whole/,
  });
});
