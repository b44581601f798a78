/** The page: its tabs, its theme and its address. */

import { addressWriter, readAddress } from "./address.js";
import { OneCell } from "./cell.js";
import { Curve } from "./curve.js";
import { $, onPress, write } from "./dom.js";
import { Engine, fetchModel, inlineReader } from "./engine.js";
import { Masks } from "./masks.js";
import { Race } from "./race.js";
import { Fault, get } from "./server.js";
import { inPage, server } from "./source.js";
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
  try {
    await navigator.clipboard.writeText(location.href);
    write(button, "Copied");
  } catch {
    write(button, "Copy it from the address bar");
  }
  setTimeout(() => write(button, "Copy link"), 2000);
}

/** @param {import("./types.js").Trace[]} traces */
function showTraces(traces) {
  document.documentElement.classList.add("offline");
  $("#tabs").hidden = true;
  new Watch(null).show(traces);
}

/**
 * Start the tabs. Without a server, the page has the models in it, and no tab that needs the server.
 *
 * @param {ModelEntry[]} models
 * @param {import("./types.js").PageRecord} record
 * @param {Engine} engine
 * @param {import("./source.js").Source} source
 */
function start(models, record, engine, source) {
  const hasServer = source === server;
  const writeSoon = addressWriter(() => ({
    tab: tabs.current,
    ...addressOf(watch),
    ...(cell.latents.length ? { latents: cell.latents.join(".") } : {}),
    theme: currentTheme(),
  }));
  const watch = new Watch(source, engine, () => writeSoon());
  const showPuzzle = (/** @type {string} */ puzzle) => {
    watch.puzzle.load(puzzle, 0);
    tabs.open("watch");
    $("#play").focus();
  };
  const cell = new OneCell(record, engine, showPuzzle, () => writeSoon());
  new Race(record, engine);
  const curve = hasServer ? new Curve(models) : null;
  const masks = hasServer ? new Masks() : null;
  const tabs = new Tabs(["cell", "watch", "race", ...(hasServer ? ["curve", "masks"] : [])], (name) => {
    if (name !== "watch") watch.player.pause();
    if (name === "cell") cell.open();
    if (name === "curve") curve?.draw();
    if (name === "masks") masks?.open();
    writeSoon();
  });
  $("#theme").addEventListener("click", () => writeSoon());
  onPress($("#copy"), () => void copyLink());
  watch.begin(models);
  const first = models[0].name === record.model ? "cell" : "watch";
  const show = () => {
    const { address, problems } = readAddress();
    if (address.theme) dress(address.theme);
    problems.push(...restore(watch, address), ...cell.restore(address), ...tabs.restore(address, first));
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

async function begin() {
  startTheme(readAddress().address.theme ?? null);
  startSkipLink();
  const traces = inlined("#traces");
  if (traces.length) return showTraces(traces);
  const record = inlined("#record");
  const entries = inlined("#entries");
  const weights = inlined("#weights");
  const engine = new Engine(weights ? inlineReader(weights) : fetchModel);
  try {
    if (entries) start(entries, record, engine, inPage(engine));
    else start(await get("/api/models"), record, engine, server);
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    complain(error.message);
  }
}

void begin();
