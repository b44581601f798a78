/** The part of the address that the tab Watch has. */

/** @typedef {import("./address.js").Address} Address */
/** @typedef {import("./watch.js").Watch} Watch */

/**
 * Take the model, the settings, the puzzle and the step that an address names.
 *
 * @param {Watch} watch
 * @param {Address} address
 */
export function restore(watch, { model = "", puzzle, n, k, order, seed, step, keep }) {
  const { settings } = watch.lanes[0];
  if (settings.offered.some(({ name }) => name === model)) settings.setModel(model);
  if (k) settings.wished.candidates = k;
  if (order) settings.wished.order = order;
  if (seed) watch.seed.value = seed;
  watch.keep.checked = keep === "1";
  settings.apply();
  watch.task = watch.model.task;
  watch.puzzle.loadFirst();
  if (puzzle !== undefined) watch.puzzle.load(puzzle, 0);
  if (n) settings.wished.latents = n; // another puzzle forgets at which steps n changes
  if (step) watch.player.at = Number(step);
  watch.draw();
}

/**
 * Return what an address names. A number of latent tokens that the model decides is left out.
 *
 * @param {Watch} watch
 * @returns {Address}
 */
export function addressOf({ lanes, puzzle, seed, keep, player }) {
  const { model, latents, candidates, order } = lanes[0].requested;
  const counts = { k: candidates, order, seed: seed.value || "0", step: String(player.at) };
  const address = { model, puzzle: puzzle.text, ...counts, ...(keep.checked ? { keep: "1" } : {}) };
  return latents === undefined ? address : { ...address, n: latents };
}
