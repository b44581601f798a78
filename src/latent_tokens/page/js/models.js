/** The models in the page: their weights, at its end, and the worker that decodes with them. */

import { connect } from "./client.js";
import { $ } from "./dom.js";

/** @typedef {import("./client.js").Client} Client */
/** @typedef {import("./prediction.js").PredictionRequest} PredictionRequest */
/** @typedef {import("./trace.js").Request} Request */
/**
 * @typedef {object} Example
 * @property {string} puzzle
 * @property {string} label
 * @property {string} caption
 * @property {Record<string, string> | null} settings n, k and order that the label is of, if they are not
 *   the default ones. null if it is of no settings
 */
/**
 * @typedef {object} Entry a model of the page
 * @property {string} name
 * @property {string} task
 * @property {string} method
 * @property {"free" | "fixed" | "none"} latent_control how n is set
 * @property {number | "all"} latents n, unless it is set
 * @property {number} side
 * @property {number} candidates
 * @property {Example[]} examples
 */

/** The page has arrived to its end, where the weights are. */
const arrived = new Promise((resolve) => {
  if (document.readyState !== "loading") resolve(undefined);
  document.addEventListener("DOMContentLoaded", resolve);
});

export class Engine {
  /** @type {Client | null} */
  client = null;
  /** @type {Map<string, Promise<unknown>>} */
  loading = new Map();

  /** @param {readonly string[]} names those of the models, whose weights the page has in this order */
  constructor(names) {
    this.names = names;
  }

  /**
   * Return the client, after a model is loaded.
   *
   * @param {string} name
   */
  async ready(name) {
    await arrived;
    this.client ??= startWorker();
    const loading = this.loading.get(name) ?? this.load(this.client, name);
    this.loading.set(name, loading);
    loading.catch(() => this.loading.delete(name)); // so that it is tried again
    await loading;
    return this.client;
  }

  /**
   * @param {Client} client
   * @param {string} name
   */
  async load(client, name) {
    const { config, weights } = await this.read(name);
    const bytes = Uint8Array.from(atob(weights), (character) => character.charCodeAt(0));
    await client.load(name, bytes.buffer, config);
  }

  /**
   * Return the config of a model and its weights in base64: in the page, or in a file next to it.
   *
   * @param {string} name
   * @returns {Promise<{ config: import("./model.js").Config, weights: string }>}
   */
  async read(name) {
    const element = document.getElementById(`weights-${this.names.indexOf(name)}`);
    if (element) return JSON.parse(element.textContent ?? "");
    const response = await fetch(`${encodeURIComponent(name)}.json`);
    if (!response.ok) throw new Error(`${name}: its weights are not found. Reload the page.`);
    return response.json();
  }

  /**
   * @param {string} name
   * @param {PredictionRequest} request
   */
  async predict(name, request) {
    return (await this.ready(name)).predict(name, request);
  }

  /**
   * @param {string} name
   * @param {import("./text.js").FillRequest} request
   */
  async fill(name, request) {
    return (await this.ready(name)).fill(name, request);
  }

  /**
   * @param {string} name
   * @param {Request} request
   * @param {AbortSignal} [signal]
   */
  async decode(name, request, signal) {
    return (await this.ready(name)).decode(name, request, { signal });
  }
}

/** Start the worker, which runs the text of an element, so the page needs no second file. */
function startWorker() {
  const text = $("#worker").textContent ?? "";
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const client = connect(new Worker(url));
  URL.revokeObjectURL(url);
  return client;
}
