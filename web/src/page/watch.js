/** The tab Watch: one decode, or two side by side, step by step. */

import { Comparison } from "./comparison.js";
import { drawnTrace, hasArrived } from "./decode.js";
import { Decoder } from "./decoder.js";
import { $, find, onPress, settled, write } from "./dom.js";
import { startGif } from "./gif.js";
import { Lane } from "./lane.js";
import { Player } from "./player.js";
import { Puzzle } from "./puzzle.js";
import { numEmpty, stepsOf } from "./trace.js";
import { announce, drawClues, drawHeads, inability, solutionWords, toggleSettings } from "./watch_view.js";

/** @typedef {import("./source.js").Source} Source */

const QUIET = 250; // milliseconds without a change before a decode begins

export class Watch {
  /** @type {Lane[]} */
  lanes = [];
  /** @type {Set<Lane>} lanes whose decode begins soon */
  waiting = new Set();
  task = "";
  blocked = false; // whether the puzzle cannot be decoded
  isDrawAsked = false;
  seed = find("#seed", HTMLInputElement);
  keep = find("#keep", HTMLInputElement);
  temperature = 0; // that of the recorded decodes, if there are any
  reason = ""; // why the number of latent tokens cannot be set in a page without a model

  /**
   * @param {Source | null} source decodes puzzles; null if only traces are shown
   * @param {import("./engine.js").Engine | null} engine predicts frozen boards; null if there are no models
   * @param {() => void} changed what the address names has changed
   */
  constructor(source, engine = null, changed = () => {}) {
    this.source = source;
    this.changed = changed;
    /** @type {Player} */
    this.player = new Player({
      steps: () => this.steps,
      hasArrived: (at) => this.lanes.every(({ decode }) => hasArrived(decode, at)),
      draw: () => this.draw(),
      announce: settled(() => announce(this.lanes), 300),
    });
    this.puzzle = new Puzzle({
      model: () => this.model,
      offersSide: (side) => this.modelsOf(side).length > 0,
      takeSide: (side) => this.takeSide(side),
      changed: (at) => this.newPuzzle(at),
    });
    this.decoder =
      source &&
      new Decoder(
        source,
        () => this.drawSoon(),
        () => this.player.at,
      );
    this.check = settled(() => this.checkAndDecode(), QUIET);
    this.flush = settled(() => this.decodeWaiting(), QUIET);
    this.comparison = new Comparison(this, engine);
    startGif(() => this.lanes);
    onPress($("#settings-button"), toggleSettings);
    const again = () => this.lanes.forEach((lane) => this.later(lane));
    for (const field of [this.seed, this.keep]) field.addEventListener("change", again);
  }

  /** The model of the first lane. */
  get model() {
    return this.lanes[0].model;
  }

  addLane() {
    const lane = new Lane("AB"[this.lanes.length], {
      changed: (changed) => this.settingChanged(changed),
      typed: (cell, key) => this.source && this.puzzle.type(cell, key),
      picked: (cell) => this.pick(cell),
      go: (step) => this.player.step(step),
    });
    this.lanes.push(lane);
    $("#lanes").append(lane.root);
    $("#lane-choices").append(lane.settings.root);
    return lane;
  }

  /**
   * Offer models.
   *
   * @param {import("./types.js").ModelEntry[]} models
   */
  begin(models) {
    this.addLane().settings.offer(models, models[0].name);
  }

  /**
   * Return the offered models of boards of a side.
   *
   * @param {number} side
   */
  modelsOf(side) {
    return this.lanes[0].settings.offered.filter((model) => model.kind === "sudoku" && model.side === side);
  }

  /**
   * Take a model of boards of a side, with the method of the present one if there is one.
   *
   * @param {number} side
   */
  takeSide(side) {
    const models = this.modelsOf(side);
    const model = models.find(({ method }) => method === this.model.method) ?? models[0];
    if (this.comparison.isOn) this.comparison.end();
    this.lanes[0].settings.setModel(model.name);
    this.task = model.task;
    this.puzzle.forget();
  }

  /** @param {number} at the step to show */
  newPuzzle(at) {
    this.player.pause();
    this.player.at = at;
    for (const lane of this.lanes) lane.rest();
    const problem = this.puzzle.problem || inability(this.lanes, this.puzzle);
    write(this.puzzle.words, problem, problem !== "");
    this.blocked = problem !== "";
    if (!this.blocked) {
      for (const lane of this.lanes) lane.wait();
      this.check();
    }
    this.draw();
  }

  checkAndDecode() {
    if (this.blocked || !this.source) return;
    const solutions = this.source.check(this.model, this.puzzle.digits);
    write(this.puzzle.words, solutionWords(solutions), solutions === 0);
    this.blocked = solutions === 0;
    for (const lane of this.lanes) {
      if (this.blocked) lane.rest();
      else this.decode(lane);
    }
    if (this.blocked) this.draw();
  }

  /** @param {Lane} lane */
  settingChanged(lane) {
    if (lane === this.lanes[0]) {
      const isNewTask = this.task !== this.model.task;
      this.task = this.model.task;
      if (isNewTask && this.comparison.isOn) this.comparison.end();
      if (isNewTask) return this.puzzle.loadFirst();
      this.puzzle.offerExamples();
    }
    return this.blocked || inability(this.lanes, this.puzzle)
      ? this.newPuzzle(this.player.at)
      : this.later(lane);
  }

  /** @param {Lane} lane whose decode begins once its settings are quiet */
  later(lane) {
    if (this.blocked) return;
    lane.wait();
    this.waiting.add(lane);
    this.draw();
    this.flush();
  }

  decodeWaiting() {
    for (const lane of this.waiting) this.decode(lane);
    this.waiting.clear();
  }

  /** @param {Lane} lane */
  decode(lane) {
    void this.decoder?.decode(lane, this.requestOf(lane), this.puzzle.digits);
  }

  /**
   * @param {Lane} lane
   * @returns {import("./types.js").Request}
   */
  requestOf(lane) {
    const { text: puzzle } = this.puzzle;
    const seed = { temperature: this.temperature, seed: this.seed.value || "0" };
    return { ...lane.requested, puzzle, ...seed, ...(this.keep.checked ? { refresh: false } : {}) };
  }

  /** @param {number} cell */
  pick(cell) {
    if (this.puzzle.chosen === cell) return;
    this.puzzle.choose(cell);
    this.draw();
  }

  /** @returns {number} */
  get steps() {
    const traces = this.lanes.map(({ decode }) => drawnTrace(decode, this.player.at));
    const steps = traces.filter((trace) => trace !== null).map(stepsOf);
    if (steps.length) return Math.max(...steps);
    return this.source && !this.blocked ? numEmpty(this.puzzle.draft) : 0;
  }

  drawSoon() {
    if (this.isDrawAsked) return;
    this.isDrawAsked = true;
    requestAnimationFrame(() => {
      this.isDrawAsked = false;
      this.draw();
    });
  }

  draw() {
    this.player.draw();
    const { at } = this.player;
    const served = this.source !== null;
    for (const lane of this.lanes) {
      const draft = drawnTrace(lane.decode, at)?.start ?? this.puzzle.draft;
      if (served) lane.settings.offerFor(this.task, this.puzzle.isPrefix);
      const { reason } = this;
      const instead = this.comparison.shownIn(lane, at);
      lane.draw({ draft, at, chosen: this.puzzle.chosen, served, reason, instead });
    }
    this.comparison.draw();
    drawHeads(this.lanes, served, this.comparison.isSame);
    drawClues(drawnTrace(this.lanes[0].decode, 0)?.start);
    this.changed();
  }
}
