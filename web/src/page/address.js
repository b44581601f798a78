/** The address: the part after # has the state of the page, so that a link leads to the same view. */

import { CANDIDATES, ORDERS } from "./settings.js";
import { settled } from "./dom.js";

/** @typedef {Record<string, string>} Address */

const QUIET = 200; // milliseconds without a change before the address is written

/** @type {Record<string, (value: string) => boolean>} Whether a value is one that the page can take. */
const VALID = {
  n: (value) => /^(all|\d{1,4})(,(all|\d{1,4})@\d{1,4})*$/.test(value),
  k: (value) => CANDIDATES.some(([k]) => k === value),
  order: (value) => ORDERS.some(([order]) => order === value),
  seed: (value) => /^\d{1,6}$/.test(value),
  step: (value) => /^\d{1,4}$/.test(value),
  keep: (value) => value === "1",
  theme: (value) => value === "dark" || value === "light",
};

/**
 * Return the state in the address, and the entries that are not valid. A single word is a tab.
 *
 * @returns {{ address: Address, invalid: string[] }}
 */
export function readAddress() {
  const text = location.hash.slice(1);
  if (/^[a-z-]*$/.test(text)) return { address: text ? { tab: text } : {}, invalid: [] };
  const entries = [...new URLSearchParams(text)];
  const isValid = (/** @type {[string, string]} */ [name, value]) => VALID[name]?.(value) ?? true;
  const invalid = entries.filter((entry) => !isValid(entry)).map(([name, value]) => `${name}=${value}`);
  return { address: Object.fromEntries(entries.filter(isValid)), invalid };
}

/**
 * Return a function that writes a state to the address, once it is quiet.
 *
 * @param {() => Address} state
 */
export function addressWriter(state) {
  return settled(() => history.replaceState(null, "", `#${new URLSearchParams(state())}`), QUIET);
}
