/** The part of the address that the tab Watch has. */

import { problemOf } from "./address.js";
import { Fault } from "./fault.js";

/** @typedef {import("./address.js").Address} Address */
/** @typedef {import("./lane.js").Lane} Lane */
/** @typedef {import("./watch.js").Watch} Watch */

/**
 * Take the models, the settings, the puzzle and the step that an address names.
 *
 * @param {Watch} watch
 * @param {Address} address
 * @returns {string[]} what cannot be taken, and why
 */
export function restore(watch, address) {
  const { model, puzzle, n, k, order, seed, step, keep, same } = address;
  const { settings } = watch.lanes[0];
  const unknown = unknownModels(watch, address);
  if (model && !unknown.length) settings.setModel(model);
  if (k) settings.wished.candidates = k;
  if (order) settings.wished.order = order;
  if (seed) watch.seed.value = seed;
  watch.keep.checked = keep === "1";
  settings.apply();
  watch.task = watch.model.task;
  watch.puzzle.loadFirst();
  const problems = [...unknown, ...restorePuzzle(watch, puzzle)];
  if (n) settings.wished.latents = n; // another puzzle forgets at which steps n changes
  restoreSecond(watch, address, unknown.length ? watch.model.name : address.model2);
  watch.comparison.isSameChosen = same === "1";
  if (step) watch.player.at = Number(step);
  const { steps } = watch;
  if (steps && Number(step) > steps) problems.push(problemOf("step", step, `the decode has ${steps} steps`));
  watch.draw();
  return problems;
}

/**
 * Return the models of an address that the page does not offer, in words.
 *
 * @param {Watch} watch
 * @param {Address} address
 */
function unknownModels(watch, address) {
  const names = watch.lanes[0].settings.offered.map(({ name }) => name);
  return ["model", "model2"]
    .filter((entry) => address[entry] && !names.includes(address[entry]))
    .map((entry) => problemOf(entry, address[entry], `the page offers ${names.join(", ")}`));
}

/**
 * Load the puzzle of an address, if it has one.
 *
 * @param {Watch} watch
 * @param {string | undefined} puzzle
 * @returns {string[]} why it cannot be read
 */
function restorePuzzle(watch, puzzle) {
  if (puzzle === undefined) return [];
  try {
    watch.puzzle.take(puzzle, 0);
    return [];
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    return [problemOf("puzzle", puzzle, error.message.replace(/\.$/, ""))];
  }
}

/**
 * Begin, change or end the comparison, as an address names a second board or none.
 *
 * @param {Watch} watch
 * @param {Address} address
 * @param {string | undefined} model of the second board
 */
function restoreSecond({ comparison, lanes, model: first }, { n, n2, k2, order2, model2 }, model) {
  if (comparison.isOn) comparison.end();
  if (!model2 && !n2) return;
  const { latents, candidates, order } = lanes[0].settings.wished;
  const second = { latents: n2 ?? "all", candidates: k2 ?? candidates, order: order2 ?? order };
  comparison.begin({ latents: n ?? latents }, second, model ?? first.name);
}

/**
 * Return what an address names.
 *
 * @param {Watch} watch
 * @returns {Address}
 */
export function addressOf({ lanes, puzzle, seed, keep, player, comparison }) {
  const first = settingsOf(lanes[0], "");
  const second = comparison.isOn ? settingsOf(lanes[1], "2") : {};
  const counts = { seed: seed.value || "0", step: String(player.at), ...(keep.checked ? { keep: "1" } : {}) };
  const address = { ...first, puzzle: puzzle.text, ...second, ...counts };
  return comparison.isSame ? { ...address, same: "1" } : address;
}

/**
 * Return the settings of a board. A number of latent tokens that the model decides is left out. If the order
 * ignores k, the address has the k of the other orders.
 *
 * @param {Lane} lane
 * @param {string} suffix of the names of the entries
 * @returns {Address}
 */
function settingsOf({ requested: { model, latents, candidates, order }, settings }, suffix) {
  const k = settings.candidates.disabled ? settings.wished.candidates : candidates;
  const entries = {
    [`model${suffix}`]: model,
    ...(k ? { [`k${suffix}`]: k } : {}),
    [`order${suffix}`]: order,
  };
  return latents === undefined ? entries : { ...entries, [`n${suffix}`]: latents };
}
