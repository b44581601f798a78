/** Recorded decodes: with their models in the page, or alone. */

import { keyOf } from "./decoder.js";
import { $, write } from "./dom.js";
import { writeSudoku } from "./sudoku.js";

/** @typedef {import("./types.js").Recorded} Recorded */
/** @typedef {import("./watch.js").Watch} Watch */

/**
 * Load the puzzle and the settings of recorded decodes, and keep the decodes.
 *
 * @param {Watch} watch
 * @param {Recorded["traces"]} traces
 */
export function recall(watch, traces) {
  const { tokens, settings } = traces[0].start;
  watch.temperature = settings.temperature;
  watch.seed.value = String(settings.seed);
  watch.lanes[0].settings.recall(traces[0].start);
  watch.task = watch.model.task;
  watch.puzzle.loadFirst();
  watch.puzzle.load(writeSudoku(tokens));
  if (traces[1]) {
    watch.comparison.begin({}, {}, traces[1].start.model);
    watch.lanes.forEach((lane, i) => lane.settings.recall(traces[i].start));
  }
  watch.draw();
  traces.forEach((trace, i) => watch.decoder?.keep(keyOf(watch.requestOf(watch.lanes[i])), trace));
}

/**
 * Show recorded decodes without a model.
 *
 * @param {Watch} watch
 * @param {Recorded} recorded
 */
export function showAlone(watch, { traces, caption, reason }) {
  watch.reason = reason;
  write($("#caption"), caption);
  for (const trace of traces.slice(0, 2)) watch.addLane().finish(trace, "");
  watch.draw();
}
