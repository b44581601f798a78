import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { loadModel } from "../../src/latent_tokens/page/js/model.js";

const FOLDER = new URL("../../src/latent_tokens/bundled/sudoku-6-scdm/", import.meta.url);
const BYTES = new Uint8Array(readFileSync(new URL("model.safetensors", FOLDER))).buffer;
const CONFIG = JSON.parse(readFileSync(new URL("config.json", FOLDER), "utf8"));

test("a model that the engine cannot run is refused in one line", () => {
  const cases = /** @type {[object, RegExp][]} */ ([
    [{ model: { network: "own", class: "Mine" } }, /^config\.json: has no transformer/],
    [
      { model: { ...CONFIG.model, size: { width: 12, heads: 2, layers: 1 } } },
      /^width=12: must be a multiple/,
    ],
    [
      { model: { ...CONFIG.model, max_length: 49 } },
      /place\.weight is \(36, 128\), and \(49, 128\) by its config/,
    ],
    [
      { model: { ...CONFIG.model, size: { width: 128, heads: 4, layers: 5 } } },
      /blocks\.4\.\S+ is \(missing\)/,
    ],
    [{ task: { name: "text8" } }, /^task=text8: is not supported in the browser/],
  ]);
  for (const [changes, message] of cases) {
    assert.throws(() => loadModel(BYTES, { ...CONFIG, ...changes }), { message });
  }
  assert.equal(loadModel(BYTES, CONFIG).name, "sudoku-6");
});
