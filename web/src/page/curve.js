/** The tab Curve: accuracy over cost, measured by the server. Earlier curves stay until they are cleared. */

import { $, disable, el, find, number, offer, onPress, percent, shortName, times, write } from "./dom.js";
import { MARKS, legend, plot } from "./plot.js";
import { Fault, events, query } from "./server.js";
import { CANDIDATES, isAdaptive, orderName, ordersFor } from "./settings.js";

/** @typedef {import("./types.js").ModelEntry} ModelEntry */
/**
 * @typedef {object} Point the samples of one number of latent tokens so far
 * @property {number | string} latents
 * @property {number} done
 * @property {number} of
 * @property {number} right
 * @property {number} low
 * @property {number} high
 * @property {number} processed
 * @property {number} relative
 */
/**
 * @typedef {object} Series
 * @property {string} name
 * @property {number} look the number of its color and mark
 * @property {Map<string, Point>} points by number of latent tokens
 */

const HEADS = ["model", "n", "correct", "accuracy", "95% interval", "tokens processed", "relative cost"];

export class Curve {
  run = $("#curve-run");
  stop = $("#curve-stop");
  clear = $("#curve-clear");
  words = $("#curve-words");
  model = find("#curve-model", HTMLSelectElement);
  count = find("#curve-count", HTMLInputElement);
  candidates = find("#curve-candidates", HTMLSelectElement);
  order = find("#curve-order", HTMLSelectElement);
  seed = find("#curve-seed", HTMLInputElement);
  /** @type {Series[]} */
  series = [];
  wished = { order: "top_prob", candidates: "4" };
  /** @type {AbortController | null} that of the running measurement */
  control = null;

  /** @param {ModelEntry[]} models */
  constructor(models) {
    this.models = models;
    const pairs = models.map(({ name }) => /** @type {const} */ ([name, shortName(name)]));
    offer(this.model, pairs, models.find(({ method }) => method === "scdm")?.name);
    offer(this.candidates, CANDIDATES, "4");
    this.fitOrder();
    this.model.addEventListener("change", () => this.fitOrder());
    this.order.addEventListener("change", () => {
      this.wished.order = this.order.value;
      this.fitCandidates();
    });
    this.candidates.addEventListener("change", () => {
      this.wished.candidates = this.candidates.value;
    });
    new ResizeObserver(() => this.draw()).observe($("#plot"));
    $("#run").addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this.control) void this.measure();
    });
    onPress(this.stop, () => this.control?.abort());
    onPress(this.clear, () => {
      this.series = [];
      write(this.words, "");
      this.draw();
    });
  }

  fitOrder() {
    const model = this.models.find(({ name }) => name === this.model.value) ?? this.models[0];
    offer(this.order, ordersFor(model), this.wished.order);
    this.fitCandidates();
  }

  fitCandidates() {
    this.candidates.disabled = !isAdaptive(this.order.value);
    this.candidates.value = this.candidates.disabled ? "1" : this.wished.candidates;
  }

  get values() {
    const [model, count, candidates, order, seed] = [
      this.model,
      this.count,
      this.candidates,
      this.order,
      this.seed,
    ].map(({ value }) => value);
    return { model, count, candidates, order, seed };
  }

  /** The settings of the next curve in a few words. */
  get name() {
    const { model, order, candidates, seed } = this.values;
    const k = this.candidates.disabled ? [] : [`k = ${candidates}`];
    return [shortName(model), orderName(order), ...k, ...(seed === "0" ? [] : [`seed ${seed}`])].join(", ");
  }

  /** Return a series with an unused look. A fifth one replaces the oldest. The others keep their looks. */
  addSeries() {
    const replaced = this.series.length === MARKS.length ? this.series.shift() : undefined;
    const free = MARKS.findIndex((_, look) => this.series.every((series) => series.look !== look));
    const series = { name: this.name, look: free, points: new Map() };
    this.series.push(series);
    write(
      this.words,
      `Decoding the first samples.${replaced ? ` The curve of ${replaced.name} is removed.` : ""}`,
    );
    return series;
  }

  async measure() {
    const control = new AbortController();
    this.control = control;
    const series = this.addSeries();
    this.draw();
    try {
      await this.receive(series, control.signal);
      const shares = [...series.points.values()].map(
        (p) => `n = ${p.latents}: ${percent(p.right / p.done)} correct`,
      );
      write(this.words, `${shares.join(", ")}.`);
    } catch (error) {
      if (control.signal.aborted) write(this.words, "Stopped. The points measured so far remain.");
      else if (error instanceof Fault) write(this.words, error.message, true);
      else throw error;
    } finally {
      if (!series.points.size) this.series = this.series.filter((other) => other !== series);
      this.control = null;
      this.draw();
    }
  }

  /**
   * @param {Series} series
   * @param {AbortSignal} signal
   */
  async receive(series, signal) {
    for await (const [name, data] of events(`/api/curve?${query(this.values)}`, signal)) {
      if (name !== "point") continue;
      const point = /** @type {Point} */ (data);
      series.points.set(String(point.latents), point);
      this.draw();
      const { latents, done, of, right } = point;
      write(
        this.words,
        `n = ${latents}: ${right} of ${done} correct${done < of ? `, ${of - done} to go` : ""}.`,
      );
    }
  }

  draw() {
    const box = $("#plot");
    const busy = this.control !== null;
    $("#curve-legend").replaceChildren(...legend(this.series));
    box.replaceChildren(plot(this.series, Math.max(box.clientWidth, 280), busy));
    const rows = this.series.flatMap(({ name, points }) =>
      [...points.values()].map((point) => rowOf(name, point)),
    );
    $("#points thead").replaceChildren(...(this.series.length ? [row("th", HEADS)] : []));
    $("#points tbody").replaceChildren(...rows);
    disable(this.run, busy);
    disable(this.stop, !busy);
    disable(this.clear, busy || !this.series.length);
  }
}

/**
 * @param {string} name
 * @param {Point} point
 */
function rowOf(name, { latents, right, done, low, high, processed, relative }) {
  const interval = `${percent(low)} to ${percent(high)}`;
  const cost = [number(Math.round(processed)), times(relative)];
  return row("td", [name, String(latents), `${right} of ${done}`, percent(right / done), interval, ...cost]);
}

/**
 * @param {"th" | "td"} kind
 * @param {string[]} texts
 */
function row(kind, texts) {
  return el("tr", {}, ...texts.map((text) => el(kind, kind === "th" ? { scope: "col" } : {}, text)));
}
