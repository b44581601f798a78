/** The settings of a decode: their values and their names. */

/** @type {readonly (readonly [string, string])[]} */
export const CANDIDATES = [
  ...["1", "2", "4", "8", "16", "all"].map((k) => /** @type {const} */ ([k, k])),
  ["growing", "given and decoded cells + 1"],
];

/** @type {readonly (readonly [string, string])[]} */
export const ORDERS = [
  ["top_prob", "top-prob"],
  ["margin", "margin"],
  ["entropy", "entropy"],
  ["uniform", "uniform"],
  ["left_to_right", "left-to-right"],
];

/**
 * Return the name of a decoding order.
 *
 * @param {string} order
 */
export const orderName = (order) => ORDERS.find(([value]) => value === order)?.[1] ?? order;

/**
 * Return the orders that a model supports.
 *
 * @param {{ left_to_right: boolean }} model
 */
export const ordersFor = (model) =>
  ORDERS.filter(([name]) => !model.left_to_right || name === "left_to_right");

/**
 * Return whether an order chooses among k candidates. The others have the next cell as only candidate.
 *
 * @param {string} order
 */
export const isAdaptive = (order) => ["top_prob", "margin", "entropy"].includes(order);

const FIXED_IN_TRAINING = "Fixed: the number was set in training.";
/** @type {Record<string, string>} Why the number of latent tokens of a method is fixed. */
const FIXED = {
  mdm: "Fixed: all masked tokens attend to each other, so all of them are always in the input.",
  sidm: "None: masked tokens do not attend to each other, so latent tokens cannot help.",
  arm: "None: this model attends to clean tokens only and decodes the next one.",
  "ar-mtp": "Fixed: all masked tokens are always in the input.",
};

/** @param {string} method */
export const whyFixed = (method) => FIXED[method] ?? FIXED_IN_TRAINING;

/** @type {Record<string, string>} */
const METHOD_NAMES = {
  mdm: "Masked diffusion model (MDM)",
  sidm: "Semi-independent diffusion model (SIDM)",
  scdm: "Semi-causal diffusion model (SCDM)",
  esolm: "Esoteric language model (Eso-LM)",
  arm: "Autoregressive model (ARM)",
  "ar-mtp": "Autoregressive model with multi-token prediction (AR-MTP)",
};

/** @param {string} method */
export const methodName = (method) => METHOD_NAMES[method] ?? method;
