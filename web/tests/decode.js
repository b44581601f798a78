/**
 * Decode the requests of standard input, a list of {folder, name, request}, and print a result per line. A
 * request with an answer is one of text.
 */

import { readFileSync } from "node:fs";
import { decode } from "../../src/latent_tokens/page/js/trace.js";
import { loadModel, loadNetwork } from "../../src/latent_tokens/page/js/model.js";
import { fill } from "../../src/latent_tokens/page/js/text.js";
import { filesOf } from "./files.js";

/** @type {Map<string, import("../../src/latent_tokens/page/js/model.js").Model>} */
const models = new Map();

for (const { folder, name, request } of JSON.parse(readFileSync(0, "utf8"))) {
  let result;
  try {
    const { bytes, config } = filesOf(folder);
    if (request.answer) {
      console.log(JSON.stringify({ steps: fill(loadNetwork(bytes, config), request) }));
      continue;
    }
    const model = models.get(folder) ?? loadModel(bytes, config, name);
    models.set(folder, model);
    result = { trace: decode(model, request) };
  } catch (error) {
    result = { error: error instanceof Error ? error.message : String(error) };
  }
  console.log(JSON.stringify(result));
}
