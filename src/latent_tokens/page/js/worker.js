/** The engine in a worker: load models, decode and predict, and cancel a decode between two steps. */

import { loadModel, loadNetwork } from "./model.js";
import { predict } from "./prediction.js";
import { fill } from "./text.js";
import { events } from "./trace.js";

/**
 * A request. `id` is in every answer to it.
 *
 * @typedef {{ type: "load", id: number, model: string, bytes: ArrayBuffer,
 *     config: import("./model.js").Config }
 *   | { type: "decode", id: number, model: string, request: import("./trace.js").Request }
 *   | { type: "predict", id: number, model: string, request: import("./prediction.js").PredictionRequest }
 *   | { type: "fill", id: number, model: string, request: import("./text.js").FillRequest }
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
 *   | { type: "filled", id: number, payload: import("./text.js").FilledStep[] }
 *   | { type: "canceled", id: number }
 *   | { type: "fault", id: number, detail: string }} AnswerMessage
 */

/**
 * Return the function that answers messages.
 *
 * @param {(answer: AnswerMessage) => void} send
 * @returns {(message: RequestMessage) => Promise<void>}
 */
export function answering(send) {
  /** @type {Map<string, import("./model.js").Model>} */
  const models = new Map();
  /** @type {Map<string, import("./text.js").TextModel>} */
  const texts = new Map();
  /** @type {Set<number>} */
  const running = new Set();

  /** @param {Extract<RequestMessage, { type: "load" }>} message */
  function load({ bytes, config, model: name }) {
    if (config.task?.name === "text") {
      const model = loadNetwork(bytes, config);
      texts.set(name, model);
      return model.net.kernel.name;
    }
    const model = loadModel(bytes, config, name);
    models.set(name, model);
    return model.net.kernel.name;
  }

  /** @param {Extract<RequestMessage, { type: "decode" }>} message */
  async function decode({ id, model, request }) {
    running.add(id);
    try {
      for (const [type, payload] of events(modelOf(models, model), request)) {
        send(/** @type {AnswerMessage} */ ({ type, id, payload }));
        await nextTask();
        if (!running.has(id)) return send({ type: "canceled", id });
      }
    } finally {
      running.delete(id);
    }
  }

  /** @param {RequestMessage} message */
  async function answer(message) {
    const { type, id } = message;
    if (type === "cancel") running.delete(id);
    else if (type === "decode") await decode(message);
    else if (type === "predict") {
      send({ type: "predicted", id, payload: predict(modelOf(models, message.model), message.request) });
    } else if (type === "fill") {
      send({ type: "filled", id, payload: fill(modelOf(texts, message.model), message.request) });
    } else send({ type: "loaded", id, kernel: load(message) });
  }

  return async (message) => {
    try {
      await answer(message);
    } catch (error) {
      send({ type: "fault", id: message.id, detail: error instanceof Error ? error.message : String(error) });
    }
  };
}

/**
 * Return a model that is loaded.
 *
 * @template T
 * @param {Map<string, T>} loaded
 * @param {string} name
 */
function modelOf(loaded, name) {
  const model = loaded.get(name);
  if (!model) throw new Error(`model=${name}: is not loaded. Send load first.`);
  return model;
}

/** Wait until the messages that have arrived are handled. A timer of 0 would wait for 4 ms. */
function nextTask() {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = () => {
      port1.close();
      resolve(undefined);
    };
    port2.postMessage(null);
  });
}

if ("WorkerGlobalScope" in globalThis) {
  const answer = answering((message) => globalThis.postMessage(message));
  globalThis.onmessage = ({ data }) => answer(data);
}
