/** The settings of a request, with the defaults of `latent-tokens solve`, and k and n of each step. */

import { RULES } from "./attention.js";
import { latentControl, maxVisible, nameOf } from "./methods.js";
import { CONFIDENCES } from "./probability.js";

/** @typedef {import("./methods.js").Method} Method */
/** @typedef {"top_prob" | "margin" | "entropy" | "uniform" | "left_to_right"} OrderName */
/**
 * @typedef {object} Settings what a request may set; null or left out is the default
 * @property {number | "all" | null} [latents] n
 * @property {number | "all" | "growing" | null} [candidates] k
 * @property {OrderName | null} [order]
 * @property {number | null} [temperature]
 * @property {number | null} [top_p]
 * @property {number} [seed]
 * @property {boolean} [off_distribution] allow any n for a method whose n is fixed in training
 * @property {boolean} [refresh] whether every step shuffles the masked tokens again; true if left out
 * @property {number | null} [remask_every] after how many steps the least sure token is masked again
 * @property {number} [row] the sample of a batch whose random numbers are drawn
 */
/**
 * @typedef {object} Decoding
 * @property {number | "all"} latents
 * @property {number | "all" | "growing"} candidates
 * @property {OrderName} order
 * @property {boolean} refresh
 * @property {number} temperature 0 takes the most likely token
 * @property {number} top_p
 * @property {number} seed
 * @property {boolean} isOffDistribution n leaves out masked tokens that each input had in training
 * @property {number | null} remaskEvery
 * @property {number} row
 */

const DEFAULT_CANDIDATES = 8; // the paper's k (appendix E.2)
/** @type {OrderName[]} */
const ORDERS = ["top_prob", "margin", "entropy", "uniform", "left_to_right"];

/**
 * Return the settings with defaults filled in.
 *
 * @param {Method} method
 * @param {Settings} settings
 * @returns {Decoding}
 * @throws {Error} a setting is out of range, or not supported by the method.
 */
export function decodingFor(method, settings) {
  checkSettings(settings);
  const isLeftToRight = method.order === "left_to_right";
  const order = settings.order ?? (isLeftToRight ? "left_to_right" : "top_prob");
  checkOrder(method, order);
  checkRemasking(method, settings.remask_every ?? null);
  const candidates = settings.candidates ?? DEFAULT_CANDIDATES;
  const latents = latentsFor(method, settings.latents ?? null, settings.off_distribution ?? false);
  if (candidates === "all" && order in CONFIDENCES) checkSomeAreLatent(method, settings.latents ?? null);
  return {
    latents,
    candidates: order in CONFIDENCES ? candidates : 1,
    order,
    temperature: settings.temperature ?? 0,
    top_p: settings.top_p ?? 1,
    seed: settings.seed ?? 0,
    isOffDistribution: isOffDistribution(method, latents),
    refresh: settings.refresh ?? true,
    remaskEvery: settings.remask_every ?? null,
    row: settings.row ?? 0,
  };
}

/**
 * Throw if all masked tokens are candidates, so that none of n is a latent token.
 *
 * @param {Method} method
 * @param {number | "all" | null} latents
 */
function checkSomeAreLatent(method, latents) {
  const control = latentControl(method);
  const isAsked = latents !== null && latents !== 0 && control !== "none";
  if (isAsked && (latents !== "all" || control === "free")) {
    throw new Error(
      `latents=${latents} with candidates=all: ` +
        "all masked tokens are candidates, so none is a latent token. " +
        `Use candidates=${DEFAULT_CANDIDATES}, or latents=0.`,
    );
  }
}

/**
 * @param {Method} method
 * @param {number | "all"} latents
 */
function isOffDistribution(method, latents) {
  if (latentControl(method) !== "fixed" || latents === "all") return false;
  return method.window === null || latents < method.window - 1;
}

/**
 * Return k and n of a step, together at most the method's window.
 *
 * If fewer than n + k masked tokens are left, the candidates stay and the latent tokens shrink
 * (D-13, last decoding steps).
 *
 * @param {Method} method
 * @param {Decoding} decoding
 * @param {number} numClean
 * @param {number} numMasked
 */
export function numCandidatesAndLatents(method, { candidates, latents }, numClean, numMasked) {
  const visible = maxVisible(method, numMasked);
  const wanted = candidates === "growing" ? numClean + 1 : candidates; // D-33, adaptive candidates
  const k = wanted === "all" ? visible : Math.min(wanted, visible);
  const n = latents === "all" ? visible - k : Math.min(latents, visible - k);
  return { k, n };
}

/**
 * Return k and n as a trace reports them: at most what the window has room for.
 *
 * @param {Method} method
 * @param {Decoding} decoding
 * @returns {{ candidates: number | string, latents: number | string }}
 */
export function reportedCounts({ window }, { candidates, latents }) {
  if (window === null) return { candidates, latents };
  const k = typeof candidates === "number" ? Math.min(candidates, window) : candidates;
  const shown = k === "all" ? window : k;
  const most = window - (typeof shown === "number" ? shown : 1);
  return { candidates: shown, latents: latents === "all" ? most : Math.min(latents, most) };
}

/**
 * @param {Method} method
 * @param {number | "all" | null} latents
 * @param {boolean} offDistribution
 * @returns {number | "all"}
 */
function latentsFor(method, latents, offDistribution) {
  const control = latentControl(method);
  const name = nameOf(method);
  const trainable =
    method.order === "left_to_right" ? `ar-mtp-window-${Number(latents) + 1}` : "mdm-depth";
  const own = [null, "all", ...(method.window === null ? [] : [method.window - 1])];
  if (control === "fixed" && !own.includes(latents) && !offDistribution) {
    throw new Error(
      `latents=${latents} is not supported by ${name}: ` +
        "its number of latent tokens is fixed when it is trained. " +
        `Use latents=all, a scdm or esolm model, or train ${trainable}. ` +
        "Use off_distribution=True to allow it.",
    );
  }
  if (control === "none" && latents !== null && latents !== 0) {
    throw new Error(
      `latents=${latents} is not supported by ${name}: it has no latent tokens. ` +
        "Use latents=0, or a scdm, esolm or ar-mtp model.",
    );
  }
  return control === "none" ? 0 : (latents ?? "all");
}

/**
 * @param {Method} method
 * @param {OrderName} order
 */
function checkOrder(method, order) {
  const name = nameOf(method);
  if (order in CONFIDENCES && method.order === "left_to_right") {
    throw new Error(
      `order=${order} is not supported by ${name}: it decodes the next token. ` +
        "Use order=left_to_right, or a mdm or scdm model.",
    );
  }
  if (order !== "left_to_right" && method.readout === "shifted") {
    throw new Error(
      `order is not supported by ${name}: it decodes from left to right only. ` +
        "Use order=left_to_right, or a mdm or scdm model.",
    );
  }
}

/**
 * Throw if a clean token's own prediction does not depend on all other clean ones.
 *
 * @param {Method} method
 * @param {number | null} every
 */
function checkRemasking(method, every) {
  const isBidirectional = RULES[method.attention](0, 1, 2);
  if (every === null || (method.readout === "in_place" && isBidirectional)) return;
  throw new Error(
    `remask is not supported by ${nameOf(method)}: its clean tokens do not attend to later ones. ` +
      "Use a mdm or scdm model.",
  );
}

/** @param {Settings} settings */
function checkSettings({ latents, candidates, order, temperature, top_p, seed, row, remask_every }) {
  if (latents !== "all") checkCount("latents", latents ?? 0, 0);
  if (candidates !== "all" && candidates !== "growing") checkCount("candidates", candidates ?? 1, 1);
  checkCount("seed", seed ?? 0, 0);
  checkCount("row", row ?? 0, 0);
  checkCount("remask_every", remask_every ?? 2, 2);
  if (order && !ORDERS.includes(order))
    throw new Error(`order=${order}: must be one of ${ORDERS.join(", ")}`);
  if (!((temperature ?? 0) >= 0 && Number.isFinite(temperature ?? 0))) {
    throw new Error(`temperature=${temperature}: must be 0 (argmax) or more, and finite`);
  }
  if (!((top_p ?? 1) > 0 && (top_p ?? 1) <= 1))
    throw new Error(`top_p=${top_p}: must be above 0 and at most 1`);
}

/**
 * @param {string} name
 * @param {unknown} value
 * @param {number} least
 */
function checkCount(name, value, least) {
  if (Number.isSafeInteger(value) && Number(value) >= least) return;
  throw new Error(`${name}=${value}: must be a whole number from ${least}, below 2^53`);
}
