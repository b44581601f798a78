/** The player: the step that is shown, and its buttons. */

import { $, write } from "./dom.js";

const PAUSE = 500; // milliseconds per step

export class Player {
  at = 0;
  most = 0;
  timer = 0;

  /**
   * @param {() => void} moved
   * @param {string} [prefix] of the ids of its elements
   */
  constructor(moved, prefix = "") {
    this.moved = moved;
    this.prefix = prefix;
    this.slider = /** @type {HTMLInputElement} */ ($(`#${prefix}step`));
    this.slider.addEventListener("input", () => this.goTo(Number(this.slider.value)));
    $(`#${prefix}step-back`).addEventListener("click", () => this.goTo(this.at - 1));
    $(`#${prefix}step-on`).addEventListener("click", () => this.goTo(this.at + 1));
    $(`#${prefix}play`).addEventListener("click", () => (this.timer ? this.pause() : this.play()));
  }

  play() {
    if (this.at === this.most) this.show(0);
    this.timer = window.setInterval(() => {
      this.show(this.at + 1);
      if (this.at === this.most) this.pause();
    }, PAUSE);
    write($(`#${this.prefix}play`), "Pause");
  }

  pause() {
    clearInterval(this.timer);
    this.timer = 0;
    write($(`#${this.prefix}play`), "Play");
  }

  /** @param {number} step */
  goTo(step) {
    this.pause();
    this.show(step);
  }

  /** @param {number} step */
  show(step) {
    this.at = Math.max(0, Math.min(step, this.most));
    this.moved();
  }

  /**
   * Take the number of steps of the decodes. At their end, it stays at their end.
   *
   * @param {number} most
   */
  setMost(most) {
    if (this.at === this.most || this.at > most) this.at = most;
    this.most = most;
  }

  draw() {
    this.slider.max = String(this.most);
    this.slider.value = String(this.at);
    this.slider.setAttribute("aria-valuetext", `step ${this.at} of ${this.most}`);
    write($(`#${this.prefix}step-words`), `Step ${this.at} of ${this.most}`);
  }
}
