/** The address: the part after # has the state of the page, so that a link leads to the same view. */

import { ORDERS } from "./settings.js";
import { settled } from "./dom.js";

/** @typedef {Record<string, string>} Address */
/** @typedef {{ isValid: (value: string) => boolean, words: string }} Rule */

const QUIET = 200; // milliseconds without a change before the address is written

/** @type {(words: string, isValid: (value: string) => boolean) => Rule} */
const rule = (words, isValid) => ({ words, isValid });
/** @type {(values: readonly string[]) => Rule} */
const oneOf = (values) => rule(`must be one of ${values.join(", ")}`, (value) => values.includes(value));

const TURNS = /^(all|\d{1,4})(,(all|\d{1,4})@\d{1,4})*$/; // such as all,4@7
const ANY = rule("", () => true);
const LATENTS = rule("must be a number of latent tokens or all", (value) => TURNS.test(value));
const STEP = rule("must be a whole number from 0 to 9999", (value) => /^\d{1,4}$/.test(value));
const SEED = rule("must be a whole number of at most 15 digits", (value) => /^\d{1,15}$/.test(value));
const CELLS = rule("must be cells with a dot between them", (value) => /^\d+(\.\d+)*$/.test(value));
const PATTERN = rule("must be a method and a number, such as scdm.4 or scdm.4.kept", (value) =>
  /^(mdm|sidm|scdm|esolm)\.\d{1,3}(\.kept)?$/.test(value),
);
const K = rule("must be a number of candidates from 1, all or growing", (value) =>
  /^([1-9]\d{0,3}|all|growing)$/.test(value),
);
const ORDER = oneOf(ORDERS.map(([order]) => order));

/** @type {Record<string, Rule>} The entries of an address. Those that end in 2 are of the second board. */
const RULES = {
  tab: ANY,
  model: ANY,
  puzzle: ANY,
  n: LATENTS,
  k: K,
  order: ORDER,
  seed: SEED,
  step: STEP,
  theme: oneOf(["dark", "light"]),
  latents: CELLS,
  pattern: PATTERN,
  model2: ANY,
  n2: LATENTS,
  k2: K,
  order2: ORDER,
  same: oneOf(["1"]),
  keep: oneOf(["1"]),
};

/**
 * Return the state in the address, and what is wrong with its other entries. A single word is a tab.
 *
 * @returns {{ address: Address, problems: string[] }}
 */
export function readAddress() {
  const text = location.hash.slice(1);
  if (/^[\w-]*$/.test(text)) return { address: text ? { tab: text } : {}, problems: [] };
  /** @type {Address} */
  const address = {};
  const problems = [];
  for (const [name, value] of new URLSearchParams(text)) {
    if (!Object.hasOwn(RULES, name)) problems.push(problemOf(name, value, "is not a setting of the page"));
    else if (!RULES[name].isValid(value)) problems.push(problemOf(name, value, RULES[name].words));
    else address[name] = value;
  }
  return { address, problems };
}

/**
 * Return what is wrong with an entry of the address, which the page leaves out.
 *
 * @param {string} name
 * @param {string} value
 * @param {string} problem
 */
export const problemOf = (name, value, problem) => `${name}=${value} in the address: ${problem}.`;

/**
 * Return a function that writes a state to the address, once it is quiet.
 *
 * @param {() => Address} state
 */
export function addressWriter(state) {
  return settled(() => history.replaceState(null, "", `#${new URLSearchParams(state())}`), QUIET);
}
