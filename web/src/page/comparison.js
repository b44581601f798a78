/** The comparison of two settings: the second board, the step in which they part, and both on one board. */

import { drawnTrace } from "./decode.js";
import { partingStep } from "./difference.js";
import { $, onPress } from "./dom.js";
import { stepButton } from "./player.js";
import { SameBoard } from "./same_board.js";
import { placeOf, signOf } from "./trace.js";

/** @typedef {import("./lane.js").Lane} Lane */
/** @typedef {import("./watch.js").Watch} Watch */
/** @typedef {import("./same_board.js").Shown} Shown */
/** @typedef {Partial<import("./lane_settings.js").LaneSettings["wished"]>} Wishes */

const SAME_WORDS = "Both boards are that of A, with its candidates. B predicts them with its own settings.";

export class Comparison {
  latentsAlone = "all"; // n of the first lane before the comparison
  isSameChosen = false; // whether B is to show the board of A
  line = $("#parting");

  /**
   * @param {Watch} watch
   * @param {import("./engine.js").Engine | null} engine predicts the board of A; null without models
   */
  constructor(watch, engine) {
    this.watch = watch;
    this.same = engine && new SameBoard(engine, () => watch.drawSoon());
    onPress($("#compare"), () => this.toggle());
    onPress($("#same"), () => {
      this.isSameChosen = !this.isSameChosen;
      watch.draw();
    });
  }

  get isOn() {
    return this.watch.lanes.length > 1;
  }

  /** Whether B can show the board of A: its model can infill. */
  get isSameOffered() {
    const { lanes, puzzle } = this.watch;
    if (!this.isOn || !this.same || !puzzle.isSudoku) return false;
    return !lanes[1].model.continues_prefix;
  }

  /** Whether B shows the board of A. */
  get isSame() {
    return this.isSameChosen && this.isSameOffered;
  }

  /** Compare no latent tokens with all, or end the comparison. */
  toggle() {
    if (this.isOn) this.end();
    else this.begin({ latents: "0" }, { latents: "all" }, this.watch.model.name);
  }

  /**
   * Add a second board.
   *
   * @param {Wishes} first what the first board changes
   * @param {Wishes} second what differs on the second board
   * @param {string} model of the second board
   */
  begin(first, second, model) {
    const { watch } = this;
    const [lane] = watch.lanes;
    const added = watch.addLane();
    this.latentsAlone = lane.settings.wished.latents;
    Object.assign(added.settings.wished, lane.settings.wished, second);
    added.settings.offer(
      lane.settings.offered.filter(({ task }) => task === watch.model.task),
      model,
    );
    lane.rest();
    lane.settings.wish(first);
    watch.later(added);
    watch.draw();
  }

  /** Keep the first board alone. */
  end() {
    const { watch } = this;
    const [second] = watch.lanes.splice(1);
    second.rest();
    second.root.remove();
    second.settings.root.remove();
    watch.waiting.delete(second);
    this.isSameChosen = false;
    watch.lanes[0].settings.wish({ latents: this.latentsAlone });
    watch.draw();
  }

  /**
   * Return what a lane shows in place of its decode, or null: the board of A, if both show it.
   *
   * @param {Lane} lane
   * @param {number} at
   */
  shownIn(lane, at) {
    const [first, second] = this.watch.lanes;
    if (!this.isSame || lane !== second) return null;
    const trace = drawnTrace(first.decode, at);
    return trace && (this.same?.traceAt(trace, second.requested, at) ?? null);
  }

  /** Draw the buttons, and the first step in which A and B differ. */
  draw() {
    $("#compare").setAttribute("aria-pressed", String(this.isOn));
    $("#same").hidden = !this.isSameOffered;
    $("#same").setAttribute("aria-pressed", String(this.isSame));
    $("#lead").hidden = this.isOn;
    this.line.hidden = !this.isOn;
    if (this.isOn) this.drawLine();
  }

  drawLine() {
    const parts = this.isSame ? [this.same?.problem || SAME_WORDS] : this.partingLine();
    const text = parts.map((part) => (typeof part === "string" ? part : part.textContent)).join("");
    if (this.line.textContent !== text) this.line.replaceChildren(...parts);
  }

  /** The first step in which A and B differ, as a button. Nothing while a decode is awaited. */
  partingLine() {
    const [first, second] = this.watch.lanes.map(({ decode }) => drawnTrace(decode, 0));
    if (!first?.end || !second?.end) return [""];
    const step = partingStep(first, second);
    if (!step) return ["A and B decode the same tokens in the same order."];
    const button = stepButton(step, this.watch.player);
    const words = `A decodes ${decodedIn(first, step)}, B ${decodedIn(second, step)}`;
    return ["A and B first differ in ", button, `: ${words}.`];
  }
}

/**
 * Return the decoded tokens of a step in words.
 *
 * @param {Shown} trace
 * @param {number} step
 */
function decodedIn({ start, frames }, step) {
  const chosen = frames[step - 1]?.chosen ?? [];
  const words = chosen.map(([cell, token]) => `${signOf(start, token)} in ${placeOf(start, cell)}`);
  return words.join(", ") || "nothing";
}
