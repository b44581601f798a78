/** The parts of a lane: the verdict, the cost, the errors and the predicted probabilities. */

import { $, el, number, percent, plural, times, write } from "./dom.js";
import { stepButton } from "./player.js";
import { KINDS, inputAt, placeOf, signOf } from "./trace.js";
import { inWords } from "./turns.js";

/** @typedef {import("./types.js").Board} Board */

const RESTING = "Choose a cell to see its predicted probabilities.";
const MOST_PREDICTIONS = 4;

/**
 * Return the mark of a verdict above the slider.
 *
 * @param {number} latents
 * @param {number} most
 * @param {boolean} right
 */
export function triedMark(latents, most, right) {
  const mark = el("span", { class: right ? "yes" : "no" }, right ? "\u2713" : "\u2715");
  mark.style.left = `${most ? Math.min(100, (100 * latents) / most) : 0}%`;
  return mark;
}

/**
 * Write the verdict, once the decode was played to its end.
 *
 * @param {HTMLElement} line
 * @param {import("./types.js").Decode} decode
 * @param {WeakSet<object>} seen
 */
export function drawOutcome(line, decode, seen) {
  if (decode.kind !== "playing") return write(line, decode.kind === "loading" ? "Decoding." : "");
  const { start, frames, end } = decode.trace;
  if (!seen.has(end)) {
    return write(line, `Decoded in ${plural(frames.length, "step")}. Play to the end for the verdict.`);
  }
  const ratio = start.all_processed ? ` (${times(end.processed / start.all_processed)})` : "";
  const before = `n = ${inWords(String(start.settings.latents))}: `;
  const verdict = end.right ? "\u2713 solved" : "\u2715 wrong";
  const after = `, ${number(end.processed)} tokens processed${ratio}`;
  if (line.textContent === before + verdict + after) return undefined;
  return line.replaceChildren(before, el("b", { class: end.right ? "yes" : "no" }, verdict), after);
}

/**
 * Write the first wrong digit, with a button that shows its step.
 *
 * @param {HTMLElement} line
 * @param {Board} start
 * @param {import("./difference.js").Mistake | null} mistake
 * @param {(step: number) => void} go
 */
export function drawMistake(line, start, mistake, go) {
  const key = JSON.stringify(mistake);
  if (line.dataset.mistake === key) return;
  line.dataset.mistake = key;
  if (!mistake) return line.replaceChildren();
  const { step, cell, token, solution } = mistake;
  const words = `First wrong digit: ${signOf(start, token)} in ${placeOf(start, cell)}, `;
  line.replaceChildren(words, stepButton(step, { step: go }), `. The solution has ${solution}.`);
}

/**
 * Draw the input of a step, and the tokens processed so far.
 *
 * @param {HTMLElement} box
 * @param {import("./types.js").Drawn} trace
 * @param {number} all the tokens processed by a decode with all latent tokens
 * @param {number} at
 */
export function drawCost(box, trace, all, at) {
  const input = inputAt(trace, at);
  const frame = trace.frames[at - 1] ?? { processed: 0, all_processed: 0 };
  const most = all || frame.all_processed || 1;
  $(".slots", box).replaceChildren(...(input ? slotsOf(input) : [el("p", {}, "No step yet.")]));
  $(".meter i", box).style.width = `${(100 * frame.processed) / most}%`;
  $(".meter b", box).style.left = `calc(${(100 * frame.all_processed) / most}% - 2px)`;
  const ratio = frame.all_processed ? ` (${times(frame.processed / frame.all_processed)})` : "";
  const counts = `${number(frame.processed)} of ${number(frame.all_processed)}`;
  $(".sum", box).textContent = input ? `${counts} with all latent tokens (mark)${ratio}` : "";
}

/** @param {NonNullable<ReturnType<typeof inputAt>>} input */
function slotsOf(input) {
  const strip = el("div", { class: "strip", "aria-hidden": "true" });
  for (const [kind, count] of Object.entries(input)) {
    if (!count) continue;
    const run = el("i", { class: `slot-${kind}` });
    run.style.flexGrow = String(count);
    run.style.setProperty("--count", String(count));
    strip.append(run);
  }
  const skipped = input.out ? `${input.out} skipped.` : "None skipped.";
  const masked = `${input.latent} latent, ${plural(input.candidate, "candidate")}`;
  const words = `${input.clean} clean, ${masked}. ${skipped}`;
  return [strip, el("p", {}, words)];
}

/**
 * @param {HTMLElement} list
 * @param {string[]} wrong
 */
export function drawWrong(list, wrong) {
  list.hidden = !wrong.length;
  list.replaceChildren(...wrong.map((words) => el("li", {}, words)));
}

/**
 * Draw the predicted probabilities of a cell.
 *
 * @param {HTMLElement} box
 * @param {Board} start
 * @param {import("./trace.js").Cell[]} cells
 * @param {number | undefined} index
 */
export function drawPredictions(box, start, cells, index) {
  const head = $("h3", box);
  const list = $("ol", box);
  const cell = index === undefined ? undefined : cells[index];
  if (!cell || index === undefined) {
    write(head, RESTING);
    return list.replaceChildren();
  }
  const kind = KINDS[cell.kind](cell);
  const place = placeOf(start, index);
  write(head, cell.beliefs ? `Predicted probabilities in ${place}, ${kind}` : `${place}: ${kind}`);
  return list.replaceChildren(...bars(start, (cell.beliefs ?? []).slice(0, MOST_PREDICTIONS)));
}

/**
 * Return a bar per prediction.
 *
 * @param {Board} start
 * @param {import("./types.js").Prediction[]} predictions
 */
export function bars(start, predictions) {
  return predictions.map(([token, probability]) => {
    const bar = el("i");
    bar.style.width = `${100 * probability}%`;
    return el("li", {}, el("span", {}, signOf(start, token)), bar, el("span", {}, percent(probability)));
  });
}
