/** The attention mask as a table and as a diagram. */

import { el, svg } from "./dom.js";

/** @typedef {import("./masks.js").Mask} Mask */
/** @typedef {Mask["slots"][number]} Slot */
/**
 * @typedef {object} MaskView
 * @property {Slot[]} slots
 * @property {boolean[][]} mask the rows of the slots in the input
 * @property {number} chosen the slot whose attention is drawn
 * @property {boolean} isShifted whether a slot's input is the token before it
 */

const NOUNS = { clean: "clean", latent: "latent", candidate: "candidate", hidden: "skipped" };
const LETTERS = { clean: "C", latent: "L", candidate: "K", hidden: "" };
const STEP = 52; // between two slots of the diagram
const SIDE = 40; // of a slot
const TOP = 20; // of the outputs
const BOTTOM = 130; // of the inputs
const LEFT = 90;

/**
 * @param {HTMLElement} table
 * @param {MaskView} view
 */
export function drawMask(table, { slots, mask, chosen }) {
  const heads = slots.slice(0, mask.length).map((slot) => {
    const title = `${NOUNS[slot.kind]}, position ${slot.position + 1}`;
    return el("th", { scope: "col", title }, `${LETTERS[slot.kind]}${slot.position + 1}`);
  });
  const rows = mask.map((row, query) => {
    const head = el("th", { scope: "row" }, `${NOUNS[slots[query].kind]} ${slots[query].position + 1}`);
    const cells = row.slice(0, mask.length).map((sees, key) => {
      const words = el("span", { class: "unseen" }, sees ? "attends" : "no");
      return el("td", { class: sees ? `sees to-${slots[key].kind}` : null }, el("i"), words);
    });
    return el("tr", { class: query === chosen ? "asked" : null }, head, ...cells);
  });
  table.replaceChildren(
    el("caption", { class: "unseen" }, "Attention mask: queries by keys"),
    el("thead", {}, el("tr", {}, el("td"), ...heads)),
    el("tbody", {}, ...rows),
  );
}

/**
 * @param {HTMLElement} box
 * @param {MaskView} view
 * @param {(slot: number) => void} choose
 */
export function drawDiagram(box, view, choose) {
  const { slots, mask, chosen } = view;
  const size = `0 0 ${LEFT + slots.length * STEP} 190`;
  const picture = svg("svg", { viewBox: size, role: "radiogroup", "aria-label": "Outputs" });
  picture.append(
    svg("text", { x: 30, y: TOP }, "Output"),
    svg("text", { x: 30, y: BOTTOM }, "Input"),
    svg("text", { x: 30, y: BOTTOM + 38, class: "small" }, "position"),
  );
  (mask[chosen] ?? []).forEach((sees, key) => {
    const line = { x1: xOf(key), y1: BOTTOM - SIDE / 2, x2: xOf(chosen), y2: TOP + SIDE / 2 };
    if (sees) picture.append(svg("line", { ...line, class: `ray to-${slots[key].kind}` }));
  });
  slots.forEach((slot, place) => picture.append(outputOf(view, place, choose), inputOf(view, slot, place)));
  box.replaceChildren(picture);
}

/** @param {number} slot */
const xOf = (slot) => LEFT + slot * STEP;

/**
 * @param {MaskView} view
 * @param {number} place
 * @param {(slot: number) => void} choose
 */
function outputOf({ slots, mask, chosen }, place, choose) {
  const slot = slots[place];
  const isLive = place < mask.length;
  const isChosen = place === chosen;
  const radio = {
    role: "radio",
    "aria-checked": isChosen,
    tabindex: isChosen ? 0 : -1,
    "aria-label": `${NOUNS[slot.kind]}, position ${slot.position + 1}`,
    "data-slot": place,
  };
  const text = svg("text", { x: xOf(place), y: TOP }, isLive ? `x${slot.position + 1}` : "");
  const shape = square(slot, xOf(place), TOP, isChosen ? "target" : "");
  const output = svg("g", isLive ? radio : { "aria-hidden": "true" }, shape, text);
  if (!isLive) return output;
  output.addEventListener("click", () => choose(place));
  output.addEventListener("keydown", (event) => {
    const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, " ": 0, Enter: 0 }[event.key];
    if (way === undefined) return;
    event.preventDefault();
    choose((place + way + mask.length) % mask.length);
  });
  return output;
}

/**
 * @param {MaskView} view
 * @param {Slot} slot
 * @param {number} place
 */
function inputOf({ slots, isShifted }, slot, place) {
  const source = slots[isShifted ? place - 1 : place];
  const text = source?.kind === "clean" ? `x${source.position + 1}` : "M";
  const x = xOf(place);
  const position = svg("text", { x, y: BOTTOM + 38, class: "small" }, String(slot.position + 1));
  const shape = square(slot, x, BOTTOM, "");
  return svg("g", { "aria-hidden": "true" }, shape, svg("text", { x, y: BOTTOM }, text), position);
}

/**
 * @param {Slot} slot
 * @param {number} x
 * @param {number} y
 * @param {string} more
 */
function square({ kind }, x, y, more) {
  const rx = kind === "latent" ? SIDE / 2 : 5;
  const corner = { x: x - SIDE / 2, y: y - SIDE / 2 };
  return svg("rect", { ...corner, width: SIDE, height: SIDE, rx, class: `box ${kind} ${more}` });
}
