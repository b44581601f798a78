/** Boards on a canvas, as the page draws them and in the colors of its theme. */

import { firstMistake } from "./difference.js";
import { clashes } from "./sudoku.js";
import { cellsAt, settingWords } from "./trace.js";

/** @typedef {import("./types.js").Trace} Trace */
/** @typedef {import("./trace.js").Cell} Cell */
/** @typedef {(name: string) => string} Colors the color of a custom property of the page */
/**
 * @typedef {object} Look how a cell is drawn: names of colors
 * @property {string} fill
 * @property {string} ink
 * @property {string} [frame]
 * @property {boolean} [isDashed]
 * @property {boolean} [isBold]
 */

const WIDTH = 360; // pixels of a board
const MARGIN = 20;
const HEAD = 40;
const FOOT = 34;
const MAX_COLUMNS = 12; // of a board without a fixed number of columns

/** @type {Record<import("./trace.js").Kind, Look>} */
const LOOKS = {
  given: { fill: "faint", ink: "ink", isBold: true },
  decoded: { fill: "card", ink: "blue" },
  new: { fill: "blue", ink: "on-blue", isBold: true },
  candidate: { fill: "blue-wash", ink: "ink", frame: "blue" },
  latent: { fill: "orange-wash", ink: "ink", frame: "orange-line", isDashed: true },
  later: { fill: "card", ink: "ink", frame: "edge", isDashed: true },
  open: { fill: "card", ink: "edge" },
  ready: { fill: "card", ink: "edge" },
};
/** @type {Look} */
const WRONG = { fill: "red-wash", ink: "red", frame: "red", isBold: true };

/**
 * Return the width and the height of a picture of traces side by side.
 *
 * @param {Trace[]} traces
 */
export function sizeOf(traces) {
  const heights = traces.map((trace) => trackOf(trace) * rowsOf(trace));
  const width = MARGIN + traces.length * (WIDTH + MARGIN);
  return { width, height: Math.round(HEAD + Math.max(...heights) + FOOT) };
}

/**
 * Draw a step of each trace.
 *
 * @param {CanvasRenderingContext2D} canvas
 * @param {Trace[]} traces
 * @param {number} at
 * @param {Colors} colors
 */
export function drawPicture(canvas, traces, at, colors) {
  const { width, height } = sizeOf(traces);
  canvas.fillStyle = colors("paper");
  canvas.fillRect(0, 0, width, height);
  traces.forEach((trace, i) => {
    canvas.save();
    canvas.translate(MARGIN + i * (WIDTH + MARGIN), 0);
    drawTrace(canvas, trace, at, colors);
    canvas.restore();
  });
}

/** @param {Trace} trace */
function columnsOf({ start: { kind, columns, tokens } }) {
  return kind === "sudoku" || kind === "zebra" ? columns : Math.min(tokens.length, MAX_COLUMNS);
}

/** @param {Trace} trace */
const rowsOf = (trace) => Math.ceil(trace.start.tokens.length / columnsOf(trace));
/** @param {Trace} trace */
const trackOf = (trace) => WIDTH / columnsOf(trace);

/**
 * @param {CanvasRenderingContext2D} canvas
 * @param {Trace} trace
 * @param {number} at
 * @param {Colors} colors
 */
function drawTrace(canvas, trace, at, colors) {
  const { start, frames, end } = trace;
  const reached = Math.min(at, frames.length);
  const cells = cellsAt(trace, reached);
  const columns = columnsOf(trace);
  const track = trackOf(trace);
  const height = track * rowsOf(trace);
  write(canvas, settingWords(start), { x: 0, y: HEAD / 2, size: 15, color: colors("ink"), isBold: true });

  const wrong = wrongCells(trace, cells, reached);
  canvas.save();
  canvas.translate(0, HEAD);
  cells.forEach((cell, index) => {
    canvas.save();
    canvas.translate((index % columns) * track, Math.floor(index / columns) * track);
    drawCell(canvas, cell, wrong.has(index) ? WRONG : LOOKS[cell.kind], start.signs, track, colors);
    canvas.restore();
  });
  drawLines(canvas, trace, height, colors);
  canvas.restore();

  const isLast = reached === frames.length;
  const verdict = end.right ? "solved" : "wrong";
  const progress = `step ${reached} of ${frames.length}`;
  const words = isLast ? `${verdict}, ${end.processed} tokens processed` : progress;
  const color = colors(isLast ? { solved: "green", wrong: "red" }[verdict] : "soft");
  write(canvas, words, { x: 0, y: HEAD + height + FOOT / 2, size: 15, color, isBold: isLast });
}

/**
 * Return the cells that are drawn as wrong: contradictions, and the first digit that the solution lacks.
 *
 * @param {Trace} trace
 * @param {Cell[]} cells
 * @param {number} reached
 */
function wrongCells(trace, cells, reached) {
  const { kind, columns, box } = trace.start;
  if (kind !== "sudoku" || !box) return new Set(reached === trace.frames.length ? trace.end.broken : []);
  const tokens = cells.map(({ token }) => token);
  const mistake = firstMistake(trace);
  const isMade = mistake !== null && mistake.step <= reached;
  return new Set([...clashes(tokens, columns, box).cells, ...(isMade ? [mistake.cell] : [])]);
}

/**
 * @param {CanvasRenderingContext2D} canvas
 * @param {Cell} cell
 * @param {Look} look
 * @param {string[]} signs
 * @param {number} track
 * @param {Colors} colors
 */
function drawCell(canvas, { kind, token, beliefs }, look, signs, track, colors) {
  canvas.fillStyle = colors(look.fill);
  canvas.fillRect(0, 0, track, track);
  const middle = { x: track / 2, y: track / 2, isCentered: true };
  const ink = colors(look.ink);
  const [guess, probability] = beliefs?.[0] ?? [null, 0];
  if (token !== null) {
    write(canvas, signs[token] || "_", { ...middle, size: track * 0.52, color: ink, isBold: look.isBold });
  } else if (guess !== null) {
    canvas.globalAlpha = 0.3 + 0.7 * probability;
    write(canvas, signs[guess] || "_", { ...middle, size: track * 0.4, color: ink });
    canvas.globalAlpha = 1;
  } else if (kind === "open") {
    canvas.fillStyle = ink;
    canvas.fillRect(track / 2 - 1.5, track / 2 - 1.5, 3, 3);
  }
  canvas.strokeStyle = colors("line");
  canvas.lineWidth = 1;
  canvas.strokeRect(0, 0, track, track);
  if (!look.frame) return;
  canvas.strokeStyle = colors(look.frame);
  canvas.lineWidth = 2;
  canvas.setLineDash(look.isDashed ? [4, 3] : []);
  canvas.strokeRect(2, 2, track - 4, track - 4);
  canvas.setLineDash([]);
}

/**
 * Draw the edge of a board and those of its boxes.
 *
 * @param {CanvasRenderingContext2D} canvas
 * @param {Trace} trace
 * @param {number} height
 * @param {Colors} colors
 */
function drawLines(canvas, trace, height, colors) {
  const { columns, box } = trace.start;
  const track = trackOf(trace);
  canvas.strokeStyle = colors("ink");
  canvas.lineWidth = 2;
  canvas.strokeRect(0, 0, WIDTH, height);
  if (!box) return;
  const [boxRows, boxColumns] = box;
  canvas.beginPath();
  for (let x = boxColumns; x < columns; x += boxColumns) {
    canvas.moveTo(x * track, 0);
    canvas.lineTo(x * track, height);
  }
  for (let y = boxRows; y < columns; y += boxRows) {
    canvas.moveTo(0, y * track);
    canvas.lineTo(WIDTH, y * track);
  }
  canvas.stroke();
}

/**
 * @param {CanvasRenderingContext2D} canvas
 * @param {string} text
 * @param {{ x: number, y: number, size: number, color: string, isBold?: boolean,
 *   isCentered?: boolean }} style
 */
function write(canvas, text, { x, y, size, color, isBold = false, isCentered = false }) {
  canvas.font = `${isBold ? "bold " : ""}${size}px ${getComputedStyle(document.body).fontFamily}`;
  canvas.fillStyle = color;
  canvas.textAlign = isCentered ? "center" : "left";
  canvas.textBaseline = "middle";
  canvas.fillText(text, x, y, isCentered ? undefined : WIDTH);
}
