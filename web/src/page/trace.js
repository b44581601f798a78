/** A trace in cells and in words. */

import { percent, plural, shortName } from "./dom.js";
import { orderName } from "./settings.js";
import { cellName } from "./sudoku.js";
import { inWords } from "./turns.js";

/** @typedef {import("./types.js").Drawn} Drawn */
/** @typedef {import("./types.js").Board} Board */

/** @typedef {"given" | "decoded" | "new" | "candidate" | "latent" | "later" | "open" | "ready"} Kind */
/**
 * @typedef {object} Cell
 * @property {Kind} kind
 * @property {number | null} token
 * @property {number | null} step in which it was decoded, from 1, or its number among the empty cells
 * @property {import("./types.js").Prediction[] | null} beliefs
 */

/** @type {Record<Kind, (cell: Cell) => string>} */
export const KINDS = {
  given: () => "given",
  decoded: (cell) => `decoded in step ${cell.step}`,
  new: () => "decoded in this step",
  candidate: () => "empty, a candidate",
  latent: () => "empty, a latent token",
  later: () => "empty, after the candidate",
  open: () => "empty, skipped in this step",
  ready: () => "empty",
};

/**
 * Return each cell after `at` steps. The last of them has its candidates and latent tokens.
 *
 * @param {Drawn} trace
 * @param {number} at
 */
export function cellsAt({ start, frames }, at) {
  const empty = /** @type {Kind} */ (at ? "open" : "ready");
  const cells = start.tokens.map((token) => cellOf(token === null ? empty : "given", token));
  const shown = frames.slice(0, at);
  shown.forEach((frame, index) => {
    for (const [cell, token] of frame.chosen) {
      cells[cell] = { ...cellOf("decoded", token), step: index + 1, beliefs: frame.beliefs[cell] ?? null };
    }
  });
  const frame = shown.at(-1);
  if (!frame) return cells;
  for (const cell of frame.candidates) markMasked(cells, cell, "candidate", frame);
  for (const cell of frame.latents) markMasked(cells, cell, "latent", frame);
  for (const [cell] of frame.chosen) cells[cell].kind = "new";
  return cells;
}

/**
 * @param {Kind} kind
 * @param {number | null} token
 * @returns {Cell}
 */
const cellOf = (kind, token) => ({ kind, token, step: null, beliefs: null });

/**
 * @param {Cell[]} cells
 * @param {number} cell
 * @param {Kind} kind
 * @param {import("./types.js").Frame} frame
 */
function markMasked(cells, cell, kind, frame) {
  if (cells[cell].kind === "open")
    cells[cell] = { ...cells[cell], kind, beliefs: frame.beliefs[cell] ?? null };
}

/** @param {Board} board */
export const numEmpty = ({ tokens }) => tokens.filter((token) => token === null).length;

/**
 * Return the number of steps of a trace, known before they have arrived.
 *
 * @param {Drawn} trace
 */
export function stepsOf({ start, frames, end }) {
  return end ? frames.length : Math.max(frames.length, numEmpty(start));
}

/**
 * Return the position of a cell in words.
 *
 * @param {Board} start
 * @param {number} cell
 */
export function placeOf(start, cell) {
  if (start.kind === "sudoku") return cellName(cell, start.columns);
  if (start.kind !== "zebra") return `place ${cell + 1}`;
  return `attribute ${start.heads[Math.floor(cell / start.columns)]}, house ${(cell % start.columns) + 1}`;
}

/**
 * Return the character of a token.
 *
 * @param {Board} start
 * @param {number} token
 */
export const signOf = (start, token) => start.signs[token] || "(blank)";

/**
 * Return the step that ends at `at` in two or three sentences.
 *
 * @param {Drawn} trace
 * @param {number} at
 * @param {boolean} isDecoded whether there are steps to play, or they are awaited
 */
export function storyAt({ start, frames, end }, at, isDecoded) {
  const hint = isDecoded ? " Press play, or step forward." : "";
  if (!at) return start.tokens.length ? `${plural(numEmpty(start), "empty cell")}.${hint}` : "";
  const frame = frames[at - 1];
  const decoded = frame.chosen.map(([cell, token]) => {
    const probability = frame.beliefs[cell]?.find(([id]) => id === token)?.[1];
    const detail = probability === undefined ? "" : ` (probability ${percent(probability)})`;
    return `${signOf(start, token)} in ${placeOf(start, cell)}${detail}`;
  });
  const { candidates, latents } = frame;
  const choice =
    candidates.length > 1 ? `of ${candidates.length} candidates, the model decodes ` : "the model decodes ";
  const verb = latents.length === 1 ? "was" : "were";
  const help = latents.length
    ? `${plural(latents.length, "latent token")} ${verb} predicted and discarded.`
    : "No latent tokens.";
  const verdict = end && at === frames.length ? verdictOf(end) : "";
  return `Step ${at}: ${choice}${decoded.join(", ")}. ${help}${verdict}`;
}

/** @param {import("./types.js").End} end */
const verdictOf = (end) => (end.right ? " The puzzle is solved." : " The answer is wrong.");

/**
 * Return the input of the step that ends at `at`, and the number of skipped masked tokens.
 *
 * @param {Drawn} trace
 * @param {number} at
 */
export function inputAt({ frames }, at) {
  const frame = frames[at - 1];
  if (!frame) return null;
  const before = frames[at - 2] ?? { processed: 0, all_processed: 0 };
  const latent = frame.latents.length;
  const candidate = frame.candidates.length;
  const processed = frame.processed - before.processed;
  const all = frame.all_processed - before.all_processed;
  return { clean: processed - latent - candidate, latent, candidate, out: Math.max(0, all - processed) };
}

/**
 * Return a setting in a few words.
 *
 * @param {import("./types.js").Start} start
 */
export function settingWords({ model, settings }) {
  const { candidates, order, temperature } = settings;
  const rest = temperature ? `, temperature ${temperature}` : "";
  return `${shortName(model)}: n = ${latentWords(settings)}, k = ${candidates}, ${orderName(order)}${rest}`;
}

/**
 * Return n of a decode, with its label if it is off-distribution.
 *
 * @param {import("./types.js").StartSettings} settings
 */
export const latentWords = ({ latents, off_distribution }) =>
  `${inWords(String(latents))}${off_distribution ? " (off-distribution)" : ""}`;
