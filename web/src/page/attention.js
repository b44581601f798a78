/** The tab Attention: the attention pattern of a method, drawn on a frozen board. */

import { problemOf } from "./address.js";
import { BoardGrid } from "./board.js";
import { SIDE, between, boardOf } from "./cell_view.js";
import { $, el, find, plural, svg, write } from "./dom.js";
import { PATTERNS, REASONS, attendedBy, inputOf, numLatents, placeIn, rankIn, wordsOf } from "./pattern.js";
import { Fault } from "./fault.js";
import { readSudoku } from "./sudoku.js";

/** @typedef {import("./types.js").PageRecord} PageRecord */
/** @typedef {import("./pattern.js").MethodName} MethodName */

const FIRST = "scdm.4"; // the pattern that is drawn first, as in an address
const KEPT = "kept"; // in an address: the cells after the blue one are in the input

export class Attention {
  dial = find("#attention-dial", HTMLInputElement);
  skip = find("#attention-skip", HTMLInputElement);
  /** @type {MethodName} */
  method = "scdm";
  latents = 0;
  isSkipping = true;
  chosen = 0; // the cell whose attention is drawn
  isOpened = false;
  version = 0; // of the latest comparison

  /**
   * @param {PageRecord} record
   * @param {import("./engine.js").Engine} engine
   * @param {() => void} changed the pattern has changed
   */
  constructor(record, engine, changed) {
    this.record = record;
    this.engine = engine;
    this.changed = changed;
    this.tokens = readSudoku(record.cell.puzzle, SIDE);
    this.start = boardOf(this.tokens);
    this.board = new BoardGrid($("#attention-board"), {
      typed: () => {},
      picked: (cell) => this.choose(cell),
    });
    this.buttons = PATTERNS.map(([method, name]) => this.button(method, name));
    $("#attention-methods").append(...this.buttons);
    this.dial.max = String(record.cell.others.length);
    this.dial.addEventListener("input", () => this.take({ latents: Number(this.dial.value) }));
    this.skip.addEventListener("change", () => this.take({ isSkipping: this.skip.checked }));
    this.restore({});
    this.board.setEntry(record.cell.target);
  }

  /** Compute the predictions from now on. */
  open() {
    this.isOpened = true;
    void this.compare();
  }

  /**
   * @param {MethodName} method
   * @param {string} name
   */
  button(method, name) {
    const button = el("button", { type: "button" }, name);
    button.addEventListener("click", () => this.take({ method, chosen: this.record.cell.target }));
    return button;
  }

  /** The pattern in an address, or "" if it is the first one. */
  get address() {
    const { method, latents, isSkipping } = this;
    const text = [method, latents, ...(isSkipping ? [] : [KEPT])].join(".");
    return text === FIRST ? "" : text;
  }

  /**
   * Take the pattern that an address names.
   *
   * @param {import("./address.js").Address} address
   * @returns {string[]} what cannot be taken, and why
   */
  restore({ pattern = FIRST }) {
    const [method, latents, kept] = pattern.split(".");
    const { target, others } = this.record.cell;
    if (Number(latents) > others.length) {
      return [problemOf("pattern", pattern, `must have at most ${others.length} latent tokens`)];
    }
    const name = /** @type {MethodName} */ (method);
    this.take({ method: name, latents: Number(latents), isSkipping: kept !== KEPT, chosen: target });
    return [];
  }

  /** @param {Partial<Pick<Attention, "method" | "latents" | "isSkipping" | "chosen">>} changes */
  take(changes) {
    Object.assign(this, changes);
    this.draw();
    if (this.isOpened) void this.compare();
    this.changed();
  }

  /** @param {number} cell whose attention is drawn */
  choose(cell) {
    this.chosen = cell;
    this.draw();
  }

  /** The cells in the input. */
  get input() {
    const { target, others } = this.record.cell;
    const count = numLatents(this.method, this.latents, others.length);
    return inputOf(this.tokens, target, others, count, this.isSkipping);
  }

  draw() {
    const { input, method, chosen } = this;
    const attended = new Set(attendedBy(method, input, chosen));
    const cells = this.tokens.map((token, cell) => ({
      kind: placeIn(input, cell),
      token,
      step: rankIn(input, cell),
      beliefs: null,
    }));
    const none = new Set();
    const marks = { chosen, clash: none, broken: none, attended };
    this.board.draw({ start: this.start, cells, ...marks, editable: true });
    find("#attention-rays", SVGElement).replaceChildren(...this.rays(input, attended));
    write($("#attention-story"), wordsOf(method, input, chosen));
    write($("#attention-why"), REASONS[method]);
    PATTERNS.forEach(([name], i) => this.buttons[i].setAttribute("aria-pressed", String(name === method)));
    this.drawSettings();
  }

  drawSettings() {
    const most = this.record.cell.others.length;
    const count = numLatents(this.method, this.latents, most);
    this.dial.disabled = count !== this.latents;
    this.dial.value = String(count);
    this.dial.setAttribute("aria-valuetext", plural(count, "latent token"));
    $("#attention-count").textContent = count === most ? "all" : String(count);
    this.skip.disabled = count === most;
    this.skip.checked = this.isSkipping && count < most;
  }

  /**
   * Return a line to the chosen cell from each other cell that it attends to.
   *
   * @param {import("./pattern.js").Input} input
   * @param {Set<number>} attended
   */
  rays(input, attended) {
    const sources = [...attended].filter((cell) => cell !== this.chosen);
    return sources.map((cell) =>
      svg("line", { ...between(this.chosen, cell), class: `from-${placeIn(input, cell)}` }),
    );
  }

  /** Predict the blue cell with and without the cells after it. An answer that is overtaken is not shown. */
  async compare() {
    const version = ++this.version;
    const { method, latents } = this;
    const { target, others } = this.record.cell;
    const line = $("#attention-proof");
    if (this.record.model.split("-").at(-1) !== method) return write(line, "");
    const before = others.slice(0, latents);
    try {
      const [skipped, kept] = await Promise.all(
        [[target], [target, ...others.slice(latents)]].map((candidates) =>
          this.engine.predict(this.record.model, { tokens: this.tokens, candidates, latents: before }),
        ),
      );
      if (version !== this.version) return undefined;
      const words = [skipped, kept].map(({ beliefs }) => this.predictionOf(beliefs[target]));
      const count = plural(others.length - latents, "cell");
      const comparison = ` without the ${count} after the blue one, and ${words[1]} with them.`;
      const isLast = latents === others.length;
      const rest = isLast ? ". No empty cell comes after the blue one." : comparison;
      return write(line, `The model predicts ${words[0]}${rest}`);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      return write(line, error.message, true);
    }
  }

  /** @param {import("./types.js").Prediction[]} beliefs */
  predictionOf([[token, probability]]) {
    return `${this.start.signs[token]} (${(100 * probability).toFixed(1)}%)`;
  }
}
