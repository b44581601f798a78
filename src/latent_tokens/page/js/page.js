/** The page: three scenes and the laboratory, or recorded decodes. */

import { joinNames, readAddress, writeAddress } from "./address.js";
import { $, el, times, write } from "./dom.js";
import { Lab } from "./lab.js";
import { Engine } from "./models.js";
import { drawPlot } from "./plot.js";
import { SceneHundred } from "./scene_hundred.js";
import { SceneOne } from "./scene_one.js";
import { SceneText } from "./scene_text.js";
import { SceneWhy } from "./scene_why.js";
import { startTheme } from "./theme.js";

/** @typedef {import("./models.js").Entry} Entry */
/** @typedef {import("./plot.js").Point} Point */
/**
 * @typedef {object} Contents
 * @property {Entry[]} entries the models
 * @property {any} record bundled/page.json, if its model is in a page without recorded decodes
 * @property {import("./scene_text.js").Sentences | null} sentences bundled/sentences.json, likewise
 * @property {Point[]} curve
 * @property {string} caption of recorded decodes
 * @property {string} reason why recorded decodes cannot be repeated
 */

/** @param {string} id */
const parsed = (id) => JSON.parse($(`#${id}`).textContent ?? "null");

/** Start what the page has contents for. */
function startPage() {
  startTheme();
  const { entries, record, sentences, curve, caption, reason } = /** @type {Contents} */ (parsed("contents"));
  const traces = parsed("traces");
  document.body.classList.toggle("recorded", traces.length > 0);
  document.body.classList.toggle("fixed", entries.length === 0);
  document.body.classList.toggle("alone", entries.length < 2);
  document.body.classList.toggle("live-lab", traces.length === 0);
  const names = entries.map(({ name }) => name);
  const engine = new Engine(sentences ? [...names, sentences.model] : names);
  const lab = new Lab(entries, engine, traces);
  $("#lab").hidden = false;
  write($("#caption"), caption);
  write($("#reason"), reason);
  for (const scene of document.querySelectorAll(".scene")) {
    /** @type {HTMLElement} */ (scene).hidden = !record;
  }
  const openAddress = () => {
    if (!readAddress(location.hash)) return;
    lab.open();
    $("#lab").scrollIntoView();
  };
  if (record) {
    new SceneOne(record, engine);
    new SceneHundred(record, engine, (entries) => {
      const address = writeAddress({ ...entries, model: joinNames([record.model]), step: "36" }); // the last
      if (location.hash === address) openAddress();
      else location.hash = address;
    });
    $("#text").hidden = !sentences;
    if (sentences) whenNear($("#text"), () => new SceneText(sentences, engine));
    whenNear($("#why"), () => new SceneWhy(record, engine));
  }
  $("#curve").hidden = !curve.length;
  if (!$("#curve").hidden) showCurve(curve);
  if (!entries.length) return;
  addEventListener("hashchange", openAddress);
  if (readAddress(location.hash)) openAddress();
  else if (!traces.length) whenNear($("#lab"), () => lab.open());
}

/**
 * Call `action` once, when an element is about to be seen.
 *
 * @param {Element} element
 * @param {() => void} action
 */
function whenNear(element, action) {
  const observer = new IntersectionObserver(
    (entries) => {
      if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
      observer.disconnect();
      action();
    },
    { rootMargin: "100%" },
  );
  observer.observe(element);
}

/** @param {Point[]} curve */
function showCurve(curve) {
  new ResizeObserver(([{ contentRect }]) => drawPlot(curve, contentRect.width)).observe($("#plot"));
  const rows = curve.map(({ method, latents, accuracy, low, high, relative }) => {
    const share = (/** @type {number} */ value) => `${(100 * value).toFixed(1)}%`;
    const values = [String(latents), share(accuracy), `${share(low)} to ${share(high)}`, times(relative)];
    return el("tr", {}, el("th", { scope: "row" }, method), ...values.map((value) => el("td", {}, value)));
  });
  $("#points tbody").replaceChildren(...rows);
}

startPage();
