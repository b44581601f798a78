/** The tab "One cell": a frozen board, one cell to decode, and latent tokens that the person chooses. */

import { problemOf } from "./address.js";
import { BoardGrid } from "./board.js";
import { BOX, SIDE, between, boardOf, discarded, ratesOf } from "./cell_view.js";
import { $, disable, find, onPress, percent, plural, svg, write } from "./dom.js";
import { bars } from "./lane_view.js";
import { Fault } from "./fault.js";
import { readSudoku, sharedUnit } from "./sudoku.js";
import { placeOf } from "./trace.js";

/** @typedef {import("./types.js").PageRecord} PageRecord */
/** @typedef {import("../engine/prediction.js").Prediction} Prediction */

const MOST_BARS = 3;

export class OneCell {
  dial = find("#cell-dial", HTMLInputElement);
  /** @type {number[]} the latent cells, in the order of their slots */
  latents = [];
  /** @type {Prediction | null} */
  prediction = null;
  isDecoded = false;
  version = 0; // of the latest request

  /**
   * @param {PageRecord} record
   * @param {import("./engine.js").Engine} engine
   * @param {(puzzle: string) => void} watch show the puzzle in the tab Watch
   * @param {() => void} changed the latent cells have changed
   */
  constructor(record, engine, watch, changed) {
    this.changed = changed;
    this.record = record;
    this.engine = engine;
    const { puzzle, others } = record.cell;
    this.tokens = readSudoku(puzzle, SIDE);
    this.start = boardOf(this.tokens);
    this.board = new BoardGrid($("#cell-board"), {
      typed: () => {},
      picked: () => {},
      pressed: (cell) => this.press(cell),
    });
    this.dial.max = String(others.length);
    this.dial.addEventListener("input", () => this.predict(others.slice(0, Number(this.dial.value))));
    onPress($("#cell-decode"), () => this.decode());
    onPress($("#cell-again"), () => this.predict([]));
    onPress($("#cell-watch"), () => watch(puzzle));
    $("#cell-rates").textContent = ratesOf(record);
    this.draw(); // without a prediction, until the model is read
  }

  /** Predict the cell without latent tokens, unless it was predicted. */
  open() {
    if (!this.version) this.predict([]);
  }

  /**
   * Take the latent cells that an address names.
   *
   * @param {import("./address.js").Address} address
   * @returns {string[]} what cannot be taken, and why
   */
  restore({ latents = "" }) {
    const { others } = this.record.cell;
    const cells = latents ? latents.split(".").map(Number) : [];
    if (cells.some((cell) => !others.includes(cell)) || new Set(cells).size < cells.length) {
      return [problemOf("latents", latents, "must be empty cells other than the blue one, each once")];
    }
    if (cells.join() !== this.latents.join()) this.predict(cells);
    return [];
  }

  /** @param {number} cell that becomes a latent token, or ends being one */
  press(cell) {
    if (!this.record.cell.others.includes(cell)) return;
    const isLatent = this.latents.includes(cell);
    this.predict(isLatent ? this.latents.filter((other) => other !== cell) : [...this.latents, cell]);
  }

  /** @param {number[]} latents */
  predict(latents) {
    this.latents = latents;
    this.isDecoded = false;
    void this.request();
    this.changed();
  }

  /** Predict with the latent tokens. An answer that is overtaken is not drawn. */
  async request() {
    const version = ++this.version;
    const { model, cell } = this.record;
    const request = { tokens: this.tokens, candidates: [cell.target], latents: [...this.latents] };
    try {
      const prediction = await this.engine.predict(model, request);
      if (version !== this.version) return;
      this.prediction = prediction;
      this.draw();
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      write($("#cell-story"), error.message, true);
    }
  }

  /** Keep the predicted digit, and discard the guesses. */
  decode() {
    this.isDecoded = true;
    this.draw();
  }

  /** The digit that is predicted for the cell to decode. */
  get predicted() {
    return this.prediction?.beliefs[this.record.cell.target]?.[0][0] ?? null;
  }

  draw() {
    const { target } = this.record.cell;
    const beliefs = this.prediction?.beliefs ?? {};
    const cells = this.tokens.map((token, cell) => this.cellOf(token, cell));
    const none = new Set();
    this.board.draw({ start: this.start, cells, chosen: null, clash: none, broken: none, editable: true });
    find("#cell-rays", SVGElement).replaceChildren(...(this.isDecoded ? [] : this.rays()));
    $("#cell-bars").replaceChildren(...bars(this.start, (beliefs[target] ?? []).slice(0, MOST_BARS)));
    write($("#cell-title"), this.title());
    write($("#cell-story"), this.story());
    const count = this.latents.length;
    $("#cell-count").textContent = String(count);
    this.dial.value = String(count);
    this.dial.setAttribute("aria-valuetext", plural(count, "latent token"));
    disable($("#cell-decode"), this.isDecoded);
    disable($("#cell-again"), count === 0 && !this.isDecoded);
    if (this.prediction) $("#cell").dataset.right = String(this.predicted === this.record.cell.answer);
  }

  /**
   * @param {number | null} token
   * @param {number} cell
   * @returns {import("./trace.js").Cell}
   */
  cellOf(token, cell) {
    const beliefs = this.prediction?.beliefs[cell] ?? null;
    if (token !== null) return { kind: "given", token, step: null, beliefs: null };
    if (cell === this.record.cell.target) {
      const decoded = this.isDecoded ? this.predicted : null;
      return { kind: this.isDecoded ? "new" : "candidate", token: decoded, step: null, beliefs };
    }
    const isLatent = !this.isDecoded && this.latents.includes(cell);
    return {
      kind: isLatent ? "latent" : "ready",
      token: null,
      step: null,
      beliefs: isLatent ? beliefs : null,
    };
  }

  /** Return a line per latent token, as wide as the attention of the cell to decode is large. */
  rays() {
    const { target } = this.record.cell;
    const attention = this.prediction?.attention[target] ?? [];
    return this.latents.map((cell) => {
      const weight = attention[cell] ?? 0;
      const width = { "stroke-width": Math.min(0.15, weight), opacity: 0.2 + 4 * weight };
      return svg("line", { ...between(target, cell), ...width });
    });
  }

  /** The prediction in a title. */
  title() {
    const { target, mistake, probability: atFirst } = this.record.cell;
    const [token, probability] = this.prediction?.beliefs[target]?.[0] ?? [mistake, atFirst];
    const digit = `${this.start.signs[token]} (${percent(probability)})`;
    const count = this.latents.length;
    if (token === this.record.cell.answer) {
      return `The model predicts ${digit}, and is right.${count === 1 ? " One guess is enough." : ""}`;
    }
    if (!count) return `The model predicts ${digit}, and is wrong. Let it guess one more cell.`;
    return `The model still predicts ${digit}, and is wrong.`;
  }

  /** The prediction in words. */
  story() {
    if (this.predicted === null) return "";
    const { answer } = this.record.cell;
    const isRight = this.predicted === answer;
    const verdict = isRight ? "\u2713 Right" : "\u2715 Wrong";
    const digit = this.start.signs[this.predicted];
    if (this.isDecoded) return `${verdict}: ${digit} is decoded.${discarded(this.latents.length)}`;
    if (isRight) return `${verdict}: ${digit}. ${this.reason()}`;
    const solution = this.start.signs[answer];
    if (!this.latents.length) return `${verdict}: the only solution has ${solution} here. Tap an empty cell.`;
    const { helpful, others } = this.record.cell;
    return (
      `${verdict}: still ${digit}. Tap another empty cell. ` +
      `${helpful} of the ${others.length} change the prediction to ${solution} alone.`
    );
  }

  /** Why a latent token corrects the prediction, if it has the mistaken digit in a unit of the cell. */
  reason() {
    const { mistake } = this.record.cell;
    const digit = this.start.signs[mistake];
    const cause = this.latents.find((cell) => this.guess(cell) === mistake && this.unit(cell));
    if (cause === undefined) return "The solution has this digit.";
    const unit = this.unit(cause);
    const place = placeOf(this.start, cause);
    return (
      `The model now predicts ${digit} in ${place}, in the same ${unit}. ` +
      `A ${unit} has one ${digit}, so the blue cell is not ${digit}.`
    );
  }

  /** @param {number} cell */
  guess(cell) {
    return this.prediction?.beliefs[cell]?.[0][0];
  }

  /** @param {number} cell */
  unit(cell) {
    return sharedUnit(this.record.cell.target, cell, SIDE, BOX);
  }
}
