/** Every model of the paper as an entry of METHODS, as core/method.py. */

import { attendsEarlier, attendsLater, RULES } from "./attention.js";

/**
 * @typedef {object} Method a method as config.json has it
 * @property {"any_order" | "left_to_right"} order
 * @property {import("./attention.js").RuleName} attention
 * @property {number | null} window the largest number of masked tokens in the input; null is all
 * @property {"all" | "next"} targets
 * @property {"elbo" | "flat"} weight
 * @property {"in_place" | "shifted"} readout
 * @property {number | null} latents n if a request leaves it open; null is all
 * @property {string} [depth] "all" if left out
 * @property {"in_order" | "shuffled"} [masked_slots] of the training input; "in_order" if left out
 */
/** @typedef {keyof Method} Field */

/** @type {Method} */
const MDM = {
  order: "any_order",
  attention: "bidirectional",
  window: null,
  targets: "all",
  weight: "elbo",
  readout: "in_place",
  latents: null,
  depth: "all",
  masked_slots: "in_order",
};
/** @type {Method} */
const AR_MTP = { ...MDM, order: "left_to_right", weight: "flat" };

/** @type {Record<string, Method>} */
export const METHODS = {
  mdm: MDM,
  sidm: { ...MDM, attention: "independent", latents: 0 },
  scdm: { ...MDM, attention: "semi_causal", latents: 0 },
  esolm: { ...MDM, attention: "causal", latents: 0 },
  arm: { ...AR_MTP, attention: "causal", readout: "shifted", latents: 0 },
  "ar-mtp": AR_MTP,
  "mdm-depth": { ...MDM, depth: "uniform:0.5" },
  "scdm-depth": { ...MDM, attention: "semi_causal", latents: 0, depth: "none:0.5" },
  "ar-latents": { ...AR_MTP, attention: "causal", latents: 0, masked_slots: "shuffled" },
};

/** @type {Field[][]} The fields in which a method may differ from the entry whose name it has. */
const CHANGES = [[], ["weight"], ["targets"], ["weight", "targets"], ["depth"], ["weight", "depth"]];

/**
 * Return the method's name in METHODS, with weight, targets or depth if these differ, or "custom".
 *
 * @param {Method} method
 * @returns {string}
 */
export function nameOf(method) {
  const named = Object.entries({ ...METHODS, ...windowed(method.window) });
  for (const changed of CHANGES) {
    const entry = named.find(([, other]) =>
      differences(method, other).every((field) => changed.includes(field)),
    );
    if (!entry) continue;
    const values = changed.map((field) => method[field] ?? "all");
    return values.length ? `${entry[0]} (${values.join(", ")})` : entry[0];
  }
  return "custom";
}

/**
 * Return how n is set: "none" (there is no latent token), "fixed" (in training) or "free" (at inference).
 *
 * @param {Method} method
 * @returns {"none" | "fixed" | "free"}
 */
export function latentControl(method) {
  const rule = RULES[method.attention];
  const attendsToMasked = method.readout === "in_place" && (attendsLater(rule) || attendsEarlier(rule));
  if (!attendsToMasked) return "none";
  return attendsLater(rule) && !method.depth?.startsWith("uniform") ? "fixed" : "free";
}

/**
 * Return how many masked tokens the input may hold: all, or the window.
 *
 * @param {Method} method
 * @param {number} numMasked
 */
export const maxVisible = (method, numMasked) => Math.min(numMasked, method.window ?? numMasked);

/**
 * Return the token id that every slot receives: its token if clean, else MASK.
 *
 * With a shifted readout it is the token before.
 *
 * @param {Method} method
 * @param {number[]} tokens by position; MASK where masked
 * @param {import("./layout.js").Layout} layout
 * @param {number} maskId
 */
export function inputIds(method, tokens, layout, maskId) {
  const ids = layout.positions.map((position, slot) => (slot < layout.numClean ? tokens[position] : maskId));
  return method.readout === "shifted" ? [maskId, ...ids.slice(0, -1)] : ids;
}

/**
 * @param {number | null} window
 * @returns {Record<string, Method>}
 */
function windowed(window) {
  if (window === null) return {};
  return {
    [`ar-mtp-window-${window}`]: { ...AR_MTP, window },
    [`ar-ntp-${window}`]: { ...AR_MTP, window, targets: "next" },
  };
}

/**
 * @param {Method} first
 * @param {Method} second
 * @returns {Field[]}
 */
function differences(first, second) {
  const fields = /** @type {Field[]} */ (Object.keys(MDM));
  return fields.filter((field) => ({ ...MDM, ...first })[field] !== second[field]);
}
