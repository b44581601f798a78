/** The button that saves the shown decodes as an animated GIF. */

import { traceOf } from "./decode.js";
import { $, disable, el, onPress, write } from "./dom.js";
import { drawPicture, sizeOf } from "./picture.js";

/** @typedef {import("./lane.js").Lane} Lane */
/** @typedef {import("./types.js").Trace} Trace */

const FRAME = 50; // hundredths of a second
const LAST = 400;

/** @param {() => Lane[]} lanes what is shown */
export function startGif(lanes) {
  const button = $("#gif");
  onPress(button, async () => {
    const traces = lanes().map(({ decode }) => traceOf(decode));
    const complete = traces.filter((trace) => trace !== null);
    if (!complete.length || complete.length < traces.length) return;
    disable(button, true);
    write(button, "Encoding");
    try {
      save(await gifOf(complete), nameOf(complete));
    } finally {
      write(button, "GIF");
      disable(button, false);
    }
  });
}

/**
 * Return an animation of every step.
 *
 * @param {Trace[]} traces
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
async function gifOf(traces) {
  const { encodeInWorker } = /** @type {{ latentGif: typeof import("../gif/index.js") }} */ (
    /** @type {unknown} */ (globalThis)
  ).latentGif;
  const { width, height } = sizeOf(traces);
  const canvas = el("canvas", { width, height }).getContext("2d", { willReadFrequently: true });
  if (!canvas) throw new TypeError("canvas: the browser has no 2D context");
  const style = getComputedStyle(document.documentElement);
  const colors = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`);
  const steps = Math.max(...traces.map(({ frames }) => frames.length));
  const frames = Array.from({ length: steps + 1 }, (_, at) => {
    drawPicture(canvas, traces, at, colors);
    const pixels = canvas.getImageData(0, 0, width, height).data.buffer;
    return { pixels, duration: at === steps ? LAST : FRAME };
  });
  return encodeInWorker({ width, height, frames });
}

/** @param {Trace[]} traces */
function nameOf(traces) {
  const counts = traces.map(({ start }) => `n${start.settings.latents ?? "-fixed"}`);
  return `latent-tokens-${traces[0].start.task}-${counts.join("-")}.gif`;
}

/**
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {string} name
 */
function save(bytes, name) {
  const url = URL.createObjectURL(new Blob([bytes], { type: "image/gif" }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
