/** Decodes for lanes. The latest decodes are kept. */

import { hasArrived, traceOf } from "./decode.js";
import { Fault } from "./fault.js";

/** @typedef {import("./lane.js").Lane} Lane */
/** @typedef {import("./types.js").Trace} Trace */

const KEPT = 60; // traces

/**
 * Return the key of a request's trace.
 *
 * @param {object} request
 */
export const keyOf = (request) => JSON.stringify(request);

export class Decoder {
  /** @type {Map<string, Trace>} */
  kept = new Map();

  /**
   * @param {import("./source.js").Source} source
   * @param {() => void} draw a lane has changed
   * @param {() => number} at the step that is drawn
   */
  constructor(source, draw, at) {
    this.source = source;
    this.draw = draw;
    this.at = at;
  }

  /**
   * Decode a puzzle for a lane. An earlier decode of the lane ends.
   *
   * @param {Lane} lane
   * @param {import("./types.js").Request} request
   * @param {import("./sudoku.js").Digits} digits
   */
  async decode(lane, request, digits) {
    const control = new AbortController();
    lane.wait(control);
    const key = keyOf(request);
    const trace = this.kept.get(key) ?? (await this.receive(lane, request, digits, control.signal));
    if (control.signal.aborted) return;
    if (trace) {
      lane.finish(trace, keyOf({ ...request, latents: "" }));
      this.keep(key, trace);
    }
    this.draw();
  }

  /**
   * Return the trace, or null if the decode failed or was ended.
   *
   * @param {Lane} lane
   * @param {import("./types.js").Request} request
   * @param {import("./sudoku.js").Digits} digits
   * @param {AbortSignal} signal
   */
  async receive(lane, request, digits, signal) {
    try {
      for await (const event of this.source.decode(request, digits, signal)) {
        if (signal.aborted) return null;
        lane.take(event);
        if (hasArrived(lane.decode, this.at())) this.draw();
      }
      return traceOf(lane.decode);
    } catch (error) {
      if (signal.aborted) return null;
      if (!(error instanceof Fault)) throw error;
      lane.fail(error.message);
      return null;
    }
  }

  /**
   * @param {string} key
   * @param {Trace} trace
   */
  keep(key, trace) {
    this.kept.set(key, trace);
    if (this.kept.size > KEPT) this.kept.delete([...this.kept.keys()][0]);
  }
}
