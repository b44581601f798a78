import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { decode } from "../../src/latent_tokens/page/js/trace.js";
import { loadModel } from "../../src/latent_tokens/page/js/model.js";
import { predict } from "../../src/latent_tokens/page/js/prediction.js";

/** @typedef {import("../../src/latent_tokens/page/js/prediction.js").PredictionRequest} Request */

const BUNDLED = new URL("../../src/latent_tokens/bundled/", import.meta.url);
const TOKENS = Array.from(".....1.1.5..45.162..23....1.2.6.541.", (sign) =>
  sign === "." ? null : Number(sign) - 1,
);

/** @param {string} name */
function bundled(name) {
  const read = (/** @type {string} */ file) => readFileSync(new URL(`${name}/${file}`, BUNDLED));
  return loadModel(
    new Uint8Array(read("model.safetensors")).buffer,
    JSON.parse(read("config.json").toString()),
    name,
  );
}

test("a prediction of the cells of a step is the step's", () => {
  const model = bundled("sudoku-6-scdm");
  const [frame] = decode(model, { tokens: TOKENS, latents: 4, candidates: 3 }).frames;
  const prediction = predict(model, { tokens: TOKENS, ...frame });
  assert.deepEqual(prediction.beliefs, frame.beliefs);
});

test("attention of a prediction follows the rule and sums to 1", () => {
  const { attention } = predict(bundled("sudoku-6-scdm"), {
    tokens: TOKENS,
    candidates: [0, 1],
    latents: [2, 8],
  });
  const clean = TOKENS.flatMap((token, cell) => (token === null ? [] : [cell]));
  const order = [2, 8, 0, 1];
  for (const [cell, row] of Object.entries(attention)) {
    const expected = [...clean, ...order.slice(0, order.indexOf(Number(cell)) + 1)].sort((a, b) => a - b);
    assert.deepEqual(
      row.flatMap((weight, other) => (weight ? [other] : [])),
      expected,
    );
    assert.ok(Math.abs(row.reduce((a, b) => a + b) - 1) < 1e-6);
  }
  assert.equal(Object.keys(attention).length, 4);
});

test("a prediction refuses what the method does not support", () => {
  const cases = /** @type {[string, object, RegExp][]} */ ([
    ["sudoku-6-scdm", { candidates: [5] }, /^cell=5: must be an empty cell/],
    ["sudoku-6-scdm", { candidates: [0], latents: [0] }, /^cell=0: must be an empty cell/],
    ["sudoku-6-sidm", { candidates: [0], latents: [1] }, /^latents=1 is not supported by sidm/],
    ["sudoku-6-mdm", { candidates: [0], latents: [1] }, /^latents=1 is not supported by mdm/],
  ]);
  for (const [name, cells, message] of cases) {
    const request = /** @type {Request} */ ({
      tokens: TOKENS,
      ...cells,
    });
    assert.throws(() => predict(bundled(name), request), { message });
  }
  assert.equal(predict(bundled("sudoku-6-mdm"), { tokens: TOKENS, candidates: [0] }).latents.length, 19);
});
