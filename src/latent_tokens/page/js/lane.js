/** One of the two settings of the laboratory: its model and n, its decode and its board. */

import { joinNames } from "./address.js";
import { Board, placeOf } from "./board.js";
import { $, drawBars, plural, write } from "./dom.js";
import { writePuzzle } from "./puzzle.js";
import { BOXES } from "./sudoku.js";
import {
  beliefsAt,
  cellsAt,
  costWords,
  firstMistake,
  geometryOf,
  settingWords,
  signOf,
  stepWords,
  verdictAt,
} from "./moment.js";

/** @typedef {import("./moment.js").Recorded} Recorded */

const REMASK_EVERY = 2; // steps

export class Lane {
  /** @type {Recorded | null} */
  trace = null;
  latents = "all"; // n, as the address has it
  status = ""; // why there is no decode
  /** @type {AbortController | null} */
  control = null;

  /**
   * @param {string} name
   * @param {import("./lab.js").Lab} lab
   * @param {import("./models.js").Engine} engine
   * @param {(cell: number) => void} pressed
   * @param {(cell: number, key: string) => void} typed
   */
  constructor(name, lab, engine, pressed, typed) {
    this.root = $(`#lane-${name}`);
    this.lab = lab;
    this.engine = engine;
    this.board = new Board($(".board", this.root), pressed, typed);
    this.select = /** @type {HTMLSelectElement} */ ($(".model", this.root));
    this.dial = /** @type {HTMLInputElement} */ ($(".n", this.root));
    this.select.addEventListener("change", () => this.choose());
    this.dial.addEventListener("input", () => {
      this.latents = this.dial.value === this.dial.max ? "all" : this.dial.value;
      lab.changed();
      this.decode();
    });
  }

  get model() {
    return this.select.value;
  }

  /**
   * Take the model of an address, or that of the first lane. Both have boards of one size.
   *
   * @param {string} name
   * @returns {string} why it is not taken, or ""
   */
  take(name) {
    const { lab } = this;
    const [first] = lab.lanes;
    const entry = lab.entries.find((other) => other.name === name);
    const fits = entry !== undefined && (this === first || entry.side === lab.side);
    this.select.value = fits ? name : first.model;
    const problem = entry ? `has no boards of ${lab.side}x${lab.side}` : "is not in this page";
    return fits ? "" : `model=${name}: ${problem}. Choose another model.`;
  }

  /** Take another model. Boards of another size start with its first example. */
  choose() {
    const { lab } = this;
    const entry = lab.entryOf(this);
    const isEqual = lab.tokens.length === entry.side ** 2;
    for (const lane of isEqual ? [] : lab.lanes) lane.select.value = entry.name;
    if (isEqual) {
      lab.offerExamples();
      lab.setPuzzle(lab.tokens);
      return lab.decode();
    }
    lab.restore({ model: joinNames([entry.name]), n: lab.lanes.map(({ latents }) => latents).join() });
    return lab.decode();
  }

  /** @param {Recorded | null} trace */
  show(trace) {
    this.control?.abort();
    this.trace = trace;
    this.drawDial();
  }

  /** Whether n can be set: by the method, or off-distribution. */
  get isFree() {
    const { latent_control } = this.lab.entryOf(this);
    return latent_control === "free" || (this.lab.off.checked && latent_control === "fixed");
  }

  /** The request of a decode. The default k is the model's. */
  get request() {
    const { lab, isFree, latents } = this;
    const valueOf = (/** @type {import("./lab.js").SettingName} */ name) => lab.setting(name).value;
    const k = valueOf("k") || String(lab.entryOf(this).candidates);
    const n = latents === "all" ? "all" : Number(latents);
    return {
      tokens: [...lab.tokens],
      latents: isFree ? /** @type {number | "all"} */ (n) : null,
      candidates: /^\d+$/.test(k) ? Number(k) : /** @type {"all" | "growing"} */ (k),
      order: /** @type {import("./decoding.js").OrderName | null} */ (valueOf("order") || null),
      temperature: Number(valueOf("temperature")),
      top_p: Number(valueOf("top_p")),
      seed: Number(valueOf("seed")),
      refresh: lab.refresh.checked,
      remask_every: lab.remask.checked ? REMASK_EVERY : null,
      off_distribution: lab.off.checked,
    };
  }

  /** Decode the puzzle of the laboratory. An earlier decode is canceled. */
  async decode() {
    this.control?.abort();
    const control = new AbortController();
    this.control = control;
    this.drawDial();
    this.status = "The model is loading.";
    if (!this.trace) this.lab.draw();
    try {
      const trace = await this.engine.decode(this.model, this.request, control.signal);
      if (control.signal.aborted) return;
      this.trace = trace;
      this.lab.arrived();
    } catch (error) {
      if (control.signal.aborted) return;
      this.show(null);
      this.status = "Not decoded.";
      this.lab.fault(error);
      this.lab.arrived();
    }
  }

  drawDial() {
    const { lab, dial } = this;
    if (!lab.entries.length) return;
    const most = lab.tokens.filter((token) => token === null).length;
    dial.max = String(most);
    dial.disabled = !this.isFree;
    const { method, latents } = lab.entryOf(this);
    const text = this.isFree ? this.latents : String(latents);
    dial.value = text === "all" ? String(most) : text;
    dial.setAttribute("aria-valuetext", text === "all" ? "all" : plural(Number(text), "latent token"));
    write($(".count", this.root), text);
    write($(".why", this.root), this.isFree ? "" : `${method}: n is fixed when it is trained.`);
  }

  /**
   * Draw the puzzle without a decode.
   *
   * @param {number} chosen
   */
  drawPuzzle(chosen) {
    const { lab, root, status } = this;
    if (!lab.entries.length || !lab.tokens.length) return; // a recorded decode without its model
    const { side, tokens } = lab;
    const signs = [...Array(side).keys()].map((digit) => writePuzzle([digit]));
    const start = /** @type {any} */ ({ kind: "sudoku", columns: side, box: BOXES[side], tokens, signs });
    const cells = cellsAt({ start, frames: [], end: null }, 0, null);
    if (cells[chosen]) cells[chosen].kind += " chosen";
    this.board.draw(geometryOf(start), cells);
    for (const part of ["setting", "cost", "story", "bars-title"]) write($(`.${part}`, root), "");
    write($(".verdict", root), status);
    $(".verdict", root).dataset.right = "";
    drawBars($(".bars", root), [], String);
  }

  /**
   * @param {number} at the step
   * @param {number} chosen the cell whose probabilities are shown
   * @param {(number | null)[] | null} solution
   */
  draw(at, chosen, solution) {
    const { trace, root } = this;
    if (!trace) return this.drawPuzzle(chosen);
    const step = Math.min(at, trace.frames.length);
    const geometry = geometryOf(trace.start);
    const cells = cellsAt(trace, step, solution);
    if (cells[chosen]) cells[chosen].kind += " chosen";
    this.board.draw(geometry, cells);
    const mistake = firstMistake(trace, solution);
    write($(".setting", root), settingWords(trace.start));
    const { words: verdict, isRight } = verdictAt(trace, step, mistake);
    write($(".verdict", root), verdict);
    $(".verdict", root).dataset.right = String(isRight ?? "");
    write($(".cost", root), costWords(trace, step));
    write($(".story", root), stepWords(trace, step));
    const beliefs = chosen < 0 ? null : beliefsAt(trace, step, chosen);
    drawBars($(".bars", root), beliefs ?? [], (token) => signOf(trace.start, token));
    const place = chosen < 0 ? "" : placeOf(geometry, chosen);
    const words = beliefs ? `Prediction of ${place}` : `${place}: not predicted in this step`;
    write($(".bars-title", root), place && words);
  }
}
