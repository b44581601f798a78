/** A decode after some of its steps: its cells, and the words about it. */

import { placeOf } from "./board.js";
import { number, percents, plural, shortName, times } from "./dom.js";

/** @typedef {import("./board.js").Geometry} Geometry */
/** @typedef {import("./board.js").Cell} BoardCell */
/** @typedef {Omit<import("./trace.js").Trace, "start"> & { start: RecordedStart }} Recorded of any task */
/**
 * @typedef {Omit<import("./trace.js").Start, "kind" | "side" | "box"> &
 *   { kind: string, side?: number, box?: number[] }} RecordedStart
 */

const NAMES = { zebra: "The table of the solution", countdown: "The equations", text: "The text" };
/** @type {Record<string, string>} */
export const ORDER_NAMES = {
  top_prob: "top-prob",
  margin: "margin",
  entropy: "entropy",
  uniform: "uniform",
  left_to_right: "left to right",
};

/**
 * Return the geometry of the board of a trace.
 *
 * @param {RecordedStart} start
 * @returns {Geometry}
 */
export function geometryOf({ kind, columns, tokens, box, heads }) {
  const isTable = kind === "sudoku" || kind === "zebra";
  const name = { ...NAMES, sudoku: `Sudoku of ${columns} by ${columns}` }[kind] ?? "The tokens";
  const count = tokens.length;
  return { kind, name, columns: isTable ? columns : Math.max(1, count), count, box, heads };
}

/**
 * Return the characters of a token. Those that have no ink are written as signs.
 *
 * @param {RecordedStart} start
 * @param {number} token
 */
export const signOf = ({ signs }, token) => (signs[token] || "\u2423").replaceAll("\n", "\u23ce");

/**
 * Return each cell after `at` steps.
 *
 * @param {Pick<Recorded, "start" | "frames"> & { end: Recorded["end"] | null }} trace
 * @param {number} at
 * @param {readonly (number | null)[] | null} solution the only one of a Sudoku
 * @returns {BoardCell[]}
 */
export function cellsAt({ start, frames, end }, at, solution) {
  const sign = (/** @type {number} */ token) => signOf(start, token);
  const open = { sign: "", kind: "out", label: "masked, not in the input" };
  const cells = start.tokens.map((token) =>
    token === null
      ? { ...open }
      : { sign: sign(token), kind: "given", label: `${sign(token)}, given` },
  );
  frames.slice(0, at).forEach((frame, index) => {
    for (const cell of frame.again ?? []) cells[cell] = { ...open };
    for (const [cell, token] of frame.chosen) {
      const isNew = index === at - 1;
      const isWrong = solution !== null && solution[cell] !== token;
      const kind = `${isNew ? "new" : "decoded"}${isWrong ? " wrong" : ""}`;
      const words = `decoded in step ${index + 1}${isWrong ? ", wrong" : ""}`;
      cells[cell] = { sign: sign(token), kind, label: `${sign(token)}, ${words}` };
    }
  });
  const frame = frames[at - 1];
  for (const kind of /** @type {const} */ (["candidates", "latents"])) {
    for (const cell of frame?.[kind] ?? []) {
      if (frame.chosen.some(([chosen]) => chosen === cell)) continue;
      const guess = frame.beliefs[cell]?.[0]?.[0];
      const name = kind === "latents" ? "latent token" : "candidate";
      const text = guess === undefined ? "" : sign(guess);
      cells[cell] = { sign: text, kind: name.split(" ")[0], label: `masked, ${name}, most likely ${text}` };
    }
  }
  // Without a solution to compare with, what is decoded may contradict other cells.
  const broken = at === frames.length && end && !solution ? end.broken : [];
  for (const cell of broken.filter((cell) => start.tokens[cell] === null)) {
    cells[cell].kind += " wrong";
    cells[cell].label += ", in conflict";
  }
  return cells;
}

/**
 * Return the first step whose token stays and is not that of the only solution, from 1, or null.
 *
 * @param {Recorded} trace
 * @param {readonly (number | null)[] | null} solution
 */
export function firstMistake({ frames }, solution) {
  if (!solution) return null;
  const stays = (/** @type {number} */ cell, /** @type {number} */ step) =>
    !frames.slice(step + 1).some(({ again }) => again?.includes(cell));
  const index = frames.findIndex(({ chosen }, step) =>
    chosen.some(([cell, token]) => solution[cell] !== token && stays(cell, step)),
  );
  return index < 0 ? null : index + 1;
}

/**
 * Return a setting in a few words.
 *
 * @param {RecordedStart} start
 */
export function settingWords({ model, settings }) {
  const { latents, candidates, order, temperature, off_distribution, remask_every, remask_below } = settings;
  const words = [`n = ${latents}`, `k = ${candidates}`, ORDER_NAMES[order] ?? order];
  if (temperature) words.push(`temperature ${temperature}`);
  if (off_distribution) words.push("off-distribution");
  if (remask_every) words.push(`remask every ${remask_every}`);
  if (remask_below) words.push(`remask below ${remask_below}`);
  return `${shortName(model)}, ${words.join(", ")}`;
}

/**
 * Return the verdict of a decode after some steps, and whether it is right, null if that is not known yet.
 *
 * @param {Recorded} trace
 * @param {number} at
 * @param {number | null} mistake the first wrong step
 * @returns {{ words: string, isRight: boolean | null }}
 */
export function verdictAt({ start, frames, end }, at, mistake) {
  const isAtEnd = at === frames.length;
  if (start.kind === "text") return { words: isAtEnd ? "Decoded" : "Decoding", isRight: null };
  if (mistake !== null && mistake <= at) {
    return { words: `\u2715 Wrong, first in step ${mistake}`, isRight: false };
  }
  if (!isAtEnd) return { words: "Decoding", isRight: null };
  return { words: end.right ? "\u2713 Solved" : "\u2715 Wrong", isRight: end.right };
}

/**
 * Return the cost of the first steps.
 *
 * @param {Recorded} trace
 * @param {number} at
 */
export function costWords({ frames }, at) {
  const { processed, all_processed } = frames[at - 1] ?? { processed: 0, all_processed: 1 };
  const words = at < frames.length ? "tokens processed so far" : "tokens processed";
  return `${number(processed)} ${words}, ${times(processed / all_processed)} of all.`;
}

/**
 * Return what a step decodes.
 *
 * @param {Recorded} trace
 * @param {number} at
 */
export function stepWords({ start, frames }, at) {
  const frame = frames[at - 1];
  if (!frame) return `${plural(start.tokens.filter((token) => token === null).length, "masked token")}.`;
  const geometry = geometryOf(start);
  const decoded = frame.chosen.map(([cell, token]) => {
    const beliefs = frame.beliefs[cell] ?? [];
    const rank = beliefs.findIndex(([id]) => id === token);
    const share = rank < 0 ? "" : ` (${percents(beliefs.map(([, p]) => p))[rank]})`;
    return `${signOf(start, token)} in ${placeOf(geometry, cell)}${share}`;
  });
  const again = (frame.again ?? []).map((cell) => `${placeOf(geometry, cell)} is masked again. `);
  const words = `${again.join("")}${decoded.join(", ")}. ${plural(frame.latents.length, "latent token")}.`;
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}`;
}

/**
 * Return the predicted probabilities of a cell at a step: those of its decoding if it is decoded.
 *
 * @param {Recorded} trace
 * @param {number} at
 * @param {number} cell
 */
export function beliefsAt({ frames }, at, cell) {
  const seen = frames.slice(0, at);
  const last = (/** @type {(frame: import("./trace.js").Frame) => boolean} */ of) => seen.findLastIndex(of);
  const own = last(({ chosen }) => chosen.some(([decoded]) => decoded === cell));
  const isKept = own >= 0 && own >= last(({ again }) => again?.includes(cell) ?? false);
  return frames[isKept ? own : at - 1]?.beliefs[cell] ?? null;
}
