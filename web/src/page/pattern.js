/** The attention pattern of a method on a frozen board: the input, who is in it, and its words. */

import { RULES } from "../engine/attention.js";
import { METHODS, latentControl } from "../engine/methods.js";
import { plural } from "./dom.js";

/** @typedef {"mdm" | "sidm" | "scdm" | "esolm"} MethodName */
/** @typedef {"given" | "latent" | "candidate" | "later" | "open"} Place where a cell is in the input */
/**
 * @typedef {object} Input the cells in the input of a step
 * @property {number[]} slots the cells in their order: given ones, latent ones, the one to decode, later ones
 * @property {number} numGiven
 * @property {number} target the cell to decode
 */

/** @type {readonly (readonly [MethodName, string])[]} */
export const PATTERNS = [
  ["scdm", "SCDM"],
  ["sidm", "SIDM"],
  ["mdm", "MDM"],
  ["esolm", "Eso-LM"],
];

/** @type {Record<MethodName, string>} Why empty cells can be skipped, or why not. */
export const REASONS = {
  scdm:
    "Semi-causal (SCDM): an empty cell attends to the given cells, to itself and to the empty cells before " +
    "it. No given cell attends to an empty one. So skipping the cells after the blue one changes nothing " +
    "for it. You choose how many come before it: the latent tokens.",
  sidm:
    "Semi-independent (SIDM): an empty cell attends to the given cells and to itself. No cell attends to " +
    "another empty cell. So all other empty cells can be skipped, and latent tokens cannot help.",
  mdm:
    "Masked diffusion (MDM): every cell attends to every other cell. Each empty cell changes all other " +
    "predictions. So none can be skipped, and all are latent tokens in every step.",
  esolm:
    "Causal (Eso-LM): a cell attends to itself and to the cells before it, given or empty. So the cells " +
    "after the blue one can be skipped, as in SCDM. Given cells attend to earlier given cells only.",
};

/**
 * Return the number of latent tokens of a method that supports `n` of `most`.
 *
 * @param {MethodName} method
 * @param {number} n
 * @param {number} most
 */
export function numLatents(method, n, most) {
  return { none: 0, fixed: most, free: n }[latentControl(METHODS[method])];
}

/**
 * Return the input of a step that decodes one cell of a board.
 *
 * @param {(number | null)[]} tokens per cell the given token, or null
 * @param {number} target
 * @param {number[]} others the other empty cells, in the order of the input
 * @param {number} latents how many of them come before the target
 * @param {boolean} isSkipping whether those after it are left out
 * @returns {Input}
 */
export function inputOf(tokens, target, others, latents, isSkipping) {
  const given = [...tokens.keys()].filter((cell) => tokens[cell] !== null);
  const later = isSkipping ? [] : others.slice(latents);
  const slots = [...given, ...others.slice(0, latents), target, ...later];
  return { slots, numGiven: given.length, target };
}

/**
 * Return where a cell is in the input.
 *
 * @param {Input} input
 * @param {number} cell
 * @returns {Place}
 */
export function placeIn({ slots, numGiven, target }, cell) {
  const slot = slots.indexOf(cell);
  if (slot < 0) return "open";
  if (slot < numGiven) return "given";
  if (cell === target) return "candidate";
  return slot < slots.indexOf(target) ? "latent" : "later";
}

/**
 * Return the number of an empty cell in the order of the input, from 1, or null.
 *
 * @param {Input} input
 * @param {number} cell
 */
export function rankIn({ slots, numGiven }, cell) {
  const rank = slots.indexOf(cell) - numGiven + 1;
  return rank > 0 ? rank : null;
}

/**
 * Return the cells that a cell of the input attends to.
 *
 * @param {MethodName} method
 * @param {Input} input
 * @param {number} cell
 */
export function attendedBy(method, { slots, numGiven }, cell) {
  const rule = RULES[METHODS[method].attention];
  const query = slots.indexOf(cell);
  return slots.filter((_, key) => query >= 0 && rule(query, key, numGiven));
}

/**
 * Return what a cell attends to, in words.
 *
 * @param {MethodName} method
 * @param {Input} input
 * @param {number} cell
 */
export function wordsOf(method, input, cell) {
  const place = placeIn(input, cell);
  if (place === "open") {
    return "This cell is skipped. It is not in the input: no cell attends to it, and it is not predicted.";
  }
  const attended = attendedBy(method, input, cell);
  const others = attended.filter((other) => other !== cell);
  const count = (/** @type {Place} */ kind) =>
    others.filter((other) => placeIn(input, other) === kind).length;
  const parts = [
    [count("given"), plural(count("given"), place === "given" ? "other given cell" : "given cell")],
    [count("latent"), plural(count("latent"), place === "latent" ? "other latent token" : "latent token")],
    [count("candidate"), "the blue cell"],
    [count("later"), plural(count("later"), place === "later" ? "other later cell" : "later cell")],
    [attended.includes(cell) ? 1 : 0, "itself"],
  ].flatMap(([number, words]) => (number ? [words] : []));
  const last = parts.pop();
  const rest = input.slots.length - attended.length;
  const name = {
    given: "This given cell",
    latent: `Latent token ${rankIn(input, cell)}`,
    candidate: "The blue cell",
    later: `Empty cell ${rankIn(input, cell)}`,
  }[place];
  const list = parts.length ? `${parts.join(", ")} and ${last}` : last;
  const ignored = rest ? ` It does not attend to the other ${plural(rest, "cell")} of the input.` : "";
  return `${name} attends to ${list}.${ignored}`;
}
