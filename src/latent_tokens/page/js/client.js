/** The page's side of the worker: promises in place of messages. */

/** @typedef {import("./worker.js").RequestMessage} RequestMessage */
/** @typedef {import("./worker.js").AnswerMessage} AnswerMessage */
/** @typedef {import("./model.js").Config} Config */
/** @typedef {import("./prediction.js").Prediction} Prediction */
/** @typedef {import("./prediction.js").PredictionRequest} PredictionRequest */
/** @typedef {import("./text.js").FillRequest} FillRequest */
/** @typedef {import("./text.js").FilledStep} FilledStep */
/** @typedef {import("./trace.js").Event} Event */
/** @typedef {import("./trace.js").Request} Request */
/** @typedef {import("./trace.js").Trace} Trace */
/**
 * @typedef {object} DecodeOptions
 * @property {(event: Event) => void} [onEvent] receives `start`, every `frame`, and `end`
 * @property {AbortSignal} [signal] cancels the decode, which then throws the signal's reason
 */
/**
 * @typedef {object} Client
 * @property {(model: string, bytes: ArrayBuffer, config: Config) => Promise<"wasm" | "plain">} load
 *   load a model and return the name of its kernel; the bytes move to the worker
 * @property {(model: string, request: Request, options?: DecodeOptions) => Promise<Trace>} decode
 * @property {(model: string, request: PredictionRequest) => Promise<Prediction>} predict
 * @property {(model: string, request: FillRequest) => Promise<FilledStep[]>} fill
 * @property {() => void} close stop the worker
 */
/** @typedef {Pick<Worker, "postMessage" | "terminate" | "onmessage" | "onerror">} Port */

/**
 * Return a client of a worker that runs the engine.
 *
 * @param {Port} worker
 * @returns {Client}
 */
export function connect(worker) {
  const ask = asking(worker);
  return {
    async load(model, bytes, config) {
      const answer = await ask((id) => ({ type: "load", id, model, bytes, config }), { transfer: [bytes] });
      return /** @type {Extract<AnswerMessage, { type: "loaded" }>} */ (answer).kernel;
    },
    async decode(model, request, { onEvent = () => {}, signal } = {}) {
      /** @type {Event[]} */
      const events = [];
      const onProgress = (/** @type {Event} */ event) => {
        events.push(event);
        onEvent(event);
      };
      await ask((id) => ({ type: "decode", id, model, request }), { onProgress, signal });
      const [start, ...frames] = events.map(([, payload]) => payload);
      return /** @type {Trace} */ ({ start, frames: frames.slice(0, -1), end: frames.at(-1) });
    },
    async predict(model, request) {
      const answer = await ask((id) => ({ type: "predict", id, model, request }), {});
      return /** @type {Extract<AnswerMessage, { type: "predicted" }>} */ (answer).payload;
    },
    async fill(model, request) {
      const answer = await ask((id) => ({ type: "fill", id, model, request }), {});
      return /** @type {Extract<AnswerMessage, { type: "filled" }>} */ (answer).payload;
    },
    close: () => worker.terminate(),
  };
}

/**
 * @typedef {object} AskOptions
 * @property {Transferable[]} [transfer]
 * @property {(event: Event) => void} [onProgress] receives the events of a decode
 * @property {AbortSignal} [signal]
 */

/**
 * Return a function that sends a request to a worker, and returns the last answer to it.
 *
 * @param {Port} worker
 * @returns {(message: (id: number) => RequestMessage, options: AskOptions) => Promise<AnswerMessage>}
 */
function asking(worker) {
  /** @type {Map<number, { receive: (answer: AnswerMessage) => void, reject: (error: Error) => void }>} */
  const pending = new Map();
  let lastId = 0;
  worker.onmessage = ({ data }) => pending.get(data.id)?.receive(data);
  worker.onerror = ({ message }) => {
    for (const { reject } of pending.values()) reject(new Error(`the worker stopped: ${message}`));
  };

  return async (message, { transfer = [], onProgress = () => {}, signal }) => {
    signal?.throwIfAborted();
    const id = ++lastId;
    try {
      return await new Promise((resolve, reject) => {
        const receive = (/** @type {AnswerMessage} */ answer) => {
          if (answer.type === "fault") reject(new Error(answer.detail));
          else if (answer.type === "start" || answer.type === "frame" || answer.type === "end") {
            onProgress(/** @type {Event} */ ([answer.type, answer.payload]));
          }
          if (answer.type !== "start" && answer.type !== "frame") resolve(answer);
        };
        pending.set(id, { receive, reject });
        signal?.addEventListener(
          "abort",
          () => {
            worker.postMessage({ type: "cancel", id });
            reject(signal.reason);
          },
          { once: true },
        );
        worker.postMessage(message(id), transfer);
      });
    } finally {
      pending.delete(id);
    }
  };
}
