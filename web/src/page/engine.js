/** The engine in a worker. A model is loaded at its first use. */

import { Fault } from "./fault.js";

/** @typedef {import("../engine/client.js").Client} Client */
/** @typedef {import("../engine/trace.js").Request} EngineRequest */
/** @typedef {import("../engine/prediction.js").PredictionRequest} PredictionRequest */
/** @typedef {(name: string) => Promise<{ bytes: ArrayBuffer, config: any }>} ModelReader */

export class Engine {
  /** @type {Client | null} */
  client = null;
  /** @type {Map<string, Promise<unknown>>} */
  loading = new Map();

  /** @param {ModelReader} read */
  constructor(read) {
    this.read = read;
  }

  /**
   * Return the client, after the model is loaded.
   *
   * @param {string} name
   */
  async ready(name) {
    const { startWorker } = /** @type {{ latentTokens: typeof import("../engine/index.js") }} */ (
      /** @type {unknown} */ (globalThis)
    ).latentTokens;
    const client = (this.client ??= startWorker());
    const loading = this.loading.get(name) ?? this.load(client, name);
    this.loading.set(name, loading);
    await loading;
    return client;
  }

  /**
   * @param {Client} client
   * @param {string} name
   */
  async load(client, name) {
    const { bytes, config } = await this.read(name);
    await client.load(name, bytes, config);
  }

  /**
   * Predict some cells of a frozen board.
   *
   * @param {string} name
   * @param {PredictionRequest} request
   * @throws {Fault} in one line
   */
  async predict(name, request) {
    const client = await this.ready(name).catch(asFault);
    return client.predict(name, request).catch(asFault);
  }

  /**
   * Decode a puzzle and return its trace.
   *
   * @param {string} name
   * @param {EngineRequest} request
   * @param {AbortSignal} signal
   * @throws {Fault} in one line
   */
  async decode(name, request, signal) {
    const client = await this.ready(name).catch(asFault);
    return client.decode(name, request, { signal }).catch(asFault);
  }
}

/**
 * @param {Error} error
 * @returns {never}
 */
function asFault(error) {
  throw error.name === "AbortError" ? error : new Fault(error.message);
}

/**
 * Return a reader of the models in the page, whose weights are in base64.
 *
 * @param {Record<string, { weights: string, config: object }>} models
 * @returns {ModelReader}
 */
export const inlineReader = (models) => async (name) => {
  const { weights, config } = models[name];
  const bytes = Uint8Array.from(atob(weights), (character) => character.charCodeAt(0));
  return { bytes: bytes.buffer, config };
};
