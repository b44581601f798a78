/** The prediction of one setting on the board of another decode, so that only the setting differs. */

import { CONFIDENCES, argmax } from "../engine/probability.js";
import { perSampleRng } from "../engine/rng.js";
import { Fault } from "./fault.js";
import { cellsAt } from "./trace.js";
import { current } from "./turns.js";

/** @typedef {import("./types.js").Frame} Frame */
/** @typedef {import("./types.js").Settings} Settings */
/** @typedef {import("./types.js").Incoming & { start: import("./types.js").Start }} Shown */
/** @typedef {import("../engine/prediction.js").Prediction} Prediction */

const ROW = 0; // of the per-sample RNG

export class SameBoard {
  /** @type {Map<string, Frame | null>} by request; null while its answer is awaited */
  frames = new Map();
  problem = ""; // of the last request

  /**
   * @param {import("./engine.js").Engine} engine
   * @param {() => void} draw an answer has arrived
   */
  constructor(engine, draw) {
    this.engine = engine;
    this.draw = draw;
  }

  /**
   * Return a trace up to a step, whose prediction is that of other settings. Null while it is awaited.
   *
   * @param {Shown} trace
   * @param {Settings} settings
   * @param {number} at the step
   * @returns {Shown | null}
   */
  traceAt(trace, settings, at) {
    const index = Math.min(at, trace.frames.length) - 1;
    if (index < 0) return { start: trace.start, frames: [], end: null };
    const request = requestFor(trace, settings, index);
    const key = JSON.stringify([settings, request]);
    if (!this.frames.has(key)) void this.predict(key, request, settings, trace, index);
    const frame = this.frames.get(key);
    return frame ? { start: trace.start, frames: [...trace.frames.slice(0, index), frame], end: null } : null;
  }

  /**
   * @param {string} key
   * @param {ReturnType<typeof requestFor>} request
   * @param {Settings} settings
   * @param {Shown} trace
   * @param {number} index of the frame
   */
  async predict(key, request, settings, trace, index) {
    this.frames.set(key, null);
    this.problem = "";
    try {
      const prediction = await this.engine.predict(settings.model, request);
      this.frames.set(key, frameOf(prediction, settings, trace, index));
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.problem = error.message;
    }
    this.draw();
  }
}

/**
 * Return the request of a prediction with the candidates of a frame. The latent tokens of the frame come
 * first, then others at random.
 *
 * @param {Shown} trace
 * @param {Settings} settings
 * @param {number} index of the frame
 */
function requestFor(trace, { latents }, index) {
  const frame = trace.frames[index];
  const tokens = cellsAt(trace, index).map(({ token }) => token);
  const draw = perSampleRng(index, ROW);
  const others = [...tokens.keys()]
    .filter((cell) => tokens[cell] === null && ![...frame.candidates, ...frame.latents].includes(cell))
    .map((cell) => ({ cell, rank: draw() }))
    .sort((a, b) => a.rank - b.rank);
  const cells = [...frame.latents, ...others.map(({ cell }) => cell)];
  const n = latents === undefined ? "" : current(latents);
  const count = n === "all" ? cells.length : Number(n);
  const chosen = latents === undefined ? null : cells.slice(0, count);
  return { tokens, candidates: frame.candidates, latents: chosen };
}

/**
 * Return a prediction as the frame of a decode, which decodes the most confident candidate.
 *
 * @param {Prediction} prediction
 * @param {Settings} settings
 * @param {Shown} trace
 * @param {number} index of the frame
 * @returns {Frame}
 */
function frameOf({ candidates, latents, beliefs }, { order }, trace, index) {
  const confidence = CONFIDENCES[order] ?? CONFIDENCES.top_prob;
  const scores = candidates.map((cell) => confidence([...beliefs[cell].map(([, p]) => p), 0]));
  const cell = candidates[argmax(scores)];
  const clean = cellsAt(trace, index).filter(({ token }) => token !== null).length;
  const before = trace.frames[index - 1]?.processed ?? 0;
  return {
    step: index,
    chosen: [[cell, beliefs[cell][0][0]]],
    candidates,
    latents,
    beliefs,
    processed: before + clean + latents.length + candidates.length,
    all_processed: trace.frames[index].all_processed,
  };
}
