/** The states of a decode (idle, loading, playing or fault), and what is drawn in each. */

/** @typedef {import("./types.js").Decode} Decode */
/** @typedef {import("./types.js").Trace} Trace */
/** @typedef {import("./types.js").Incoming} Incoming */

/** @type {Decode} */
export const IDLE = { kind: "idle" };

/**
 * Return the state that awaits a trace. What was drawn stays until the new trace has come as far.
 *
 * @param {Decode} decode
 * @param {AbortController | null} control ends the decode
 * @returns {Decode}
 */
export function loading(decode, control) {
  const previous = decode.kind === "loading" ? decode.previous : traceOf(decode);
  return { kind: "loading", previous, incoming: { start: null, frames: [], end: null }, control };
}

/**
 * Return the complete trace of a state, or null.
 *
 * @param {Decode} decode
 * @returns {Trace | null}
 */
export function traceOf(decode) {
  if (decode.kind === "playing") return decode.trace;
  if (decode.kind !== "loading") return null;
  const { start, frames, end } = decode.incoming;
  return start && end ? { start, frames, end } : null;
}

/**
 * Return the state after an event of the decode.
 *
 * @param {Decode} decode
 * @param {[name: string, data: any]} event
 * @returns {Decode}
 */
export function withEvent(decode, [name, data]) {
  if (decode.kind !== "loading") return decode;
  const { incoming } = decode;
  const change = name === "frame" ? { frames: [...incoming.frames, data] } : { [name]: data };
  return { ...decode, incoming: { ...incoming, ...change } };
}

/**
 * Return the trace to draw at a step: the awaited one if it has come that far, else the previous one.
 *
 * @param {Decode} decode
 * @param {number} at
 * @returns {(Incoming & { start: import("./types.js").Start }) | null}
 */
export function drawnTrace(decode, at) {
  if (decode.kind !== "loading") return traceOf(decode);
  const { start, frames, end } = decode.incoming;
  return start && (end || frames.length >= at) ? { start, frames, end } : decode.previous;
}

/**
 * Return whether the frame of a step has arrived, if one is awaited.
 *
 * @param {Decode} decode
 * @param {number} at
 */
export function hasArrived(decode, at) {
  return decode.kind !== "loading" || decode.incoming.frames.length >= at;
}
