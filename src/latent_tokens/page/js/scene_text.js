/** Scene 3: a sentence with masked words, decoded without and with latent tokens next to each other. */

import { $, el, messageOf, number, times, write } from "./dom.js";
import { Player } from "./player.js";

/** @typedef {import("./text.js").FilledStep} FilledStep */
/**
 * @typedef {object} Sentence
 * @property {number[]} tokens the author's
 * @property {number[]} masked positions
 * @property {"gained" | "lost" | "equal"} kind whether n = all decodes more of the author's words than n = 0
 */
/**
 * @typedef {object} Sentences written by scripts/page_sentences.py
 * @property {string} model
 * @property {number} seed of the order in which every sentence is decoded
 * @property {string[]} words the vocabulary. The last is the end of a sentence
 * @property {number} sentences held out
 * @property {number} tokens their masked tokens
 * @property {Record<"none" | "all", { nats: number, right: number }>} measured nats per token, tokens as the
 *   author's
 * @property {number} saved nats per token that n = all saves
 * @property {[number, number]} interval of what it saves
 * @property {Record<Sentence["kind"], number>} counts
 * @property {Sentence[]} shown
 */

const CHOSEN = {
  gained: "Chosen because n = all decodes more of the author's words than n = 0.",
  lost: "Chosen because n = all decodes fewer of the author's words than n = 0.",
  equal: "Chosen because n = all and n = 0 decode equally many of the author's words.",
};

export class SceneText {
  dial = /** @type {HTMLInputElement} */ ($("#text-dial"));
  player = new Player(() => this.draw(), "text-");
  at = 0; // the sentence
  /** @type {FilledStep[][]} of n = 0 and of the chosen n */
  fills = [[], []];
  version = 0; // of the latest decodes

  /**
   * @param {Sentences} record
   * @param {import("./models.js").Engine} engine
   */
  constructor(record, engine) {
    this.record = record;
    this.engine = engine;
    this.dial.addEventListener("input", () => void this.decode());
    $("#text-other").addEventListener("click", () => {
      this.at = (this.at + 1) % record.shown.length;
      this.open();
    });
    const { sentences, tokens, measured, saved, interval, counts } = record;
    const [low, high] = interval.map((value) => value.toFixed(3));
    const { none, all } = measured;
    write(
      $("#text-counts"),
      `${number(tokens)} masked words of ${sentences} held-out sentences: ${none.nats.toFixed(3)} ` +
        `nats per word at n = 0 and ${all.nats.toFixed(3)} at n = all. Guessing saves ${saved.toFixed(3)} ` +
        `(95% interval ${low} to ${high}). The author's words: ${none.right} at n = 0, ${all.right} at ` +
        `n = all, more in ${counts.gained} sentences and fewer in ${counts.lost}.`,
    );
    this.open();
  }

  get sentence() {
    return this.record.shown[this.at];
  }

  /** Show the first step of a sentence. */
  open() {
    const most = this.sentence.masked.length;
    this.dial.max = String(most - 1);
    this.dial.value = this.dial.max;
    this.fills = [[], []];
    this.player.goTo(0);
    this.player.most = most;
    this.player.at = 1;
    void this.decode();
  }

  /** @returns {number | "all"} n of the right side */
  get latents() {
    return this.dial.value === this.dial.max ? "all" : Number(this.dial.value);
  }

  /** Decode the sentence with both n. */
  async decode() {
    const version = ++this.version;
    const { model, seed } = this.record;
    const { tokens: answer, masked } = this.sentence;
    const tokens = answer.map((token, position) => (masked.includes(position) ? null : token));
    this.draw();
    try {
      const requests = [/** @type {const} */ (0), this.latents].map((latents) => ({
        ...{ tokens, answer, latents, seed },
      }));
      const fills = await Promise.all(requests.map((request) => this.engine.fill(model, request)));
      if (version !== this.version) return;
      this.fills = fills;
      this.draw();
    } catch (error) {
      write($("#text-words"), messageOf(error));
    }
  }

  draw() {
    const { player, latents, sentence, fills } = this;
    write($("#text-n"), String(latents));
    this.dial.setAttribute("aria-valuetext", `n = ${latents}`);
    player.draw();
    ["none", "some"].forEach((side, i) => this.drawSide($(`#text-${side}`), fills[i]));
    const isAtEnd = player.at === player.most;
    const author = sentence.tokens.slice(1, -1).map((token, i) => this.wordOf(token, i === 0));
    const hidden = "The author's words follow at the end.";
    write($("#text-words"), isAtEnd ? `The author: ${author.join(" ").replaceAll(" ,", ",")}.` : hidden);
    write($("#text-chosen"), CHOSEN[sentence.kind]);
  }

  /**
   * @param {HTMLElement} root
   * @param {FilledStep[]} steps
   */
  drawSide(root, steps) {
    const { player, sentence } = this;
    const past = steps.slice(0, player.at);
    const step = past.at(-1);
    const guesses = new Map(step?.guesses);
    const words = sentence.tokens.slice(1, -1).map((answer, i) => {
      const position = i + 1;
      const token = past.find((other) => other.position === position)?.token;
      const isFirst = position === 1;
      if (!sentence.masked.includes(position)) return { kind: "given", text: this.wordOf(answer, isFirst) };
      if (token !== undefined) {
        const isNew = position === step?.position;
        const kind = `decoded ${isNew ? "new" : token === answer ? "good" : "other"}`;
        return { kind, text: this.wordOf(token, isFirst) };
      }
      const guess = guesses.get(position);
      if (guess === undefined) return { kind: "gap", text: "" };
      return { kind: "gap guessed", text: "", guess: this.wordOf(guess, isFirst) };
    });
    const elements = words.map(({ kind, text, guess }) => {
      const above = guess === undefined ? [] : [el("i", {}, guess)];
      return el("span", { class: `word ${kind}` }, ...above, el("b", {}, text || "\u00a0"));
    });
    const spoken = words.map(({ text, guess }) => text || (guess ? `blank, guessed ${guess},` : "blank"));
    const line = $(".sentence", root);
    line.replaceChildren(...elements);
    line.setAttribute("aria-label", spoken.join(" "));
    if (!step) return write($(".cost", root), "The model is loading.");
    const right = past.filter(({ position, token }) => token === sentence.tokens[position]).length;
    const all = sentence.tokens.length * past.length;
    return write(
      $(".cost", root),
      `${right} of ${past.length} as the author's, whose words cost ${step.nats.toFixed(2)} nats. ` +
        `${number(step.processed)} tokens processed, ${times(step.processed / all)} of all.`,
    );
  }

  /**
   * @param {number} token
   * @param {boolean} isFirst whether it begins the sentence
   */
  wordOf(token, isFirst) {
    const word = this.record.words[token] ?? "";
    return isFirst ? word.charAt(0).toUpperCase() + word.slice(1) : word;
  }
}
