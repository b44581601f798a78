"use strict";

const SIGNS = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ@"; // Sudoku's digits, as the package writes them

/** Each cell after `at` steps, of which the last is shown with its candidates and latents. Nothing is decoded at 0. */
function cellsAt(trace, at) {
  const { start, frames } = trace;
  const cells = start.tokens.map((token) => ({ kind: token === null ? (at ? "open" : "ready") : "given", token, step: null, beliefs: null }));
  const shown = frames.slice(0, at);
  shown.forEach((frame, index) => {
    for (const [cell, token] of frame.chosen) cells[cell] = { kind: "decoded", token, step: index + 1, beliefs: frame.beliefs[cell] ?? null };
  });
  const frame = shown.at(-1);
  if (!frame) return cells;
  for (const kind of ["candidate", "latent"]) {
    for (const cell of frame[`${kind}s`]) {
      if (cells[cell].kind === "open") cells[cell] = { ...cells[cell], kind, beliefs: frame.beliefs[cell] ?? null };
    }
  }
  for (const [cell] of frame.chosen) cells[cell].kind = "new";
  return cells;
}

/** Steps that a trace takes, known before they have come. */
function stepsOf(trace) {
  return trace.end ? trace.frames.length : Math.max(trace.frames.length, trace.start.tokens.filter((token) => token === null).length);
}

/** The cells of a Sudoku's units: rows, columns, boxes. */
function unitsOf(side, [rows, columns]) {
  const units = Array.from({ length: 3 * side }, () => []);
  for (let cell = 0; cell < side * side; cell++) {
    const [row, column] = [Math.floor(cell / side), cell % side];
    const box = Math.floor(row / rows) * (side / columns) + Math.floor(column / columns);
    units[row].push(cell);
    units[side + column].push(cell);
    units[2 * side + box].push(cell);
  }
  return units;
}

const unitName = (unit, side) => `${["row", "column", "box"][Math.floor(unit / side)]} ${(unit % side) + 1}`;

/** The cells whose digit, from 0, another cell of a unit holds too, and these contradictions in words. */
function clashes(values, side, box) {
  const cells = new Set();
  const words = [];
  unitsOf(side, box).forEach((unit, index) => {
    for (const value of new Set(unit.map((cell) => values[cell]))) {
      const twins = unit.filter((cell) => values[cell] === value);
      if (value === null || twins.length < 2) continue;
      words.push(`${unitName(index, side)} holds ${value + 1} twice`);
      twins.forEach((twin) => cells.add(twin));
    }
  });
  return { cells, words };
}

/** A puzzle as its cells' digits from 0, null where empty: characters, or numbers set apart by blanks. Throws Fault where it is none. */
function readSudoku(text, side) {
  const lines = text.trim().split("\n").filter((line) => !/^[-+|=\s]*$/.test(line));
  const words = lines.join(" ").replaceAll("|", " ").split(/\s+/).filter(Boolean);
  const signs = words.length === side * side && words.every(({ length }) => length <= 2) ? words : [...words.join("")];
  if (signs.length !== side * side) throw new Fault(`A puzzle of ${signs.length} characters: ${side}x${side} has ${side * side}, row by row, 0 or . for an empty cell.`);
  return signs.map((sign, cell) => {
    if (sign === "." || sign === "0") return null;
    const digit = /^\d+$/.test(sign) ? Number(sign) - 1 : SIGNS.indexOf(sign.toUpperCase());
    if (digit >= 0 && digit < side) return digit;
    throw new Fault(`"${sign}" in ${sudokuPlace(cell, side)}: must be 1 to ${SIGNS[side - 1]}, or 0 or . for an empty cell.`);
  });
}

const writeSudoku = (digits) => digits.map((digit) => (digit === null ? "." : SIGNS[digit])).join("");

const sudokuPlace = (cell, side) => `row ${Math.floor(cell / side) + 1} column ${(cell % side) + 1}`;

/** Where a cell stands, in words. */
function placeOf(start, cell) {
  if (start.kind === "sudoku") return sudokuPlace(cell, start.side);
  if (start.kind === "zebra") return `attribute ${start.heads[Math.floor(cell / start.columns)]}, house ${(cell % start.columns) + 1}`;
  return `place ${cell + 1}`;
}

/** What a token is, for people. */
const signOf = (start, token) => start.signs[token] || "(blank)";

/** The step that ends at `at`, in two or three sentences. */
function storyAt(trace, at) {
  const { start, frames, end } = trace;
  if (!at) {
    const open = start.tokens.filter((token) => token === null).length;
    return start.tokens.length ? `${plural(open, "empty cell")}. Press play, or step forward.` : "";
  }
  const frame = frames[at - 1];
  const decoded = frame.chosen.map(([cell, token]) => {
    const sure = frame.beliefs[cell]?.find(([id]) => id === token)?.[1];
    return `${signOf(start, token)} in ${placeOf(start, cell)}${sure === undefined ? "" : ` (probability ${percent(sure)})`}`;
  });
  const { candidates, latents } = frame;
  const choice = candidates.length > 1 ? `of ${candidates.length} candidates, the model decodes ` : "the model decodes ";
  const help = latents.length ? `${plural(latents.length, "latent token")} ${latents.length === 1 ? "was" : "were"} predicted and discarded.` : "No latent tokens.";
  const verdict = end && at === frames.length ? (end.right ? " The puzzle is solved." : " The answer is wrong.") : "";
  return `Step ${at}: ${choice}${decoded.join(", ")}. ${help}${verdict}`;
}

/** The input of the step that ends at `at`: clean, latent and candidate tokens, and the skipped ones. */
function readAt(trace, at) {
  const frame = trace.frames[at - 1];
  if (!frame) return null;
  const before = trace.frames[at - 2] ?? { processed: 0, all_processed: 0 };
  const [latent, candidate] = [frame.latents.length, frame.candidates.length];
  const [read, all] = [frame.processed - before.processed, frame.all_processed - before.all_processed];
  return { clean: read - latent - candidate, latent, candidate, out: Math.max(0, all - read) };
}

/** A setting in a few words. */
function settingWords({ model, settings: { latents, candidates, order } }) {
  return `${shortName(model)}: n = ${latents}, k = ${candidates}, ${orderName(order)}`;
}
