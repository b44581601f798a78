/** Scene 2: a hundred boards with few givens, solved or not, on a dial of n. */

import { Board } from "./board.js";
import { $, messageOf, number, times, write } from "./dom.js";
import { ORDER_NAMES } from "./moment.js";
import { readPuzzle } from "./puzzle.js";

/**
 * @typedef {object} Hundred written by scripts/page_examples.py
 * @property {import("./decoding.js").OrderName} order
 * @property {number} candidates
 * @property {string[]} puzzles
 * @property {string[]} solved for each n from 0 on, a bit per puzzle
 * @property {number} givens
 * @property {number[]} processed tokens processed per board, for each n
 * @property {{ givens: number, order: string, candidates: number, solved: Record<string, number> }[]} orders
 */

const SIDE_OF_HUNDRED = 6;
const FEW = 4; // latent tokens, with which a board is shown first
const GRID = { kind: "squares", name: "A hundred boards", columns: 10, count: 100 };

export class SceneHundred {
  dial = /** @type {HTMLInputElement} */ ($("#hundred-dial"));
  /** @type {AbortController | null} of the decodes that check the stored bits */
  control = null;
  /** @type {Map<number, boolean>} the results of these decodes */
  checked = new Map();

  /**
   * @param {{ model: string, seed: number, hundred: Hundred }} record
   * @param {import("./models.js").Engine} engine
   * @param {(entries: Record<string, string>) => void} show open a board in the laboratory
   */
  constructor({ model, seed, hundred }, engine, show) {
    this.model = model;
    this.seed = seed;
    this.hundred = hundred;
    this.engine = engine;
    const [none] = hundred.solved;
    this.picked = [...hundred.solved[FEW]].findIndex((bit, i) => bit > none[i]);
    this.board = new Board($("#hundred-board"), (puzzle) => {
      this.pick(puzzle);
      $("#hundred-open").scrollIntoView({ block: "nearest" });
    });
    const { length } = hundred.puzzles;
    $("#hundred-back").addEventListener("click", () => this.pick((this.picked + length - 1) % length));
    $("#hundred-on").addEventListener("click", () => this.pick((this.picked + 1) % length));
    $("#hundred-open").addEventListener("click", () => {
      const { puzzles, order, candidates } = hundred;
      const k = String(candidates);
      show({ puzzle: puzzles[this.picked], n: `0,${this.latents || FEW}`, k, order });
    });
    write($("#hundred-orders"), this.otherOrders);
    this.dial.max = String(hundred.solved.length - 1);
    this.dial.addEventListener("input", () => {
      this.stop("");
      this.draw();
    });
    $("#hundred-check").addEventListener("click", () => {
      if (this.control) this.stop("Stopped.");
      else void this.check();
    });
    this.draw();
  }

  /** @returns {number | "all"} n */
  get latents() {
    const n = Number(this.dial.value);
    return n === this.hundred.solved.length - 1 ? "all" : n;
  }

  /** The counts of the same boards in the other orders, in words. */
  get otherOrders() {
    const { givens, order, orders } = this.hundred;
    const others = orders.filter((row) => row.givens === givens && row.order !== order);
    const words = others.map(({ order: name, candidates, solved }) => {
      const [none, few, all] = Object.values(solved);
      return `${none}, ${few} and ${all} (${ORDER_NAMES[name]}, k = ${candidates})`;
    });
    return `Solved in other orders with n = 0, 4 and all: ${words.join(", ")}.`;
  }

  /** @param {number} puzzle that can be watched */
  pick(puzzle) {
    this.picked = puzzle;
    this.draw();
  }

  draw() {
    const { solved, processed } = this.hundred;
    const n = Number(this.dial.value);
    const bits = [...solved[n]];
    const count = bits.filter((bit) => bit === "1").length;
    const cells = bits.map((bit, puzzle) => {
      const isEqual = this.checked.get(puzzle);
      const check = isEqual === undefined ? "" : isEqual ? "checked" : "differs";
      const flip = bit !== solved[0][puzzle] ? "flipped" : "";
      const picked = puzzle === this.picked ? "picked" : "";
      const result = bit === "1" ? "solved" : "failed";
      const words = [bit === "1" ? "solved" : "not solved", check, picked && "chosen"];
      const label = words.filter(Boolean).join(", ");
      return { sign: "", kind: `${result} ${check} ${flip} ${picked}`, label };
    });
    this.board.draw(GRID, cells);
    write($("#hundred-open"), `Watch board ${this.picked + 1}`);
    write($("#hundred-count"), String(count));
    write($("#hundred-n"), String(this.latents));
    this.dial.setAttribute("aria-valuetext", `n = ${this.latents}, ${count} of 100 solved`);
    const most = processed[processed.length - 1];
    const cost = `${number(processed[n])} tokens processed per board, ${times(processed[n] / most)} of all.`;
    write($("#hundred-cost"), cost);
    $("#hundred-meter").style.width = `${(100 * processed[n]) / most}%`;
  }

  /** @param {string} words why the check has ended */
  stop(words) {
    this.control?.abort();
    this.control = null;
    this.checked.clear();
    write($("#hundred-check"), "Check it live");
    write($("#hundred-words"), words);
  }

  /** Decode the boards at the chosen n, and compare the results with the stored bits. */
  async check() {
    this.stop("The model is loading.");
    const control = new AbortController();
    this.control = control;
    write($("#hundred-check"), "Stop");
    const { puzzles, solved, order, candidates } = this.hundred;
    const bits = solved[Number(this.dial.value)];
    const settings = { latents: this.latents, candidates, order, seed: this.seed };
    try {
      for (const [puzzle, text] of puzzles.entries()) {
        const request = { tokens: readPuzzle(text, SIDE_OF_HUNDRED), ...settings };
        const { end } = await this.engine.decode(this.model, request, control.signal);
        this.checked.set(puzzle, end.right === (bits[puzzle] === "1"));
        const equal = [...this.checked.values()].filter(Boolean).length;
        write($("#hundred-words"), `Decoded ${this.checked.size} of 100 here: ${equal} as stored.`);
        this.draw();
      }
      this.control = null;
      write($("#hundred-check"), "Check it live");
    } catch (error) {
      if (!control.signal.aborted) this.stop(messageOf(error));
    }
  }
}
