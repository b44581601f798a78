/** The tab Race: the same model decodes the same puzzles without latent tokens and with all. */

import { $, clone, disable, el, number, onPress, times, write } from "./dom.js";
import { Fault } from "./server.js";
import { readSudoku } from "./sudoku.js";

/** @typedef {import("./types.js").PageRecord} PageRecord */
/** @typedef {0 | "all"} Latents */

const SIDE = 6;
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
   */
  constructor(latents, name) {
    this.latents = latents;
    $("h3", this.root).textContent = name;
    $("#runners").append(this.root);
    this.draw();
  }

  clear() {
    Object.assign(this, { solved: 0, done: 0, processed: 0, all: 0 });
    $(".squares", this.root).replaceChildren();
    this.draw();
  }

  /** @param {import("../engine/trace.js").Trace} trace */
  add({ start, end }) {
    this.done += 1;
    this.solved += end.right ? 1 : 0;
    this.processed += end.processed;
    this.all += start.all_processed;
    $(".squares", this.root).append(el("i", { class: end.right ? "solved" : null }));
    this.draw();
  }

  /** The number of solved puzzles in words. */
  get words() {
    return `${this.solved} of ${this.done} solved`;
  }

  draw() {
    $(".tally", this.root).textContent = this.words;
    $(".squares", this.root).setAttribute("aria-label", this.words);
    const ratio = this.all ? ` (${times(this.processed / this.all)})` : "";
    $(".cost", this.root).textContent = `${number(this.processed)} tokens processed${ratio}`;
  }
}

export class Race {
  runners = [new Runner(0, "No latent tokens (n = 0)"), new Runner("all", "All latent tokens (n = all)")];
  /** @type {AbortController | null} that of the running race */
  control = null;

  /**
   * @param {PageRecord} record
   * @param {import("./engine.js").Engine} engine
   */
  constructor(record, engine) {
    this.record = record;
    this.engine = engine;
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
