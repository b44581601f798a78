/** The messages between a page and the worker that runs the engine. */

/**
 * A request. `id` is in every answer to it.
 *
 * @typedef {{ type: "load", id: number, model: string, bytes: ArrayBuffer,
 *     config: import("./model.js").Config }
 *   | { type: "decode", id: number, model: string, request: import("./trace.js").Request }
 *   | { type: "predict", id: number, model: string, request: import("./prediction.js").PredictionRequest }
 *   | { type: "cancel", id: number }} RequestMessage
 */
/**
 * An answer. A decode has `start`, a `frame` per step, and `end`, unless it is canceled or at fault.
 *
 * @typedef {{ type: "loaded", id: number, kernel: "wasm" | "plain" }
 *   | { type: "start", id: number, payload: import("./trace.js").Start }
 *   | { type: "frame", id: number, payload: import("./trace.js").Frame }
 *   | { type: "end", id: number, payload: import("./trace.js").End }
 *   | { type: "predicted", id: number, payload: import("./prediction.js").Prediction }
 *   | { type: "canceled", id: number }
 *   | { type: "fault", id: number, detail: string }} AnswerMessage
 */

export {};
