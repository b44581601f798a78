/** The model, k and the order of a lane, and what the person wished where the model does not allow it. */

import { $, clone, find, offer, shortName } from "./dom.js";
import { CANDIDATES, isAdaptive, methodName, ordersFor } from "./settings.js";
import { current } from "./turns.js";

/** @typedef {import("./types.js").ModelEntry} ModelEntry */

export class LaneSettings {
  root = clone("#choices");
  models = find(".models", HTMLSelectElement, this.root);
  candidates = find(".candidates", HTMLSelectElement, this.root);
  order = find(".order", HTMLSelectElement, this.root);
  /** @type {ModelEntry[]} */
  offered = [];
  wished = { latents: "all", candidates: "", order: "top_prob" }; // candidates "": the model's k

  /** @param {() => void} changed */
  constructor(changed) {
    this.changed = changed;
    offer(this.candidates, CANDIDATES);
    this.candidates.addEventListener("change", () => this.wish({ candidates: this.candidates.value }));
    this.order.addEventListener("change", () => this.wish({ order: this.order.value }));
    this.models.addEventListener("change", () => {
      this.setModel(this.models.value);
      changed();
    });
  }

  /** The model in force. */
  get model() {
    return this.modelNamed(this.models.value);
  }

  /** @param {string} name */
  modelNamed(name) {
    const model = this.offered.find((entry) => entry.name === name);
    if (!model) throw new TypeError(`${name}: is not offered`);
    return model;
  }

  /**
   * Offer models and take one of them.
   *
   * @param {ModelEntry[]} entries
   * @param {string} name
   */
  offer(entries, name) {
    this.offered = entries;
    const pairs = entries.map((model) => /** @type {const} */ ([model.name, shortName(model.name)]));
    offer(this.models, pairs, name);
    this.setModel(this.models.value);
  }

  /** @param {string} name */
  setModel(name) {
    this.models.value = name;
    const { method, parameters } = this.model;
    const size = `${(parameters / 1e6).toFixed(1)}M parameters`;
    $(".about", this.root).textContent = `${methodName(method)}, ${size}.`;
    this.apply();
  }

  /**
   * Change wished settings.
   *
   * @param {Partial<LaneSettings["wished"]>} wishes
   */
  wish(wishes) {
    this.wished.latents = current(this.wished.latents);
    Object.assign(this.wished, wishes);
    this.apply();
    this.changed();
  }

  /**
   * Take the settings of a recorded decode.
   *
   * @param {import("./types.js").Start} start
   */
  recall({ model, settings: { latents, candidates, order } }) {
    const k = isAdaptive(order) ? String(candidates) : "";
    Object.assign(this.wished, { latents: String(latents), candidates: k, order });
    this.setModel(model);
  }

  /** Put the wished order and k in force, as far as the model allows. */
  apply() {
    offer(this.order, ordersFor(this.model), this.wished.order);
    this.candidates.disabled = !isAdaptive(this.order.value);
    const k = this.wished.candidates || String(this.model.candidates);
    if (!CANDIDATES.some(([value]) => value === k)) offer(this.candidates, [[k, k], ...CANDIDATES]);
    this.candidates.value = this.candidates.disabled ? "1" : k;
  }

  /**
   * Disable the models of a task that cannot take the puzzle: a shifted readout only continues a prefix.
   *
   * @param {string} task
   * @param {boolean} isPrefix
   */
  offerFor(task, isPrefix) {
    for (const option of this.models.options) {
      const model = this.modelNamed(option.value);
      option.disabled = model.task === task && model.continues_prefix && !isPrefix;
      option.textContent = shortName(model.name) + (option.disabled ? " (cannot infill)" : "");
    }
  }
}
