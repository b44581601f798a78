/** Elements of the page, and the formats of numbers. */

/**
 * Return the element that a selector names.
 *
 * @template {Element} [T=HTMLElement]
 * @param {string} selector
 * @param {ParentNode} [root]
 * @returns {T}
 */
export function $(selector, root = document) {
  const element = root.querySelector(selector);
  if (!element) throw new TypeError(`${selector}: is not in the page`);
  return /** @type {T} */ (/** @type {unknown} */ (element));
}

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
 * Write text to an element. Equal text is not written again, so that a screen reader is silent.
 *
 * @param {HTMLElement} element
 * @param {string} text
 */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** @param {unknown} error */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * Offer [value, text] pairs in a select.
 *
 * @param {HTMLSelectElement} select
 * @param {readonly (readonly [string, string])[]} pairs
 */
export function offer(select, pairs) {
  select.replaceChildren(...pairs.map(([value, text]) => el("option", { value }, text)));
}

/**
 * Set a field of a form. A value that a select does not offer is added.
 *
 * @param {HTMLInputElement | HTMLSelectElement} field
 * @param {string} value
 */
export function setValue(field, value) {
  field.value = value;
  if (!(field instanceof HTMLSelectElement) || field.selectedIndex >= 0) return;
  field.append(el("option", { value }, value));
  field.value = value;
}

/** @param {number} value */
export const number = (value) => value.toLocaleString("en");
/** @param {number} ratio */
export const times = (ratio) => `${ratio.toFixed(2)}\u00d7`;
/**
 * @param {number} count
 * @param {string} noun
 */
export const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/**
 * Return probabilities as percentages whose sum is that of the probabilities (largest remainder).
 *
 * @param {readonly number[]} probabilities
 */
export function percents(probabilities) {
  const exact = [...probabilities, Math.max(0, 1 - probabilities.reduce((a, b) => a + b, 0))];
  const whole = exact.map((p) => Math.floor(100 * p + 1e-9));
  const rest = (/** @type {number} */ i) => 100 * exact[i] - whole[i];
  const byRest = [...exact.keys()].sort((a, b) => rest(b) - rest(a));
  const missing = 100 - whole.reduce((a, b) => a + b, 0);
  for (const i of byRest.slice(0, Math.max(0, missing))) whole[i] += 1;
  return probabilities.map((p, i) => (p > 0 && whole[i] === 0 ? "<1%" : `${whole[i]}%`));
}

/**
 * Show the most likely tokens as bars with their probabilities.
 *
 * @param {HTMLElement} list
 * @param {readonly (readonly [number, number])[]} beliefs
 * @param {(token: number) => string} signOf
 * @param {number} [most]
 */
export function drawBars(list, beliefs, signOf, most = 3) {
  const shares = percents(beliefs.map(([, probability]) => probability));
  list.replaceChildren(
    ...beliefs.slice(0, most).map(([token, probability], rank) => {
      const bar = el("i");
      bar.style.width = `${100 * probability}%`;
      const share = el("span", {}, shares[rank]);
      return el("li", {}, el("b", {}, signOf(token)), el("span", {}, bar), share);
    }),
  );
}

/**
 * Return the name of a model without the parent directories of its run.
 *
 * @param {string} name
 */
export const shortName = (name) => name.replace(/\/+$/, "").split("/").at(-1) || name;
