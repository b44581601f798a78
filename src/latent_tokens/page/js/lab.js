/** The laboratory: one puzzle with two settings next to each other, step by step. */

import { joinNames, readAddress, splitNames, writeAddress } from "./address.js";
import { $, el, messageOf, offer, setValue, shortName, write } from "./dom.js";
import { Lane } from "./lane.js";
import { ORDER_NAMES } from "./moment.js";
import { offerPad } from "./pad.js";
import { Player } from "./player.js";
import { digitOf, onlySolution, readPuzzle, writePuzzle } from "./puzzle.js";

/** @typedef {import("./moment.js").Recorded} Recorded */
/** @typedef {import("./models.js").Entry} Entry */
/** @typedef {"k" | "order" | "temperature" | "top_p" | "seed"} SettingName */

const SETTINGS = /** @type {SettingName[]} */ (["k", "order", "temperature", "top_p", "seed"]);
/** @type {Record<string, string>} */
const DEFAULTS = { temperature: "0", top_p: "1", seed: "0" };

export class Lab {
  /** @type {readonly (number | null)[]} */
  tokens = [];
  /** @type {(number | null)[] | null} */
  solution = null;
  /** @type {number | null} the step that the next decode opens at: the first, or that of an address */
  firstStep = null;
  chosen = -1; // the cell whose probabilities are shown
  player = new Player(() => this.draw());
  example = /** @type {HTMLSelectElement} */ ($("#example"));
  puzzle = /** @type {HTMLInputElement} */ ($("#puzzle"));
  refresh = /** @type {HTMLInputElement} */ ($("#refresh"));
  remask = /** @type {HTMLInputElement} */ ($("#remask"));
  off = /** @type {HTMLInputElement} */ ($("#off"));

  /**
   * @param {Entry[]} entries
   * @param {import("./models.js").Engine} engine
   * @param {Recorded[]} traces
   */
  constructor(entries, engine, traces) {
    this.entries = entries;
    const pressed = (/** @type {number} */ cell) => this.choose(cell);
    const typed = (/** @type {number} */ cell, /** @type {string} */ key) => this.type(cell, key);
    this.lanes = ["a", "b"].map((name) => new Lane(name, this, engine, pressed, typed));
    if (entries.length) this.offerSettings();
    if (traces.length) this.record(traces);
  }

  /** @param {SettingName} name */
  setting(name) {
    return /** @type {HTMLInputElement | HTMLSelectElement} */ ($(`#${name}`));
  }

  get side() {
    return this.entryOf(this.lanes[0]).side;
  }

  /** @param {Lane} lane */
  entryOf(lane) {
    return this.entries.find(({ name }) => name === lane.model) ?? this.entries[0];
  }

  offerSettings() {
    const models = this.entries.map(({ name }) => /** @type {const} */ ([name, shortName(name)]));
    for (const lane of this.lanes) offer(lane.select, models);
    const orders = Object.entries(ORDER_NAMES);
    offer(/** @type {HTMLSelectElement} */ (this.setting("order")), [["", "the model's own"], ...orders]);
    const counts = ["", "1", "2", "4", "8", "16", "all", "growing"];
    const options = counts.map((k) => /** @type {const} */ ([k, k || "the default"]));
    offer(/** @type {HTMLSelectElement} */ (this.setting("k")), options);
    const fields = [...SETTINGS.map((name) => this.setting(name)), this.refresh, this.remask, this.off];
    for (const field of fields) field.addEventListener("change", () => this.decode());
    this.example.addEventListener("change", () => this.takeExample(this.example.value));
    $("#own").addEventListener("submit", (event) => {
      event.preventDefault();
      this.take(this.puzzle.value);
    });
    $("#pair").addEventListener("click", () => this.showPair($("#lab").classList.contains("single")));
    $("#copy").addEventListener("click", () => void this.copy());
  }

  /**
   * Show recorded decodes. Models of the page decode again when a setting changes.
   *
   * @param {Recorded[]} traces
   */
  record(traces) {
    this.showPair(traces.length > 1);
    const [{ start }] = traces;
    this.tokens = start.tokens;
    if (this.entries.length) {
      const { candidates, order, temperature, seed } = start.settings;
      const settings = traces.map((trace) => trace.start.settings);
      this.restore({
        model: joinNames(traces.map((trace) => trace.start.model)),
        n: settings.map(({ latents }) => latents).join(),
        puzzle: writePuzzle(start.tokens.map((token) => token)),
        k: settings.every((other) => other.candidates === candidates) ? String(candidates) : "",
        order: settings.every((other) => other.order === order) ? order : "",
        ...{ temperature: String(temperature), seed: String(seed) },
      });
    } else if (start.kind === "sudoku") this.solution = onlySolution([...start.tokens], start.columns);
    this.firstStep = null; // recorded decodes open at their end
    this.lanes.forEach((lane, i) => lane.show(traces[i] ?? null));
    const words = start.words.map((text) => el("li", {}, text));
    $("#clues").replaceChildren(...words);
    this.arrived();
  }

  /** @param {boolean} isPair */
  showPair(isPair) {
    $("#lab").classList.toggle("single", !isPair);
    write($("#pair"), isPair ? "One setting" : "Compare two settings");
    this.fault("");
    if (!isPair) {
      this.lanes[1].show(null);
      this.arrived();
    } else if (this.entries.length && this.tokens.length) this.lanes[1].decode();
  }

  /**
   * Take the entries of an address. What is left out is as at first.
   *
   * @param {Record<string, string>} entries
   */
  restore(entries) {
    this.fault("");
    const models = splitNames(entries.model ?? joinNames([this.entries[0].name]));
    const faults = this.lanes.map((lane, i) => lane.take(models[i] ?? models[0]));
    const examples = this.offerExamples();
    this.setSettings(SETTINGS, { ...(entries.puzzle === undefined && examples[0].settings), ...entries });
    this.refresh.checked = entries.keep === undefined;
    this.remask.checked = entries.remask !== undefined;
    this.off.checked = entries.off !== undefined;
    try {
      this.setPuzzle(readPuzzle(entries.puzzle ?? examples[0].puzzle, this.side));
    } catch (error) {
      this.fault(error);
      this.setPuzzle(readPuzzle(examples[0].puzzle, this.side));
    }
    const fault = faults.find(Boolean);
    if (fault) this.fault(fault);
    this.player.at = 0;
    this.player.most = 0;
    this.firstStep = /^\d+$/.test(entries.step ?? "") ? Number(entries.step) : 1;
  }

  /**
   * Set n and some settings. Those that are left out have their default.
   *
   * @param {readonly SettingName[]} names
   * @param {Record<string, string>} entries
   */
  setSettings(names, entries) {
    const n = (entries.n ?? "0,all").split(",");
    this.lanes.forEach((lane, i) => {
      lane.latents = n[i] ?? (n[0] === "all" ? "0" : "all");
    });
    for (const name of names) setValue(this.setting(name), entries[name] ?? DEFAULTS[name] ?? "");
  }

  /** Offer the examples of the first lane's model. */
  offerExamples() {
    const { examples } = this.entryOf(this.lanes[0]);
    offer(this.example, [
      ...examples.map(({ puzzle, label }, i) => /** @type {const} */ ([puzzle, label || `puzzle ${i + 1}`])),
      ["", "your own"],
    ]);
    return examples;
  }

  /** Decode the puzzle that an address names, or the first example. */
  open() {
    this.restore(readAddress(location.hash) ?? {});
    this.decode(false);
  }

  /** @param {string} text of an example, which is decoded with the settings of its label */
  takeExample(text) {
    const example = this.entryOf(this.lanes[0]).examples.find(({ puzzle }) => puzzle === text);
    if (example?.settings) this.setSettings(["k", "order"], example.settings);
    this.take(text);
  }

  /** @param {string} text of a puzzle; empty is one's own */
  take(text) {
    if (!text) return this.puzzle.focus();
    try {
      this.setPuzzle(readPuzzle(text, this.side));
      return this.decode();
    } catch (error) {
      return this.fault(error);
    }
  }

  /** @param {readonly (number | null)[]} tokens of a puzzle. Decodes of another one go */
  setPuzzle(tokens) {
    if (tokens.length !== this.tokens.length) this.chosen = -1;
    const text = writePuzzle([...tokens]);
    if (text !== writePuzzle([...this.tokens])) for (const lane of this.lanes) lane.show(null);
    this.tokens = tokens;
    this.solution = onlySolution([...tokens], this.side);
    this.puzzle.value = text;
    const { examples } = this.entryOf(this.lanes[0]);
    const known = examples.find(({ puzzle }) => writePuzzle(readPuzzle(puzzle, this.side)) === text);
    this.example.value = known?.puzzle ?? "";
    write($("#caption"), known?.caption ?? "");
  }

  /**
   * @param {number} cell
   * @param {string} key a digit, or one that empties the cell
   */
  type(cell, key) {
    if (!this.entries.length) return;
    const digit = digitOf(key);
    if (digit !== null && !(digit >= 0 && digit < this.side)) return;
    this.setPuzzle(this.tokens.map((token, other) => (other === cell ? digit : token)));
    this.choose(cell);
    this.decode();
  }

  /** @param {number} cell */
  choose(cell) {
    this.chosen = cell;
    this.draw();
  }

  /**
   * Decode the puzzle with both settings.
   *
   * @param {boolean} [isNew] whether the address follows. If not, the fault of the address stays.
   */
  decode(isNew = true) {
    if (isNew) this.changed();
    const isSingle = $("#lab").classList.contains("single");
    for (const lane of isSingle ? this.lanes.slice(0, 1) : this.lanes) lane.decode();
  }

  /** A setting has changed: the address follows. */
  changed() {
    this.fault("");
    write($("#copy"), "Copy link");
    history.replaceState(null, "", this.address);
  }

  get address() {
    const { lanes, refresh, remask, off } = this;
    const settings = SETTINGS.map((name) => [name, this.setting(name).value]);
    return writeAddress({
      puzzle: writePuzzle([...this.tokens]),
      model: this.entries.length > 1 ? joinNames(lanes.map(({ model }) => model)) : "",
      n: lanes.map(({ latents }) => latents).join(),
      ...Object.fromEntries(settings.filter(([name, value]) => value !== DEFAULTS[name])),
      keep: refresh.checked ? "" : "1",
      remask: remask.checked ? "1" : "",
      off: off.checked ? "1" : "",
      step: this.player.at === 1 ? "" : String(this.player.at),
    });
  }

  async copy() {
    const url = new URL(this.address, location.href).href;
    try {
      await navigator.clipboard.writeText(url);
      write($("#copy"), "Copied");
    } catch {
      location.hash = this.address;
      write($("#copy"), "The address has it");
    }
  }

  /** @param {unknown} error */
  fault(error) {
    write($("#lab-fault"), messageOf(error));
  }

  /** A decode has arrived, failed, or left. */
  arrived() {
    const traces = this.lanes.flatMap(({ trace }) => (trace ? [trace] : []));
    this.player.setMost(Math.max(0, ...traces.map(({ frames }) => frames.length)));
    if (this.firstStep !== null) this.player.at = Math.min(this.firstStep, this.player.most);
    this.firstStep = null;
    this.draw();
  }

  draw() {
    for (const lane of this.lanes) lane.draw(this.player.at, this.chosen, this.solution);
    this.player.draw();
    const isEditable = this.entries.length > 0 && this.chosen >= 0;
    $("#pad").hidden = !isEditable;
    if (isEditable) offerPad(this.side, (key) => this.type(this.chosen, key), (key) => this.step(key));
  }

  /** @param {string} key an arrow */
  step(key) {
    const [{ board }] = this.lanes;
    const next = board.neighbor(key, this.chosen);
    if (board.cells[next]) this.choose(next);
  }
}
