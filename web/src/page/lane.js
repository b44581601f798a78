/** One board with its settings and its decode. The state of a lane is written here only. */

import { BoardGrid } from "./board.js";
import { IDLE, drawnTrace, loading, withEvent } from "./decode.js";
import { firstMistake } from "./difference.js";
import { $, clone, find, write } from "./dom.js";
import { LaneSettings } from "./lane_settings.js";
import { drawCost, drawMistake, drawOutcome, drawPredictions, drawWrong, triedMark } from "./lane_view.js";
import { whyFixed } from "./settings.js";
import { clashes } from "./sudoku.js";
import { cellsAt, latentWords, numEmpty, storyAt } from "./trace.js";
import { current, inWords, turned } from "./turns.js";

const HINT = "How many empty cells, besides the candidates, are in the input of a step.";

/** @typedef {import("./types.js").Board} Board */
/** @typedef {import("./types.js").Trace} Trace */
/**
 * @typedef {object} LaneView
 * @property {Board} draft the board before it is decoded
 * @property {number} at the step
 * @property {number | null} chosen the chosen cell
 * @property {boolean} served whether settings can be changed
 * @property {string} reason why they cannot
 * @property {import("./types.js").Drawn | null} instead what is drawn in place of the decode
 */
/**
 * @typedef {object} LaneActions
 * @property {(lane: Lane) => void} changed a setting was changed
 * @property {(cell: number, key: string) => void} typed
 * @property {(cell: number) => void} picked
 * @property {(step: number) => void} go show a step
 */

/**
 * Return the number of cells that can be latent in the first step.
 *
 * @param {Board} start
 * @param {string} k
 */
function numLatentsAtMost(start, k) {
  const open = numEmpty(start);
  const growing = start.kind === "sudoku" ? start.tokens.length - open + 1 : open;
  const named = { all: open, growing }[k];
  return Math.max(0, open - (named ?? Number(k)));
}

export class Lane {
  root = clone("#lane");
  dial = find(".dial input", HTMLInputElement, this.root);
  reason = $(".reason", this.root);
  /** @type {import("./types.js").Decode} */
  decode = IDLE;
  setting = ""; // that of the marks at the slider
  /** @type {Map<string, boolean>} by number of latent tokens: whether it solves the puzzle */
  tried = new Map();
  /** @type {WeakSet<object>} the ends of the traces that were played to the end */
  seen = new WeakSet();
  frozen = 1; // the step from which a turn of the slider counts; the board before it stays

  /**
   * @param {string} name "A" or "B"
   * @param {LaneActions} actions
   */
  constructor(name, actions) {
    this.actions = actions;
    this.settings = new LaneSettings(() => actions.changed(this));
    this.board = new BoardGrid($(".board", this.root), actions);
    this.reason.id = `reason-${name}`;
    this.dial.setAttribute("aria-describedby", this.reason.id);
    this.dial.addEventListener("input", () => {
      const latents = this.dial.value === this.dial.max ? "all" : this.dial.value;
      this.settings.wish({ latents: turned(this.settings.wished.latents, this.frozen, latents) });
    });
  }

  get model() {
    return this.settings.model;
  }

  get isAll() {
    const latents = current(this.settings.wished.latents);
    return latents === "all" || Number(latents) >= Number(this.dial.max);
  }

  /**
   * The settings in a request, without the puzzle and the seed.
   *
   * @returns {import("./types.js").Settings}
   */
  get requested() {
    const { model, candidates, order, wished } = this.settings;
    const isOne = !wished.latents.includes("@");
    const latents = this.isAll && isOne ? "all" : wished.latents;
    const name = /** @type {import("../engine/decoding.js").OrderName} */ (order.value);
    const settings = { model: model.name, candidates: candidates.value, order: name };
    return model.dial ? { ...settings, latents } : settings;
  }

  /** Forget the decode and the verdicts. */
  rest() {
    this.abort();
    this.decode = IDLE;
    this.tried = new Map();
    this.frozen = 1;
    this.settings.wished.latents = current(this.settings.wished.latents);
  }

  /** @param {AbortController | null} control ends the decode that is awaited */
  wait(control = null) {
    this.abort();
    this.decode = loading(this.decode, control);
  }

  abort() {
    if (this.decode.kind === "loading") this.decode.control?.abort();
  }

  /** @param {[name: string, data: unknown]} event of the awaited decode */
  take(event) {
    this.decode = withEvent(this.decode, event);
  }

  /**
   * Draw a complete trace. The marks at the slider stay while only the number of latent tokens changes.
   *
   * @param {Trace} trace
   * @param {string} setting all but the number of latent tokens
   */
  finish(trace, setting) {
    if (this.setting !== setting) this.tried = new Map();
    this.setting = setting;
    this.decode = { kind: "playing", trace };
    if (this.seen.has(trace.end)) this.see(trace);
  }

  /** @param {string} message */
  fail(message) {
    this.decode = { kind: "fault", message };
    this.tried = new Map();
  }

  /** @param {Trace} trace one that was played to the end */
  see(trace) {
    this.seen.add(trace.end);
    const latents = String(trace.start.settings.latents);
    if (!latents.includes("@")) this.tried.set(latents, trace.end.right);
  }

  /** @param {LaneView} view */
  draw({ draft, at, chosen, served, reason, instead }) {
    // The board after the step.
    const trace = drawnTrace(this.decode, at);
    const isPrevious = this.decode.kind === "loading" && trace === this.decode.previous;
    const drawn = trace ?? { start: draft, frames: [], end: null };
    const own = isPrevious ? { ...drawn, end: null } : drawn; // its verdict is not that of the new settings
    const shown = instead ?? own;
    const { start, frames } = shown;
    const reached = Math.min(at, frames.length);
    const cells = cellsAt(shown, reached);
    const tokens = cells.map(({ token }) => token);
    const isSudoku = start.kind === "sudoku";
    const clash = isSudoku && start.box ? clashes(tokens, start.columns, start.box).cells : new Set();
    const end = reached > 0 && reached === frames.length ? shown.end : null;
    const mistake = firstMistake(shown);
    const isMade = mistake !== null && mistake.step <= reached;
    if (end && this.decode.kind === "playing") this.see(this.decode.trace);
    const broken = new Set(end?.broken);
    if (served && this.decode.kind === "playing") this.freeze(at, frames.length);
    const mistaken = isMade ? mistake.cell : null;
    this.board.draw({ start, cells, chosen, clash, broken, mistaken, editable: served && isSudoku });

    // The step in words, the verdict and the cost.
    this.root.dataset.state = this.decode.kind;
    const isDecoded = ["loading", "playing"].includes(this.decode.kind);
    write($(".story", this.root), storyAt(shown, reached, isDecoded));
    if (served) this.drawDial(start);
    else if (trace) this.drawFixedDial(trace.start, reason);
    drawOutcome($(".outcome", this.root), this.decode, this.seen);
    const isSeen = shown.end !== null && this.seen.has(shown.end);
    drawMistake($(".mistake", this.root), start, isMade || isSeen ? mistake : null, this.actions.go);
    this.root.classList.toggle("instead", instead !== null);
    drawCost($(".cost", this.root), shown, trace?.start.all_processed ?? 0, reached);
    drawWrong($(".wrong", this.root), end?.wrong ?? []);
    drawPredictions($(".mind", this.root), start, cells, chosen ?? frames[reached - 1]?.chosen[0][0]);
  }

  /**
   * Draw the slider of a recorded decode.
   *
   * @param {import("./types.js").Start} start
   * @param {string} reason why the slider is fixed
   */
  drawFixedDial(start, reason) {
    const { latents, candidates } = start.settings;
    this.dial.max = String(numLatentsAtMost(start, String(candidates)));
    this.dial.value = latents === "all" ? this.dial.max : String(latents);
    this.dial.disabled = true;
    $(".dial-name b", this.root).textContent = latentWords(start.settings);
    write(this.reason, `The slider is fixed: these are recorded steps. ${reason}`);
  }

  /** @param {Board} start the board, whose empty cells are the end of the slider */
  drawDial(start) {
    const most = numLatentsAtMost(start, this.settings.candidates.value);
    const { dial: isFree, method } = this.model;
    this.dial.max = String(most);
    this.dial.disabled = !isFree || most === 0;
    const latents = current(this.settings.wished.latents);
    this.dial.value = this.isAll ? this.dial.max : latents;
    const fixed = ["sidm", "arm"].includes(method) ? "0" : "fixed";
    const free = this.isAll ? "all" : latents;
    const text = isFree ? free : fixed;
    $(".dial-name b", this.root).textContent = text;
    this.dial.setAttribute("aria-valuetext", text === "all" ? "all latent tokens" : `${text} latent tokens`);
    const fault = this.decode.kind === "fault" ? this.decode.message : "";
    write(this.reason, fault || this.hint(most), fault !== "");
    const marks = [...this.tried].map(([n, right]) => triedMark(n === "all" ? most : Number(n), most, right));
    $(".tried", this.root).replaceChildren(...marks);
  }

  /**
   * Keep the board of a step in the middle of a decode when the slider is turned.
   *
   * @param {number} at
   * @param {number} steps
   */
  freeze(at, steps) {
    this.frozen = at > 1 && at < steps ? at : 1;
  }

  /** @param {number} most */
  hint(most) {
    if (!this.model.dial) return whyFixed(this.model.method);
    const { latents } = this.settings.wished;
    if (latents.includes("@")) return `n = ${inWords(latents)}. The board before that step stayed.`;
    if (most && this.frozen > 1) return `The slider keeps this board: n changes from step ${this.frozen} on.`;
    if (most) return HINT;
    if (this.settings.candidates.value !== "all") return "No empty cell can be latent.";
    return "All empty cells are candidates, so no cell can be latent. Choose a smaller k.";
  }
}
