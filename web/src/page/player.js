/** The player: the step that is drawn, its buttons and its keys. */

import { $, disable, el, find, onPress } from "./dom.js";

const POLL = 50; // milliseconds until the player looks again whether a frame has arrived
const PLAY = "M5 3l8 5-8 5z";
const PAUSE = "M4 3h2.5v10H4zM9.5 3H12v10H9.5z";
const KEEPS_KEYS =
  "input, select, textarea, button, a, summary, [role='gridcell'], [role='radio'], [role='tab']";

/**
 * @typedef {object} Film what is played
 * @property {() => number} steps
 * @property {(at: number) => boolean} hasArrived whether the frames up to a step have arrived
 * @property {() => void} draw
 * @property {() => void} announce
 */

export class Player {
  at = 1;
  timer = 0;
  scrub = find("#scrub", HTMLInputElement);
  speed = find("#speed", HTMLSelectElement);
  button = $("#play");

  /** @param {Film} film */
  constructor(film) {
    this.film = film;
    onPress($("#first"), () => this.step(0));
    onPress($("#back"), () => this.step(this.at - 1));
    onPress($("#forth"), () => this.step(this.at + 1));
    onPress($("#last"), () => this.step(film.steps()));
    onPress(this.button, () => this.toggle());
    this.scrub.addEventListener("input", () => this.step(Number(this.scrub.value)));
    document.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const isElsewhere = $("#watch").hidden || event.ctrlKey || event.metaKey || event.altKey;
    if (isElsewhere || !(event.target instanceof Element)) return;
    const isFree = !event.target.closest(KEEPS_KEYS);
    const isOnBoard = event.target.closest("[role='gridcell']") !== null;
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === " " && (isFree || isOnBoard)) this.toggle();
    else if (isFree && way) this.step(this.at + way);
    else return;
    event.preventDefault();
  }

  get isPlaying() {
    return this.timer !== 0;
  }

  toggle() {
    if (this.isPlaying) this.pause();
    else this.play();
  }

  /** @param {number} at */
  step(at) {
    this.pause();
    this.go(at);
    this.film.announce();
  }

  /** @param {number} at */
  go(at) {
    this.at = Math.max(0, Math.min(at, this.film.steps()));
    this.film.draw();
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.drawButton();
  }

  play() {
    if (this.film.steps() === 0) return;
    if (this.at >= this.film.steps()) this.at = 0;
    this.next(0);
    this.drawButton();
  }

  /** @param {number} milliseconds until the next step, if its frame has arrived by then */
  next(milliseconds) {
    this.timer = window.setTimeout(() => {
      if (!this.film.hasArrived(this.at + 1)) return this.next(POLL);
      this.go(this.at + 1);
      if (this.at < this.film.steps()) return this.next(1000 / Number(this.speed.value));
      this.pause();
      return this.film.announce();
    }, milliseconds);
  }

  drawButton() {
    this.button.setAttribute("aria-label", this.isPlaying ? "Pause" : "Play");
    find("path", SVGPathElement, this.button).setAttribute("d", this.isPlaying ? PAUSE : PLAY);
  }

  draw() {
    const total = this.film.steps();
    this.at = Math.min(this.at, total);
    this.scrub.max = String(total);
    this.scrub.value = String(this.at);
    this.scrub.setAttribute("aria-valuetext", `step ${this.at} of ${total}`);
    $("#step").textContent = `Step ${this.at} of ${total}`;
    for (const name of ["#first", "#back"]) disable($(name), this.at === 0);
    for (const name of ["#last", "#forth"]) disable($(name), this.at === total);
    disable(this.button, total === 0);
  }
}

/**
 * Return a button that shows a step.
 *
 * @param {number} step
 * @param {Pick<Player, "step">} player
 */
export function stepButton(step, player) {
  const button = el("button", { type: "button", class: "link" }, `step ${step}`);
  onPress(button, () => player.step(step));
  return button;
}
