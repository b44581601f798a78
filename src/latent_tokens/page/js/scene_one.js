/** Scene 1: one square, which the model predicts wrong until it also guesses another one. */

import { Board, placeOf } from "./board.js";
import { $, drawBars, messageOf, percents, write } from "./dom.js";
import { boardOf } from "./sudoku.js";
import { readPuzzle } from "./puzzle.js";

/** @typedef {import("./trace.js").Beliefs} Beliefs */
/**
 * @typedef {object} OneBoard a board with one square to decode, written by scripts/page_examples.py
 * @property {string} puzzle
 * @property {number} target
 * @property {number} latent the square whose guess changes the prediction most
 * @property {number[]} others the other empty squares, in random order
 * @property {number} answer
 * @property {number} right_with the number of single guesses with which the prediction is right
 * @property {{ without: Beliefs, with_one: Beliefs[], guesses: Beliefs[] }} predictions with and of each of
 *   the others, guessed alone
 */
/**
 * @typedef {object} Counts of boards with one square to decode
 * @property {number} states
 * @property {number} right without latent tokens
 * @property {number} right_with_all
 * @property {number} right_with_one with one in a random square
 * @property {number} corrected wrong without, right with all
 * @property {number} spoiled right without, wrong with all
 */
/** @typedef {{ target: Beliefs, guesses: Map<number, Beliefs> }} Shown what the model predicts */

const SIDE = 6;
const SIX_BOARD = boardOf("sudoku-6", SIDE, SIDE ** 2);
const WIDE = { columns: SIDE, count: SIDE ** 2, box: SIX_BOARD.box };
export const SIX_GEOMETRY = { kind: "sudoku", name: "Sudoku of 6 by 6", ...WIDE };
const sign = (/** @type {number} */ token) => String(token + 1);

export class SceneOne {
  board = new Board($("#one-board"), (cell) => this.toggle(cell));
  isMirror = false;
  isBusy = false;
  given = -1; // the given square that was pressed last
  /** @type {Set<number>} the squares that are guessed, in the order of their slots */
  latents = new Set();
  version = 0; // of the latest prediction

  /**
   * @param {{ model: string, counts: Counts, corrected: OneBoard, spoiled: OneBoard }} record
   * @param {import("./models.js").Engine} engine
   */
  constructor(record, engine) {
    this.record = record;
    this.engine = engine;
    this.shown = this.withoutGuesses();
    $("#one-guess").addEventListener("click", () => this.guess(this.latents.size ? [] : [this.one.latent]));
    const showTitle = () => $("#one-title").scrollIntoView({ block: "nearest" });
    $("#one-all").addEventListener("click", () => {
      void this.guess(this.one.others);
      showTitle();
    });
    $("#one-mirror").addEventListener("click", () => {
      this.isMirror = !this.isMirror;
      void this.guess([]);
      showTitle();
    });
    const { states, right, right_with_all, right_with_one } = record.counts;
    write(
      $("#one-counts"),
      `Of ${states} random boards, the model is right on ${right} alone, on ${right_with_all} with all ` +
        `squares guessed, and on ${right_with_one} with one random guess. This board was picked.`,
    );
    this.draw();
  }

  get one() {
    return this.isMirror ? this.record.spoiled : this.record.corrected;
  }

  /** @returns {Shown} */
  withoutGuesses() {
    return { target: this.one.predictions.without, guesses: new Map() };
  }

  /** @param {number} cell that is guessed, or no longer */
  toggle(cell) {
    const { latents, one } = this;
    if (cell === one.target) return this.guess(latents.size ? [] : [one.latent]);
    if (!one.others.includes(cell)) {
      this.given = cell;
      return this.draw();
    }
    const others = [...latents].filter((other) => other !== cell);
    return this.guess(latents.has(cell) ? others : [...others, cell]);
  }

  /**
   * Predict with guesses in some squares. An answer that is overtaken is not shown.
   *
   * @param {number[]} cells
   */
  async guess(cells) {
    const version = ++this.version;
    this.given = -1;
    this.latents = new Set(cells);
    const stored = this.stored();
    if (!stored) {
      this.isBusy = true;
      this.draw();
    }
    let shown = this.withoutGuesses();
    let fault = "";
    try {
      shown = stored ?? (await this.predicted(cells));
    } catch (error) {
      fault = messageOf(error);
    }
    if (version !== this.version) return;
    if (fault) this.latents.clear();
    this.shown = shown;
    this.isBusy = false;
    this.draw();
    if (fault) write($("#one-why"), fault);
  }

  /** Return the predictions that the page has stored, so the first taps do not wait for the model. */
  stored() {
    const { latents, one } = this;
    if (latents.size === 0) return this.withoutGuesses();
    if (latents.size > 1) return null;
    const [cell] = latents;
    const at = one.others.indexOf(cell);
    return { target: one.predictions.with_one[at], guesses: new Map([[cell, one.predictions.guesses[at]]]) };
  }

  /**
   * @param {number[]} latents
   * @returns {Promise<Shown>}
   */
  async predicted(latents) {
    const { puzzle, target } = this.one;
    const request = { tokens: readPuzzle(puzzle, SIDE), candidates: [target], latents };
    const { beliefs } = await this.engine.predict(this.record.model, request);
    return { target: beliefs[target], guesses: new Map(latents.map((cell) => [cell, beliefs[cell]])) };
  }

  draw() {
    const { one, shown, latents, isBusy } = this;
    const tokens = readPuzzle(one.puzzle, SIDE);
    const [top] = shown.target[0];
    const isRight = top === one.answer;
    const isTurned = !isBusy && top !== one.predictions.without[0][0];
    const cells = tokens.map((token, cell) => {
      if (token !== null) return { sign: sign(token), kind: "given", label: `${sign(token)}, given` };
      if (cell === one.target) {
        const kind = `target ${isRight ? "good" : "bad"}`;
        const verdict = isRight ? "right" : "wrong";
        const label = isBusy ? "the blue square" : `the blue square, the model says ${sign(top)}, ${verdict}`;
        return { sign: isBusy ? "…" : sign(top), kind, label };
      }
      const guess = shown.guesses.get(cell)?.[0]?.[0];
      if (latents.has(cell)) {
        const text = guess === undefined ? "…" : sign(guess);
        return { sign: text, kind: "latent", label: `guessed ${text}, a latent token` };
      }
      const label = "empty, press to guess it too";
      if (cell !== one.latent || isTurned) return { sign: "", kind: "ready", label };
      return { sign: "tap", kind: "marked", label: `tap, the marked square, ${label}` };
    });
    this.board.draw(SIX_GEOMETRY, cells);
    drawBars($("#one-bars"), shown.target, sign);
    this.words(top, isRight);
  }

  /**
   * @param {number} top the token that the model predicts
   * @param {boolean} isRight
   */
  words(top, isRight) {
    const { one, latents, isMirror, shown, isBusy } = this;
    const before = one.predictions.without;
    const shares = [before, shown.target].map((beliefs) => percents(beliefs.map(([, p]) => p))[0]);
    const change = top === before[0][0] ? "Still" : "Now it says";
    const verdict = isRight ? "Right." : "Wrong.";
    const begins = ["This AI is about to get one square wrong.", "Here the AI is right. Until it guesses."];
    const title = isBusy ? "One moment: the model is loading." : `${change} ${sign(top)}. ${verdict}`;
    write($("#one-title"), latents.size ? title : begins[Number(isMirror)]);
    $("#one").dataset.state = latents.size && !isBusy ? verdict : "";
    const says = `The model must fill the blue square. It says ${sign(before[0][0])}.`;
    const correct = isMirror ? " That is correct." : ` Correct is ${sign(one.answer)}.`;
    const alone = `Alone: ${shares[0]} sure of ${sign(before[0][0])}.`;
    const now = `${alone} With ${guessWords(latents.size)}: ${shares[1]} sure of ${sign(top)}.`;
    write($("#one-lead"), latents.size && !isBusy ? now : says + correct);
    write($("#one-why"), latents.size && !isBusy ? this.reason(top) : "");
    const name = `${latents.size > 1 ? "Each" : "That"} discarded guess is a latent token.`;
    const { given } = this;
    const token = given < 0 ? null : readPuzzle(one.puzzle, SIDE)[given];
    const named = latents.size ? name : "Tap a square: it is guessed, too.";
    write($("#one-name"), token === null ? named : `${sign(token)} is given. Tap an empty square.`);
    write($("#one-guess"), latents.size ? "Forget the guess" : "Guess the marked square too");
    const other = isMirror ? "Back to the first board" : "A board that a guess spoils";
    write($("#one-mirror"), other);
  }

  /**
   * Return why the prediction is another one, if a guess on the board explains it.
   *
   * @param {number} top
   */
  reason(top) {
    const { one, shown } = this;
    const { others, right_with, predictions } = one;
    const [before] = predictions.without[0];
    const numTurning = this.isMirror ? others.length - right_with : right_with;
    const squares = `${numTurning} of the ${others.length} squares`;
    if (top === before)
      return `Most single guesses change nothing. ${squares} ${numTurning === 1 ? "turns" : "turn"} it here.`;
    const rate = `${squares} ${numTurning === 1 ? "does" : "do"} this here.`;
    const { units } = SIX_BOARD;
    const cause = [...shown.guesses].find(
      ([cell, [[guess]]]) =>
        guess === before && units.some((unit) => unit.includes(cell) && unit.includes(one.target)),
    );
    if (!cause) return `It says ${sign(top)}, but no guess on the board explains why. ${rate}`;
    const kind = ["row", "column", "box"][
      Math.floor(units.findIndex((unit) => unit.includes(cause[0]) && unit.includes(one.target)) / SIDE)
    ];
    const place = placeOf(SIX_GEOMETRY, cause[0]);
    return `It guessed ${sign(before)} in ${place}, and a ${kind} has only one ${sign(before)}. ${rate}`;
  }
}

/** @param {number} count */
const guessWords = (count) => (count === 1 ? "the guess" : `${count} guesses`);
