/** Print the median processor time of a decoding step, for the bundled models and both kernels. */

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { plainKernel, wasmKernel } from "../src/latent_tokens/page/js/kernel.js";
import { loadModel } from "../src/latent_tokens/page/js/model.js";
import { events } from "../src/latent_tokens/page/js/trace.js";

const BUNDLED = fileURLToPath(new URL("../src/latent_tokens/bundled/", import.meta.url));
const STEPS = 200;
const WARM_UP = 20; // steps until the code is compiled

/**
 * Return the milliseconds of each step of empty boards, with all masked tokens in the input.
 *
 * @param {import("../src/latent_tokens/page/js/model.js").Model} model
 */
function measure(model) {
  const tokens = new Array(model.board.side ** 2).fill(null);
  const times = [];
  for (let seed = 0; times.length < WARM_UP + STEPS; seed++) {
    let last = processorTime();
    for (const [kind] of events(model, { tokens, candidates: 8, latents: "all", seed })) {
      const now = processorTime();
      if (kind === "frame") times.push(now - last);
      last = now;
    }
  }
  return times.slice(WARM_UP, WARM_UP + STEPS);
}

/** The processor time of this process in milliseconds. Unlike wall time, it does not depend on other work. */
const processorTime = () => process.cpuUsage().user / 1000;

/** @param {number[]} values */
const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

for (const name of ["sudoku-6-scdm", "sudoku-9-scdm"]) {
  const bytes = new Uint8Array(readFileSync(`${BUNDLED}${name}/model.safetensors`)).buffer;
  const config = JSON.parse(readFileSync(`${BUNDLED}${name}/config.json`, "utf8"));
  for (const makeKernel of [wasmKernel, plainKernel]) {
    const model = loadModel(bytes, config, name, makeKernel);
    const milliseconds = median(measure(model)).toFixed(1);
    console.log(`${name} ${model.net.kernel.name}: ${milliseconds} ms per step, median of ${STEPS}`);
  }
}
