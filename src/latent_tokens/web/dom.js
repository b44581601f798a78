"use strict";

/** The first element under `root` that a selector names. */
const $ = (selector, root = document) => root.querySelector(selector);

/** An HTML element with attributes (null leaves one out) and children. */
function el(tag, attributes = {}, ...children) {
  return built(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
function svg(tag, attributes = {}, ...children) {
  return built(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function built(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Makes `select` offer [value, text] pairs, keeping what is chosen where it is still on offer. */
function offer(select, pairs, chosen = select.value) {
  select.replaceChildren(...pairs.map(([value, text]) => el("option", { value }, text)));
  select.value = pairs.some(([value]) => String(value) === String(chosen)) ? chosen : (pairs[0]?.[0] ?? "");
}

const number = (value) => value.toLocaleString("en");
const percent = (share) => (share > 0 && share < 0.005 ? "<1%" : `${Math.round(100 * share)}%`);
const times = (ratio) => `${ratio.toFixed(2)}\u00d7`;
const plural = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;

/** `action`, called once things have been quiet for so many milliseconds. */
function settled(action, milliseconds) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
}

/** The name of a model without the parent directories of its run. */
const shortName = (name) => name.split("/").at(-1);

/** Says `text` in a line that is there for it; a fault is marked as one. */
function say(line, text, bad = false) {
  line.classList.toggle("bad", bad && text !== "");
  if (line.textContent !== text) line.textContent = text;
}
