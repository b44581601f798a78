/** Elements of the page, and the formats of numbers. */

/**
 * Return the first element under `root` that a selector names.
 *
 * @template {Element} T
 * @param {string} selector
 * @param {new () => T} type the class of the element
 * @param {ParentNode} root
 * @returns {T}
 */
export function find(selector, type, root = document) {
  const element = root.querySelector(selector);
  if (!(element instanceof type)) throw new TypeError(`${selector}: is not in the page`);
  return element;
}

/**
 * Return the HTML element that a selector names.
 *
 * @param {string} selector
 * @param {ParentNode} [root]
 */
export const $ = (selector, root) => find(selector, HTMLElement, root);

/** @typedef {Record<string, string | number | boolean | null | undefined>} Attributes null leaves one out */

/**
 * Return an HTML element with attributes and children.
 *
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, attributes = {}, ...children) {
  return withContent(document.createElement(tag), attributes, children);
}

/**
 * Return an SVG element with attributes and children.
 *
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function svg(tag, attributes = {}, ...children) {
  return withContent(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/**
 * @template {Element} T
 * @param {T} element
 * @param {Attributes} attributes
 * @param {(Node | string)[]} children
 */
function withContent(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children);
  return element;
}

/**
 * Offer [value, text] pairs in a select. The chosen value is kept if it is among them.
 *
 * @param {HTMLSelectElement} select
 * @param {readonly (readonly [string, string])[]} pairs
 * @param {string} [chosen]
 */
export function offer(select, pairs, chosen = select.value) {
  select.replaceChildren(...pairs.map(([value, text]) => el("option", { value }, text)));
  select.value = pairs.some(([value]) => value === chosen) ? chosen : (pairs[0]?.[0] ?? "");
}

/**
 * Write a line. A fault is marked. Equal text is not written again, so that a screen reader is silent.
 *
 * @param {HTMLElement} line
 * @param {string} text
 * @param {boolean} [isFault]
 */
export function write(line, text, isFault = false) {
  line.classList.toggle("bad", isFault && text !== "");
  if (line.textContent !== text) line.textContent = text;
}

/**
 * Disable a button without taking the focus from it.
 *
 * @param {HTMLElement} button
 * @param {boolean} isDisabled
 */
export function disable(button, isDisabled) {
  button.setAttribute("aria-disabled", String(isDisabled));
}

/**
 * Call `action` when a button is pressed that is not disabled.
 *
 * @param {HTMLElement} button
 * @param {() => void} action
 */
export function onPress(button, action) {
  button.addEventListener("click", () => {
    if (button.getAttribute("aria-disabled") !== "true") action();
  });
}

/**
 * Return a function that calls `action` once this many milliseconds pass without another call.
 *
 * @param {() => void} action
 * @param {number} milliseconds
 */
export function settled(action, milliseconds) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(action, milliseconds);
  };
}

/** @param {number} value */
export const number = (value) => value.toLocaleString("en");
/** @param {number} share */
export const percent = (share) => (share > 0 && share < 0.005 ? "<1%" : `${Math.round(100 * share)}%`);
/** @param {number} ratio */
export const times = (ratio) => `${ratio.toFixed(2)}\u00d7`;
/**
 * @param {number} count
 * @param {string} noun
 */
export const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/**
 * Return the name of a model without the parent directories of its run.
 *
 * @param {string} name
 */
export const shortName = (name) => name.replace(/\/+$/, "").split("/").at(-1) || name;

/**
 * Return a copy of the element in a template.
 *
 * @param {string} selector
 */
export function clone(selector) {
  const element = find(selector, HTMLTemplateElement).content.firstElementChild?.cloneNode(true);
  return /** @type {HTMLElement} */ (element);
}
