/** The engine's interface, as web/README.md describes it. In a worker, it answers messages. */

import { connect } from "./client.js";
import { answering } from "./worker.js";

export { loadModel } from "./model.js";
export { predict } from "./prediction.js";
export { decode, events } from "./trace.js";
export { bestKernel, plainKernel, wasmKernel } from "./kernel.js";
export { connect };

const script =
  "document" in globalThis ? /** @type {HTMLScriptElement | null} */ (document.currentScript) : null;

/**
 * Start the engine in a worker and return its client.
 *
 * The worker runs the text of the script that defines the engine, so the page needs no second file.
 */
export function startWorker() {
  if (!script) throw new Error("startWorker: the engine must be a script of the page, not a module");
  const url = script.src || URL.createObjectURL(new Blob([script.text], { type: "text/javascript" }));
  const client = connect(new Worker(url));
  if (!script.src) URL.revokeObjectURL(url);
  return client;
}

if ("WorkerGlobalScope" in globalThis) {
  const answer = answering((message) => globalThis.postMessage(message));
  globalThis.onmessage = ({ data }) => answer(data);
}
