/** A board: its cells, the arrow keys, and the predicted probabilities as pencil marks. */

import { el, percent } from "./dom.js";
import { markPlace, marks } from "./marks.js";
import { KINDS, placeOf, signOf } from "./trace.js";

/** @typedef {import("./types.js").Board} Board */
/** @typedef {import("./trace.js").Cell} Cell */
/**
 * @typedef {object} BoardView
 * @property {Board} start
 * @property {Cell[]} cells
 * @property {number | null} chosen
 * @property {Set<number>} clash cells whose digit is twice in a unit
 * @property {Set<number>} broken
 * @property {number | null} [mistaken] the cell with the first wrong digit
 * @property {Set<number>} [attended] cells that the chosen cell attends to
 * @property {boolean} editable
 */

const EDGES = ["end", "right", "foot", "low"];

/** A board under an element. */
export class BoardGrid {
  /** @type {HTMLElement[]} */
  cells = [];
  form = "";
  columns = 1;
  entry = 0; // the cell that Tab reaches

  /**
   * @param {HTMLElement} root
   * @param {object} actions
   * @param {(cell: number, key: string) => void} actions.typed
   * @param {(cell: number) => void} actions.picked a cell has received the focus
   * @param {(cell: number) => void} [actions.pressed] a cell was clicked, or Enter or the space bar pressed
   */
  constructor(root, actions) {
    this.root = root;
    this.actions = actions;
    root.addEventListener("keydown", (event) => this.onKey(event));
    root.addEventListener("focusin", (event) => {
      const cell = this.cellOf(event);
      if (cell < 0) return;
      this.setEntry(cell);
      actions.picked(cell);
    });
    root.addEventListener("click", (event) => {
      const cell = this.cellOf(event);
      this.cells[cell]?.focus();
      if (cell >= 0) actions.pressed?.(cell);
    });
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const cell = this.cellOf(event);
    if (cell < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const goal = this.neighbor(event.key, cell);
    const isPress = this.actions.pressed && (event.key === "Enter" || event.key === " ");
    if (goal !== null) this.cells[goal]?.focus();
    else if (isPress) this.actions.pressed?.(cell);
    else if (event.key === "Delete" || event.key === "Backspace" || /^[^ ]$/.test(event.key)) {
      return this.actions.typed(cell, event.key);
    } else return undefined;
    return event.preventDefault();
  }

  /** @param {Event} event */
  cellOf({ target }) {
    const cell = target instanceof Element ? target.closest(".cell") : null;
    return this.cells.findIndex((element) => element === cell);
  }

  /**
   * @param {string} key
   * @param {number} cell
   * @returns {number | null}
   */
  neighbor(key, cell) {
    const first = cell - (cell % this.columns);
    /** @type {Record<string, number>} */
    const goals = {
      ArrowLeft: cell - 1,
      ArrowRight: cell + 1,
      ArrowUp: cell - this.columns,
      ArrowDown: cell + this.columns,
      Home: first,
      End: first + this.columns - 1,
    };
    return goals[key] ?? null;
  }

  /** @param {number} cell */
  setEntry(cell) {
    this.cells[this.entry]?.setAttribute("tabindex", "-1");
    this.entry = cell;
    this.cells[cell]?.setAttribute("tabindex", "0");
  }

  /** @param {Board} start */
  build(start) {
    const count = start.tokens.length;
    const isSquare = start.kind === "sudoku" || start.kind === "zebra";
    this.columns = isSquare ? start.columns : count;
    this.cells = Array.from({ length: count }, () =>
      el("div", { class: "cell", role: "gridcell", tabindex: -1 }),
    );
    this.setEntry(Math.max(0, Math.min(this.entry, count - 1)));
    this.root.replaceChildren((isSquare ? gridOf : flowOf)(start, this.cells, nameOf(start)));
  }

  /** @param {BoardView} view */
  draw(view) {
    const { kind, tokens, columns } = view.start;
    const form = `${kind} ${tokens.length} ${columns}`;
    if (form !== this.form) this.build(view.start);
    this.form = form;
    this.root.firstElementChild?.classList.toggle("typed", view.editable);
    view.cells.forEach((cell, index) => drawCell(this.cells[index], cell, index, view));
  }
}

/** @param {Board} start */
function nameOf({ kind, columns }) {
  if (kind === "sudoku") return `Sudoku of ${columns} by ${columns}`;
  return { zebra: "The table of the solution", countdown: "The equations" }[kind] ?? "The tokens";
}

/**
 * @param {Board} start
 * @param {HTMLElement[]} cells
 * @param {string} name
 */
function gridOf(start, cells, name) {
  const { columns } = start;
  const hasHeads = start.kind === "zebra";
  const numTracks = columns + (hasHeads ? 1 : 0);
  const grid = el("div", { class: `grid ${start.kind}`, role: "grid", "aria-label": name });
  grid.style.setProperty("--columns", String(numTracks));
  grid.style.gridTemplateColumns = `repeat(${numTracks}, minmax(0, 1fr))`;
  if (hasHeads) {
    const heads = ["value", ...Array.from({ length: columns }, (_, i) => `house ${i + 1}`)];
    const cellsOfHead = heads.map((text) => el("div", { class: "head", role: "columnheader" }, text));
    grid.append(el("div", { class: "row", role: "row" }, ...cellsOfHead));
  }
  for (let row = 0; row * columns < cells.length; row++) {
    const line = cells.slice(row * columns, (row + 1) * columns);
    const head = hasHeads ? [el("div", { class: "head", role: "rowheader" }, start.heads[row])] : [];
    grid.append(el("div", { class: "row", role: "row" }, ...head, ...line));
    line.forEach((cell, column) => cell.classList.add(...edges(start, row, column, cells.length / columns)));
  }
  return grid;
}

/**
 * Return the borders of a cell that differ: the edges of the board and of its boxes.
 *
 * @param {Board} start
 * @param {number} row
 * @param {number} column
 * @param {number} rows
 */
function edges({ box, columns }, row, column, rows) {
  const names = [];
  if (column === columns - 1) names.push("end");
  else if (box && (column + 1) % box[1] === 0) names.push("right");
  if (row === rows - 1) names.push("foot");
  else if (box && (row + 1) % box[0] === 0) names.push("low");
  return names;
}

/**
 * @param {Board} _
 * @param {HTMLElement[]} cells
 * @param {string} name
 */
function flowOf(_, cells, name) {
  return el("div", { role: "grid", "aria-label": name }, el("div", { class: "flow", role: "row" }, ...cells));
}

/** @type {WeakMap<HTMLElement, string>} What each cell shows, so that equal cells are not drawn again. */
const drawn = new WeakMap();

/**
 * @param {HTMLElement} element
 * @param {Cell} cell
 * @param {number} index
 * @param {BoardView} view
 */
function drawCell(element, cell, index, { start, chosen, clash, broken, mistaken, attended }) {
  const { token, beliefs } = cell;
  const classes = ["cell", cell.kind, ...EDGES.filter((edge) => element.classList.contains(edge))];
  if (clash.has(index)) classes.push("clash");
  if (broken.has(index)) classes.push("broken");
  if (mistaken === index) classes.push("mistaken");
  if (chosen === index) classes.push("chosen");
  if (attended) classes.push(attended.has(index) ? "attended" : "ignored");
  const sign = token === null ? "" : `${signOf(start, token)}, `;
  const label = [`${placeOf(start, index)}: ${sign}${KINDS[cell.kind](cell)}`];
  if (token === null && beliefs)
    label.push(`most likely ${beliefs.slice(0, 3).map(spoken(start)).join(", ")}`);
  if (clash.has(index)) label.push("twice in a unit");
  if (mistaken === index) label.push("the first wrong digit");
  if (attended?.has(index)) label.push("attended to");
  const key = JSON.stringify([classes, label, beliefs, cell.step]);
  if (drawn.get(element) === key) return;
  drawn.set(element, key);
  element.className = classes.join(" ");
  element.setAttribute("aria-label", label.join("; "));
  const step = cell.step ? [el("span", { class: "when", "aria-hidden": "true" }, String(cell.step))] : [];
  const guesses = beliefs ? [marks(start, beliefs)] : [];
  return element.replaceChildren(...(token === null ? guesses : [digitOf(start, cell, token)]), ...step);
}

/**
 * Return a digit. One that is decoded now grows out of its pencil mark, unless motion is reduced.
 *
 * @param {Board} start
 * @param {Cell} cell
 * @param {number} token
 */
function digitOf(start, { kind, beliefs }, token) {
  const sign = start.signs[token] || "_";
  const probability = beliefs?.find(([id]) => id === token)?.[1];
  if (kind !== "new" || probability === undefined || start.kind !== "sudoku") return sign;
  const digit = el("span", { class: "grown" }, sign);
  const { x, y, size } = markPlace(start, token, probability);
  digit.style.setProperty("--x", `${(x - 50) / 50}em`); // a digit is half as large as its cell
  digit.style.setProperty("--y", `${(y - 50) / 50}em`);
  digit.style.setProperty("--scale", String(size / 50));
  return digit;
}

/** @param {Board} start */
const spoken =
  (start) =>
  /** @param {import("./types.js").Prediction} prediction */
  ([token, probability]) =>
    `${signOf(start, token)} ${percent(probability)}`;
