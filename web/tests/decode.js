/** Decode the requests of standard input, a list of {folder, name, request}, and print a result per line. */

import { readFileSync } from "node:fs";
import { decode } from "../../src/latent_tokens/page/js/trace.js";
import { loadModel } from "../../src/latent_tokens/page/js/model.js";

/** @type {Map<string, import("../../src/latent_tokens/page/js/model.js").Model>} */
const models = new Map();

/**
 * Return the model of a directory, loaded once.
 *
 * @param {string} folder
 * @param {string} name
 */
function modelOf(folder, name) {
  const bytes = new Uint8Array(readFileSync(`${folder}/model.safetensors`)).buffer;
  const config = JSON.parse(readFileSync(`${folder}/config.json`, "utf8"));
  const model = models.get(folder) ?? loadModel(bytes, config, name);
  models.set(folder, model);
  return model;
}

for (const { folder, name, request } of JSON.parse(readFileSync(0, "utf8"))) {
  let result;
  try {
    result = { trace: decode(modelOf(folder, name), request) };
  } catch (error) {
    result = { error: error instanceof Error ? error.message : String(error) };
  }
  console.log(JSON.stringify(result));
}
