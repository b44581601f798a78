/** The page: its tabs, its theme and its address. */

import { addressWriter, readAddress } from "./address.js";
import { Curve } from "./curve.js";
import { $, onPress, write } from "./dom.js";
import { Masks } from "./masks.js";
import { Fault, get } from "./server.js";
import { server } from "./source.js";
import { Tabs } from "./tabs.js";
import { currentTheme, startTheme } from "./theme.js";
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

/** Copy the address of what is shown. */
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

/** @param {ModelEntry[]} models */
function start(models) {
  const { address } = readAddress();
  const writeSoon = addressWriter(() => ({ tab: tabs.current, ...addressOf(watch), theme: currentTheme() }));
  const watch = new Watch(server, () => writeSoon());
  const curve = new Curve(models);
  const masks = new Masks();
  const tabs = new Tabs(["watch", "curve", "masks"], (name) => {
    if (name !== "watch") watch.player.pause();
    if (name === "curve") curve.draw();
    if (name === "masks") masks.open();
    writeSoon();
  });
  $("#theme").addEventListener("click", () => writeSoon());
  onPress($("#copy"), () => void copyLink());
  watch.begin(models, address);
  tabs.open(address.tab ?? "watch");
  addEventListener("hashchange", () => {
    const { address: next } = readAddress();
    restore(watch, next);
    tabs.open(next.tab ?? tabs.current);
  });
}

async function begin() {
  const { address, invalid } = readAddress();
  startTheme(address.theme ?? null);
  startSkipLink();
  const traces = JSON.parse($("#traces").textContent ?? "[]");
  if (traces.length) return showTraces(traces);
  try {
    start(await get("/api/models"));
    if (invalid.length)
      complain(`${invalid.join(", ")} in the address: is not a setting. The page has its default.`);
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    complain(error.message);
  }
}

void begin();
