/** Animated GIF files, encoded in a worker. */

import { encode } from "./encode.js";

export { encode };

const script =
  "document" in globalThis ? /** @type {HTMLScriptElement | null} */ (document.currentScript) : null;

/**
 * Encode an animation in a worker, which runs the text of the script that defines this function.
 *
 * @param {import("./encode.js").Animation} animation its pixels move to the worker
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function encodeInWorker(animation) {
  if (!script) throw new Error("encodeInWorker: the encoder must be a script of the page, not a module");
  const url = URL.createObjectURL(new Blob([script.text], { type: "text/javascript" }));
  const worker = new Worker(url);
  try {
    return await new Promise((resolve, reject) => {
      worker.onmessage = ({ data }) => resolve(data);
      worker.onerror = ({ message }) => reject(new Error(message));
      worker.postMessage(
        animation,
        animation.frames.map(({ pixels }) => pixels),
      );
    });
  } finally {
    worker.terminate();
    URL.revokeObjectURL(url);
  }
}

if ("WorkerGlobalScope" in globalThis) {
  globalThis.onmessage = ({ data }) => globalThis.postMessage(encode(data));
}
