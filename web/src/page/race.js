/** The tab Race: the same model decodes the same puzzles without latent tokens and with all. */

import { BoardGrid } from "./board.js";
import { BOX, SIDE, boardOf } from "./cell_view.js";
import { $, clone, disable, el, number, onPress, times, write } from "./dom.js";
import { Fault } from "./fault.js";
import { clashes, readSudoku } from "./sudoku.js";
import { cellsAt } from "./trace.js";

/** @typedef {import("./types.js").PageRecord} PageRecord */
/** @typedef {0 | "all"} Latents */

/** @type {import("../engine/decoding.js").Settings} */
const SETTINGS = { candidates: 1, order: "uniform", temperature: 0 };

/** The results of one number of latent tokens. */
class Runner {
  root = clone("#runner");
  solved = 0;
  done = 0;
  processed = 0;
  all = 0; // tokens that all latent tokens process

  /**
   * @param {Latents} latents
   * @param {string} name
   * @param {string[]} puzzles
   */
  constructor(latents, name, puzzles) {
    this.latents = latents;
    this.puzzles = puzzles;
    this.board = new BoardGrid($(".board", this.root), { typed: () => {}, picked: () => {} });
    $("h3", this.root).textContent = name;
    $("#runners").append(this.root);
    this.clear();
  }

  /** Draw the first puzzle, and a square per puzzle. */
  clear() {
    Object.assign(this, { solved: 0, done: 0, processed: 0, all: 0 });
    const start = boardOf(readSudoku(this.puzzles[0], SIDE));
    this.drawBoard({ start, frames: [], end: null });
    $(".squares", this.root).replaceChildren(...this.puzzles.map(() => el("i")));
    this.draw();
  }

  /** @param {import("../engine/trace.js").Trace} trace */
  add(trace) {
    const { start, end } = trace;
    this.drawBoard(trace);
    $(".squares", this.root).children[this.done].className = end.right ? "solved" : "failed";
    this.done += 1;
    this.solved += end.right ? 1 : 0;
    this.processed += end.processed;
    this.all += start.all_processed;
    this.draw();
  }

  /** @param {import("./types.js").Drawn} trace whose end is drawn */
  drawBoard(trace) {
    const { start, frames, end } = trace;
    const cells = cellsAt(trace, frames.length).map(asDecoded);
    const tokens = cells.map(({ token }) => token);
    const clash = clashes(tokens, SIDE, BOX).cells;
    this.board.draw({ start, cells, chosen: null, clash, broken: new Set(end?.broken), editable: false });
  }

  /** The number of solved puzzles in words. */
  get words() {
    return this.done ? `${this.solved} of ${this.done} solved` : `${this.puzzles.length} puzzles`;
  }

  draw() {
    $(".tally", this.root).textContent = this.words;
    $(".squares", this.root).setAttribute("aria-label", this.words);
    const ratio = this.all ? times(this.processed / this.all) : "";
    const cost = `${number(this.processed)} tokens processed: ${ratio} of n = all`;
    $(".cost", this.root).textContent = this.done ? cost : "A square per puzzle.";
  }
}

/**
 * Return a cell of the end of a decode, whose steps do not count.
 *
 * @param {import("./trace.js").Cell} cell
 * @returns {import("./trace.js").Cell}
 */
const asDecoded = (cell) => ({ ...cell, kind: cell.kind === "new" ? "decoded" : cell.kind, step: null });

export class Race {
  /** @type {AbortController | null} that of the running race */
  control = null;

  /**
   * @param {PageRecord} record
   * @param {import("./engine.js").Engine} engine
   */
  constructor(record, engine) {
    this.record = record;
    this.engine = engine;
    const { puzzles } = record.race;
    this.runners = [
      new Runner(0, "No latent tokens (n = 0)", puzzles),
      new Runner("all", "All latent tokens (n = all)", puzzles),
    ];
    onPress($("#race-run"), () => void this.run());
    onPress($("#race-stop"), () => this.control?.abort());
    this.drawButtons();
  }

  async run() {
    const { signal } = (this.control = new AbortController());
    for (const runner of this.runners) runner.clear();
    this.drawButtons();
    write($("#race-words"), "Decoding.");
    try {
      for (const puzzle of this.record.race.puzzles) {
        await Promise.all(this.runners.map((runner) => this.decode(runner, puzzle, signal)));
      }
      write($("#race-words"), this.summary);
    } catch (error) {
      if (signal.aborted) write($("#race-words"), `Stopped. ${this.summary}`);
      else if (error instanceof Fault) write($("#race-words"), error.message, true);
      else throw error;
    } finally {
      this.control = null;
      this.drawButtons();
    }
  }

  /**
   * @param {Runner} runner
   * @param {string} puzzle
   * @param {AbortSignal} signal
   */
  async decode(runner, puzzle, signal) {
    const { model, seed } = this.record;
    const request = { ...SETTINGS, tokens: readSudoku(puzzle, SIDE), latents: runner.latents, seed };
    const trace = await this.engine.decode(model, request, signal);
    if (!signal.aborted) runner.add(trace);
  }

  get summary() {
    const [without, withAll] = this.runners;
    return `No latent tokens: ${without.words}. All latent tokens: ${withAll.words}.`;
  }

  drawButtons() {
    disable($("#race-run"), this.control !== null);
    disable($("#race-stop"), this.control === null);
  }
}
