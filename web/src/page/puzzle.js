/** The puzzle: its text, its cells, and what was typed. */

import { $, disable, el, find, offer, onPress, write } from "./dom.js";
import { Fault } from "./fault.js";
import { SIGNS, clashes, readSudoku, sideOf, writeSudoku } from "./sudoku.js";

/** @typedef {import("./types.js").ModelEntry} ModelEntry */
/**
 * @typedef {object} PuzzleActions
 * @property {() => ModelEntry} model the model that reads the puzzle
 * @property {(side: number) => boolean} offersSide whether there is a model of boards of that side
 * @property {(side: number) => void} takeSide take a model of boards of that side
 * @property {(at: number) => void} changed there is another puzzle, shown from a step on
 */

const ERASERS = ["Delete", "Backspace", "0", "."];

export class Puzzle {
  text = "";
  /** @type {import("./sudoku.js").Digits} */
  digits = [];
  /** @type {number | null} */
  chosen = null;
  /** @type {string[]} puzzles that were replaced */
  past = [];
  words = $("#puzzle-words");
  example = find("#example", HTMLSelectElement);
  field = find("#text", HTMLInputElement);

  /** @param {PuzzleActions} actions */
  constructor(actions) {
    this.actions = actions;
    this.example.addEventListener("change", () => this.load(this.example.value));
    onPress($("#clear"), () => this.load("", 0));
    onPress($("#undo"), () => this.undo());
    $("#paste").addEventListener("submit", (event) => {
      event.preventDefault();
      this.load(this.field.value);
    });
    $("#lanes").addEventListener("keydown", (event) => {
      if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z") return;
      event.preventDefault();
      this.undo();
    });
    $("#lanes").addEventListener("paste", (event) => {
      event.preventDefault();
      this.load(event.clipboardData?.getData("text") ?? "");
    });
  }

  get isSudoku() {
    return this.actions.model().kind === "sudoku";
  }

  get board() {
    const { side, box } = this.actions.model();
    return { side: side ?? 0, box: box ?? [1, 1] };
  }

  /** Whether no given cell comes after an empty one. */
  get isPrefix() {
    return !this.digits.some((digit, cell) => digit !== null && cell > 0 && this.digits[cell - 1] === null);
  }

  /** The board before it is decoded. */
  get draft() {
    const { kind, side, box } = this.actions.model();
    const signs = Array.from({ length: side ?? 0 }, (_, digit) => `${digit + 1}`);
    const tokens = this.isSudoku ? this.digits : [];
    return { kind, box: box ?? undefined, columns: side ?? 0, heads: [], signs, tokens, words: [] };
  }

  /** Load the first example of the model. */
  loadFirst() {
    this.text = "";
    this.offerExamples();
    $("#clear").hidden = $("#undo").hidden = !this.isSudoku;
    this.load(this.actions.model().examples[0]?.puzzle ?? "");
    this.past = [];
    this.drawUndo();
  }

  /** Forget the puzzle of another board. */
  forget() {
    this.text = "";
    this.past = [];
    this.offerExamples();
  }

  offerExamples() {
    const { examples, task } = this.actions.model();
    const pairs = examples.map(
      ({ puzzle, label }, i) => /** @type {const} */ ([puzzle, `${i + 1}. ${label || task}`]),
    );
    offer(this.example, [...pairs, ["", "own puzzle"]]);
    this.markExample();
  }

  /** Mark the example that the puzzle is, with its caption. */
  markExample() {
    const { examples } = this.actions.model();
    const example = examples.find(
      ({ puzzle }) => (this.isSudoku ? this.normalized(puzzle) : puzzle) === this.text,
    );
    this.example.value = example?.puzzle ?? "";
    write($("#caption"), example?.caption ?? "");
  }

  /** @param {string} puzzle */
  normalized(puzzle) {
    return writeSudoku(readSudoku(puzzle, this.board.side));
  }

  /**
   * Load a puzzle, or write why it cannot be read.
   *
   * @param {string} text
   * @param {number} at the step from which it is shown
   */
  load(text, at = 1) {
    try {
      return this.take(text, at);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      this.field.setAttribute("aria-invalid", "true");
      return write(this.words, `${error.message} The board keeps its puzzle.`, true);
    }
  }

  /**
   * Take a puzzle. A Sudoku of another size is taken with a model of that size, if there is one.
   *
   * @param {string} text
   * @param {number} at the step from which it is shown
   * @throws {Fault} the text is not a puzzle; the board and its model stay
   */
  take(text, at) {
    if (!this.isSudoku) return this.replace(text, [], at);
    const sideOfText = sideOf(text) ?? 0;
    const side = this.actions.offersSide(sideOfText) ? sideOfText : this.board.side;
    const digits = text ? readSudoku(text, side) : Array(side ** 2).fill(null);
    if (side !== this.board.side) this.actions.takeSide(side);
    return this.replace(writeSudoku(digits), digits, at);
  }

  /**
   * @param {string} text
   * @param {import("./sudoku.js").Digits} digits
   * @param {number} at
   */
  replace(text, digits, at) {
    if (this.isSudoku && this.text && this.text !== text) this.past.push(this.text);
    this.field.removeAttribute("aria-invalid");
    Object.assign(this, { text, digits, chosen: null });
    this.field.value = text;
    this.markExample();
    this.drawUndo();
    this.drawPad();
    this.actions.changed(at);
  }

  /** Return to the puzzle that was replaced last. */
  undo() {
    const { past, chosen } = this;
    const text = past.pop();
    if (text === undefined) return;
    this.load(text, 0);
    Object.assign(this, { past, chosen });
    past.pop(); // the puzzle that the undo replaced
    this.drawUndo();
    this.drawPad();
  }

  drawUndo() {
    disable($("#undo"), this.past.length === 0);
  }

  /**
   * Type a digit into a cell, or erase it.
   *
   * @param {number} cell
   * @param {string} key
   */
  type(cell, key) {
    if (!this.isSudoku) return;
    const sign = key.toUpperCase();
    const isErased = ERASERS.includes(key);
    if (!isErased && !SIGNS.slice(0, this.board.side).includes(sign)) return;
    const digits = this.digits.with(cell, isErased ? null : SIGNS.indexOf(sign));
    this.replace(writeSudoku(digits), digits, 0);
    this.choose(cell);
  }

  /** @param {number | null} cell */
  choose(cell) {
    this.chosen = cell;
    this.drawPad();
  }

  /** Draw the buttons that type into the chosen cell. They are there while a cell is chosen. */
  drawPad() {
    const pad = $("#pad");
    pad.hidden = !this.isSudoku || this.chosen === null;
    const signs = [...SIGNS.slice(0, this.board.side)];
    if (pad.hidden || pad.children.length === signs.length + 1) return;
    /** @type {(key: string, text: string, label: string) => HTMLElement} */
    const button = (key, text, label) => {
      const element = el("button", { type: "button", "aria-label": label }, text);
      onPress(element, () => this.chosen !== null && this.type(this.chosen, key));
      return element;
    };
    const eraser = button("Delete", "\u232b", "Empty the cell");
    pad.replaceChildren(...signs.map((sign) => button(sign, sign, `Type ${sign}`)), eraser);
  }

  /** Return why the puzzle cannot be decoded, or "". */
  get problem() {
    if (!this.isSudoku) return "";
    const { side, box } = this.board;
    const contradictions = clashes(this.digits, side, box).words;
    if (contradictions.length) return `${contradictions.join("; ")}.`;
    return this.digits.includes(null) ? "" : "Every cell is given. Clear a cell to decode it.";
  }
}
