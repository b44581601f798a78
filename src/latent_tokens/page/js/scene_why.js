/** Scene 4: the masked tokens after the target are left out or kept, and its prediction is the same. */

import { RULES, visibleSlots } from "./attention.js";
import { Board } from "./board.js";
import { $, messageOf, plural, write } from "./dom.js";
import { readPuzzle } from "./puzzle.js";
import { SIX_GEOMETRY } from "./scene_one.js";

/** @typedef {import("./attention.js").RuleName} RuleName */
/** @typedef {import("./prediction.js").Prediction} Prediction */

/** @param {number} rank of a masked square in the input, from 0: a number would read as a digit */
const letterOf = (rank) => String.fromCharCode(65 + rank);
const ALONE = { name: "left out", id: "#why-left" };
const KEPT = { name: "kept", id: "#why-kept" };

export class SceneWhy {
  dial = /** @type {HTMLInputElement} */ ($("#why-dial"));
  boards = [ALONE, KEPT].map(({ id }) => new Board($(`${id} .board`), () => {}));
  /** @type {RuleName} */
  rule = "semi_causal";
  version = 0; // of the latest prediction

  /**
   * @param {{ model: string, corrected: import("./scene_one.js").OneBoard }} record
   * @param {import("./models.js").Engine} engine
   */
  constructor({ model, corrected }, engine) {
    this.model = model;
    this.one = corrected;
    this.engine = engine;
    this.tokens = readPuzzle(corrected.puzzle, SIX_GEOMETRY.columns);
    this.dial.max = String(corrected.others.length - 1);
    this.dial.addEventListener("input", () => void this.draw());
    for (const button of document.querySelectorAll("#why-rules button")) {
      button.addEventListener("click", () => {
        this.rule = /** @type {RuleName} */ (/** @type {HTMLElement} */ (button).dataset.rule);
        void this.draw();
      });
    }
    void this.draw();
  }

  /** Draw both inputs, then their predictions. */
  async draw() {
    const version = ++this.version;
    const { rule, one } = this;
    const n = Number(this.dial.value);
    const before = one.others.slice(0, n);
    const after = one.others.slice(n);
    for (const button of document.querySelectorAll("#why-rules button")) {
      const isPressed = /** @type {HTMLElement} */ (button).dataset.rule === rule;
      button.setAttribute("aria-pressed", String(isPressed));
    }
    write($("#why-n"), String(n));
    this.dial.setAttribute("aria-valuetext", plural(n, "latent token"));
    this.drawInput(0, before, [], null);
    this.drawInput(1, before, after, null);
    const isTrained = rule === "semi_causal";
    write(
      $("#why-rule"),
      isTrained
        ? "Semi-causal attention, as in training: a masked square attends to the given squares and to the " +
            "masked ones before it, never to those after it. So they can be left out, exactly."
        : "Bidirectional attention: every square attends to every other. These weights were not trained " +
            "so. Each masked square changes the prediction, and none can be left out.",
    );
    const requests = [[], after].map((later) => ({
      tokens: this.tokens,
      candidates: [one.target, ...later],
      latents: before,
      rule,
    }));
    try {
      const predictions = await Promise.all(
        requests.map((request) => this.engine.predict(this.model, request)),
      );
      if (version !== this.version) return;
      this.drawInput(0, before, [], predictions[0]);
      this.drawInput(1, before, after, predictions[1]);
      this.compare(predictions, after.length);
    } catch (error) {
      write($("#why-words"), messageOf(error));
    }
  }

  /**
   * @param {number} side of the two boards
   * @param {number[]} before masked squares before the target
   * @param {number[]} after those after it that are in the input
   * @param {Prediction | null} prediction
   */
  drawInput(side, before, after, prediction) {
    const { target } = this.one;
    const masked = [...before, target, ...after];
    const cells = this.tokens.map((token, cell) => {
      if (token !== null) return { sign: String(token + 1), kind: "given", label: `${token + 1}, given` };
      const rank = masked.indexOf(cell);
      if (rank < 0) return { sign: "", kind: "out", label: "masked, left out of the input" };
      const sign = letterOf(rank);
      if (cell === target) return { sign: "?", kind: "target", label: `masked square ${sign}, decoded next` };
      const [kind, words] = rank < before.length ? ["latent", "before it"] : ["later", "after it"];
      return { sign, kind, label: `masked square ${sign}, ${words}` };
    });
    const name = `The input with the later squares ${side ? KEPT.name : ALONE.name}`;
    const board = this.boards[side];
    board.draw({ ...SIX_GEOMETRY, name }, cells);

    // The squares that the target attends to.
    const given = [...this.tokens.keys()].filter((cell) => this.tokens[cell] !== null);
    const slots = [...given, ...masked];
    const query = slots.indexOf(target);
    const visible = visibleSlots(RULES[this.rule], slots.length, given.length)[query];
    const lines = [...visible]
      .map((slot) => slots[slot])
      .filter((cell) => cell !== target)
      .map((cell) => ({
        cell,
        weight: prediction?.attention[target][cell] ?? 0,
        kind: given.includes(cell) ? "from-given" : before.includes(cell) ? "from-latent" : "from-later",
      }));
    board.drawRays(target, lines);
  }

  /**
   * @param {Prediction[]} predictions
   * @param {number} numAfter
   */
  compare(predictions, numAfter) {
    const { target } = this.one;
    const tops = predictions.map(({ beliefs }) => beliefs[target][0]);
    const words = tops.map(([token, p]) => `${token + 1}, ${(100 * p).toFixed(1)}%`);
    const isEqual = words[0] === words[1];
    write($("#why-left .said"), words[0]);
    write($("#why-kept .said"), words[1]);
    write($("#why-equal"), isEqual ? "=" : "≠");
    $("#why").dataset.equal = String(isEqual);
    const count = plural(numAfter, "masked square");
    write(
      $("#why-words"),
      isEqual
        ? `With or without the ${count} after it, the model says the same: ${words[0]}.`
        : `The ${count} after it change the prediction: ${words[0]} without them, ${words[1]} with them.`,
    );
  }
}
