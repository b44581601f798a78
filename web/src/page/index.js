/** The page: its tabs, its theme and its address. */

import { addressWriter, readAddress } from "./address.js";
import { Attention } from "./attention.js";
import { OneCell } from "./cell.js";
import { Curve } from "./curve.js";
import { $, onPress, write } from "./dom.js";
import { Engine, inlineReader } from "./engine.js";
import { Race } from "./race.js";
import { recall, showAlone } from "./recorded.js";
import { sourceOf } from "./source.js";
import { Tabs } from "./tabs.js";
import { currentTheme, dress, startTheme } from "./theme.js";
import { Watch } from "./watch.js";
import { addressOf, restore } from "./watch_address.js";

/** @typedef {import("./types.js").ModelEntry} ModelEntry */

/** @param {string} text */
function complain(text) {
  $("#fault").hidden = !text;
  write($("#fault"), text);
}

/** The link moves the focus and leaves the address. */
function startSkipLink() {
  $(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    $("#main").focus();
  });
}

/** Copy the address of the current view. */
async function copyLink() {
  const button = $("#copy");
  const words = $("#copy-words");
  button.classList.add("told");
  try {
    await navigator.clipboard.writeText(location.href);
    write(words, "Copied");
  } catch {
    write(words, "Copy it from the address bar");
  }
  setTimeout(() => {
    button.classList.remove("told");
    write(words, "Copy link");
  }, 2000);
}

/** @typedef {import("./types.js").Recorded} Recorded */

/**
 * Show recorded decodes without a model.
 *
 * @param {Recorded} recorded
 */
function showRecorded(recorded) {
  document.documentElement.classList.add("offline");
  $("#tabs").hidden = true;
  showAlone(new Watch(null), recorded);
}

/**
 * Start the tabs. Some of them need the bundled model that they show.
 *
 * @param {ModelEntry[]} models
 * @param {import("./types.js").PageRecord | null} record
 * @param {import("./engine.js").ModelReader} read
 * @param {Recorded} recorded
 */
function start(models, record, read, recorded) {
  const engine = new Engine(read);
  const writeSoon = addressWriter(() => ({
    tab: tabs.current,
    ...addressOf(watch),
    ...(cell?.latents.length ? { latents: cell.latents.join(".") } : {}),
    ...(attention?.address ? { pattern: attention.address } : {}),
    theme: currentTheme(),
  }));
  const watch = new Watch(sourceOf(engine), engine, () => writeSoon());
  const showPuzzle = (/** @type {string} */ puzzle) => {
    watch.puzzle.load(puzzle, 0);
    tabs.open("watch");
    $("#play").focus();
  };
  const cell = record && new OneCell(record, engine, showPuzzle, () => writeSoon());
  if (record) new Race(record, engine);
  const attention = record && new Attention(record, engine, () => writeSoon());
  const curve = new Curve(models, inlined("#curves"), () => new Engine(read));
  const offered = { cell, watch, race: record, attention, curve };
  const names = Object.entries(offered).flatMap(([name, tab]) => (tab ? [name] : []));
  const tabs = new Tabs(names, (name) => {
    if (name !== "watch") watch.player.pause();
    if (name === "cell") cell?.open();
    if (name === "attention") attention?.open();
    if (name === "curve") curve.draw();
    writeSoon();
  });
  $("#theme").addEventListener("click", () => writeSoon());
  onPress($("#copy"), () => void copyLink());
  const isRecorded = recorded.traces.length > 0;
  watch.begin(models);
  if (isRecorded) recall(watch, recorded.traces);
  const first = !isRecorded && models[0].name === record?.model ? "cell" : "watch";
  const show = () => {
    const { address, problems } = readAddress();
    if (address.theme) dress(address.theme);
    if (!isRecorded || address.puzzle !== undefined) problems.push(...restore(watch, address));
    problems.push(...(cell?.restore(address) ?? []), ...(attention?.restore(address) ?? []));
    problems.push(...tabs.restore(address, first));
    complain(problems.join(" "));
  };
  show();
  addEventListener("hashchange", show);
}

/**
 * Return the JSON in an element of the page.
 *
 * @param {string} selector
 */
const inlined = (selector) => JSON.parse($(selector).textContent ?? "null");

function begin() {
  startTheme(readAddress().address.theme ?? null);
  startSkipLink();
  const recorded = { traces: inlined("#traces"), ...inlined("#recorded") };
  const record = inlined("#record");
  const entries = inlined("#entries");
  if (!entries) return showRecorded(recorded);
  return start(entries, record, inlineReader(inlined("#weights")), recorded);
}

begin();
