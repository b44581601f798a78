/** The tab Curve: accuracy over cost. It opens with stored curves, and measures others beside them. */

import { $, disable, el, find, number, offer, onPress, percent, shortName, times, write } from "./dom.js";
import { Fault } from "./fault.js";
import { measure, numWorkers } from "./measure.js";
import { legend, plot } from "./plot.js";
import { MOST_CURVES, SeriesList, seriesName, seriesOf } from "./series.js";
import { CANDIDATES, isAdaptive, ordersFor } from "./settings.js";
import { count } from "./turns.js";

/** @typedef {import("./types.js").ModelEntry} ModelEntry */
/** @typedef {import("./series.js").Measure} Measure */
/** @typedef {import("./series.js").Point} Point */
/** @typedef {import("./series.js").Series} Series */
/** @typedef {import("./engine.js").Engine} Engine */

const HEADS = ["model", "n", "correct", "accuracy", "95% interval", "tokens processed", "relative cost"];
/** @type {Record<Measure, string>} */
const WORDS = {
  sampled:
    "Each sample is a board that the model decodes from an empty grid at temperature 1. " +
    "It is correct if it breaks no rule.",
  solved:
    "Each sample is a generated puzzle with one solution, decoded at temperature 0. " +
    "It is correct if it is solved.",
};

export class Curve {
  run = $("#curve-run");
  stop = $("#curve-stop");
  clear = $("#curve-clear");
  words = $("#curve-words");
  kind = find("#curve-measure", HTMLSelectElement);
  model = find("#curve-model", HTMLSelectElement);
  count = find("#curve-count", HTMLInputElement);
  candidates = find("#curve-candidates", HTMLSelectElement);
  order = find("#curve-order", HTMLSelectElement);
  seed = find("#curve-seed", HTMLInputElement);
  series = new SeriesList();
  wished = { order: "top_prob", candidates: "4", measure: "sampled" };
  /** @type {Engine[]} */
  engines = [];
  /** @type {AbortController | null} that of the running measurement */
  control = null;
  /** @type {number | undefined} the drawing that is asked for */
  frame = undefined;

  /**
   * @param {ModelEntry[]} models
   * @param {import("./series.js").Curves} curves
   * @param {() => Engine} makeEngine
   */
  constructor(models, { stored, puzzles }, makeEngine) {
    this.models = models;
    this.puzzles = puzzles;
    this.makeEngine = makeEngine;
    for (const curve of stored) {
      const k = models.find(({ task }) => task === curve.task)?.candidates;
      if (curve.order === "left_to_right" || curve.candidates === k) this.series.add(seriesOf(curve));
    }
    const pairs = models.map(({ name }) => /** @type {const} */ ([name, shortName(name)]));
    offer(this.model, pairs, models.find(({ method }) => method === "scdm")?.name);
    offer(this.candidates, CANDIDATES, "4");
    this.fit();
    this.listen();
    new ResizeObserver(() => this.draw()).observe($("#plot"));
  }

  listen() {
    const { order, candidates, kind } = this;
    const wish = (/** @type {Partial<Curve["wished"]>} */ wishes) => {
      Object.assign(this.wished, wishes);
      this.fit();
      this.draw();
    };
    this.model.addEventListener("change", () => wish({}));
    order.addEventListener("change", () => wish({ order: order.value }));
    candidates.addEventListener("change", () => wish({ candidates: candidates.value }));
    kind.addEventListener("change", () => wish({ measure: kind.value }));
    $("#run").addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this.control && !this.isFull) void this.measure();
    });
    onPress(this.stop, () => this.control?.abort());
    onPress(this.clear, () => {
      this.series.remove(...this.shown);
      write(this.words, "");
      this.draw();
    });
  }

  get entry() {
    return this.models.find(({ name }) => name === this.model.value) ?? this.models[0];
  }

  get measured() {
    return /** @type {Measure} */ (this.kind.value);
  }

  /** The curves of the chosen board and measure. */
  get shown() {
    return this.series.of(this.entry.task, this.measured);
  }

  get isFull() {
    return this.shown.length >= MOST_CURVES;
  }

  /** Put the wished settings in force, as far as the model allows. */
  fit() {
    const { entry, wished } = this;
    const puzzles = entry.continues_prefix ? [] : (this.puzzles[entry.task] ?? []);
    /** @type {[string, string][]} */
    const solved = puzzles.length ? [["solved", "puzzles solved"]] : [];
    offer(this.kind, [["sampled", "boards from an empty grid"], ...solved], wished.measure);
    offer(this.order, ordersFor(entry), wished.order);
    this.candidates.disabled = !isAdaptive(this.order.value);
    this.candidates.value = this.candidates.disabled ? "1" : wished.candidates;
    this.count.max = String(this.measured === "solved" ? puzzles.length : 1000);
    if (Number(this.count.value) > Number(this.count.max)) this.count.value = this.count.max;
    write($("#curve-about"), WORDS[this.measured]);
  }

  /** Add the series of the chosen settings. */
  addSeries() {
    const { name: model, method, task } = this.entry;
    const k = this.candidates.disabled ? "" : this.candidates.value;
    const name = seriesName(model, this.order.value, k, this.seed.value || "0");
    return this.series.add({ model, method, name, task, measure: this.measured, points: new Map() });
  }

  async measure() {
    const control = (this.control = new AbortController());
    const series = this.addSeries();
    write(this.words, "Decoding the first samples.");
    this.draw();
    try {
      const tell = (/** @type {Point} */ point) => this.take(series, point);
      await this.decodeSamples(control.signal, tell);
      const shares = [...series.points.values()].map(
        (p) => `n = ${p.latents}: ${percent(p.right / p.done)} correct`,
      );
      write(this.words, `Measured ${series.name}. ${shares.join(", ")}.`);
    } catch (error) {
      if (control.signal.aborted) write(this.words, "Stopped. The points measured so far remain.");
      else if (error instanceof Fault) write(this.words, error.message, true);
      else throw error;
    } finally {
      control.abort(); // ends the other workers after a fault
      if (!series.points.size) this.series.remove(series);
      this.control = null;
      this.draw();
    }
  }

  /**
   * @param {AbortSignal} signal
   * @param {(point: Point) => void} tell
   */
  decodeSamples(signal, tell) {
    const { entry, order, candidates, seed } = this;
    while (this.engines.length < numWorkers()) this.engines.push(this.makeEngine());
    const puzzles = this.measured === "solved" ? this.puzzles[entry.task] : null;
    const name = /** @type {import("../engine/decoding.js").OrderName} */ (order.value);
    const settings = { candidates: count(candidates.value), order: name, seed: Number(seed.value) };
    const plan = { model: entry, count: Number(this.count.value), puzzles, settings };
    return measure(this.engines, plan, signal, tell);
  }

  /**
   * @param {Series} series
   * @param {Point} point
   */
  take(series, point) {
    series.points.set(String(point.latents), point);
    const { latents, done, of, right } = point;
    const rest = done < of ? `, ${of - done} to go` : "";
    write(this.words, `Measuring ${series.name}. n = ${latents}: ${right} of ${done} correct${rest}.`);
    this.drawSoon();
  }

  drawSoon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.draw();
    });
  }

  /** @param {Series} series */
  removeSeries(series) {
    this.series.remove(series);
    this.draw();
    this.run.focus();
  }

  draw() {
    const { shown } = this;
    const box = $("#plot");
    $("#curve-tip").hidden = true;
    const busy = this.control !== null;
    const remove = busy ? null : (/** @type {Series} */ series) => this.removeSeries(series);
    $("#curve-legend").replaceChildren(...legend(shown, remove));
    box.replaceChildren(plot(shown, Math.max(box.clientWidth, 280), busy), $("#curve-tip"));
    const rows = shown.flatMap(({ name, points }) => [...points.values()].map((p) => rowOf(name, p)));
    $("#points thead").replaceChildren(...(shown.length ? [row("th", HEADS)] : []));
    $("#points tbody").replaceChildren(...rows);
    disable(this.run, busy || this.isFull);
    disable(this.stop, !busy);
    disable(this.clear, busy || !shown.length);
    const isFull = this.isFull && !busy;
    write($("#curve-full"), isFull ? `${MOST_CURVES} curves are shown. Remove one to measure another.` : "");
  }
}

/**
 * @param {string} name
 * @param {Point} point
 */
function rowOf(name, { latents, right, done, low, high, processed, relative }) {
  const interval = `${percent(low)} to ${percent(high)}`;
  const cost = [number(Math.round(processed)), times(relative)];
  const share = [`${number(right)} of ${number(done)}`, percent(right / done)];
  return row("td", [name, String(latents), ...share, interval, ...cost]);
}

/**
 * @param {"th" | "td"} kind
 * @param {string[]} texts
 */
function row(kind, texts) {
  return el("tr", {}, ...texts.map((text) => el(kind, kind === "th" ? { scope: "col" } : {}, text)));
}
