/** A board: cells that are pressed or reached with the arrow keys. */

import { $, el, svg } from "./dom.js";

/**
 * @typedef {object} Geometry
 * @property {string} kind "sudoku", "zebra", "countdown", "sequence", or "squares"
 * @property {string} name for a screen reader
 * @property {number} columns
 * @property {number} count cells
 * @property {readonly number[]} [box] rows and columns of a Sudoku's box
 * @property {readonly string[]} [heads] labels of the lines of a table
 */
/**
 * @typedef {object} Cell
 * @property {string} sign
 * @property {string} kind its classes
 * @property {string} label its state, for a screen reader
 */

const KEYS = "ArrowLeft ArrowRight ArrowUp ArrowDown Home End".split(" ");

export class Board {
  /** @type {HTMLElement[]} */
  cells = [];
  /** @type {string[]} what each cell shows */
  drawn = [];
  form = "";
  columns = 1;
  entry = 0; // the cell that Tab reaches

  /**
   * @param {HTMLElement} root
   * @param {(cell: number) => void} pressed
   * @param {(cell: number, key: string) => void} [typed]
   */
  constructor(root, pressed, typed) {
    this.root = root;
    root.addEventListener("click", (event) => {
      const cell = this.cellOf(event);
      if (cell < 0) return;
      this.cells[cell].focus({ preventScroll: true });
      pressed(cell);
    });
    root.addEventListener("focusin", (event) => this.setEntry(this.cellOf(event)));
    root.addEventListener("keydown", (event) => {
      const cell = this.cellOf(event);
      if (cell < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
      if (KEYS.includes(event.key)) this.cells[this.neighbor(event.key, cell)]?.focus();
      else if (event.key === "Enter" || event.key === " ") pressed(cell);
      else if (typed && /^(.|Delete|Backspace)$/.test(event.key)) typed(cell, event.key);
      else return;
      event.preventDefault();
    });
  }

  /** @param {Event} event */
  cellOf({ target }) {
    const cell = target instanceof Element ? target.closest(".cell") : null;
    return this.cells.findIndex((element) => element === cell);
  }

  /**
   * @param {string} key
   * @param {number} cell
   */
  neighbor(key, cell) {
    const first = cell - (cell % this.columns);
    const { columns } = this;
    const goals = [cell - 1, cell + 1, cell - columns, cell + columns, first, first + columns - 1];
    return goals[KEYS.indexOf(key)];
  }

  /** @param {number} cell */
  setEntry(cell) {
    if (!this.cells[cell]) return;
    this.cells[this.entry]?.setAttribute("tabindex", "-1");
    this.entry = cell;
    this.cells[cell].setAttribute("tabindex", "0");
  }

  /** @param {Geometry} geometry */
  build(geometry) {
    const { kind, count, columns, heads = [] } = geometry;
    this.columns = columns;
    this.drawn = [];
    this.cells = Array.from({ length: count }, () =>
      el("div", { class: "cell", role: "gridcell", tabindex: -1 }),
    );
    const grid = el("div", { class: `grid ${kind}`, role: "grid", "aria-label": geometry.name });
    const tracks = columns + (heads.length ? 1 : 0);
    grid.style.setProperty("--columns", String(tracks));
    if (heads.length) {
      const names = ["value", ...Array.from({ length: columns }, (_, i) => `house ${i + 1}`)];
      const row = names.map((name) => el("div", { class: "head", role: "columnheader" }, name));
      grid.append(el("div", { class: "row", role: "row" }, ...row));
    }
    for (let first = 0; first < count; first += columns) {
      const head = heads
        .slice(first / columns, first / columns + 1)
        .map((name) => el("div", { class: "head", role: "rowheader" }, name));
      const row = this.cells.slice(first, first + columns);
      grid.append(el("div", { class: "row", role: "row" }, ...head, ...row));
    }
    this.cells.forEach((cell, i) => cell.classList.add(...edges(geometry, i)));
    const viewBox = `0 0 ${columns} ${count / columns}`;
    const rays = svg("svg", { class: "rays", viewBox, "aria-hidden": "true" });
    this.root.replaceChildren(grid, rays);
    this.setEntry(Math.min(this.entry, count - 1));
  }

  /**
   * @param {Geometry} geometry
   * @param {Cell[]} cells
   */
  draw(geometry, cells) {
    const form = `${geometry.kind} ${geometry.count} ${geometry.columns}`;
    if (form !== this.form) this.build(geometry);
    this.form = form;
    cells.forEach(({ sign, kind, label }, i) => {
      const text = `${sign}|${kind}|${label}`;
      if (this.drawn[i] === text) return;
      this.drawn[i] = text;
      this.cells[i].className = ["cell", ...edges(geometry, i), kind].join(" ");
      this.cells[i].setAttribute("aria-label", `${placeOf(geometry, i)}: ${label}`);
      this.cells[i].textContent = sign;
    });
  }

  /**
   * Draw a line from a cell to each of some others, as wide as its weight.
   *
   * @param {number} from
   * @param {{ cell: number, weight: number, kind: string }[]} lines
   */
  drawRays(from, lines) {
    const elements = lines.map(({ cell, weight, kind }) =>
      svg("line", {
        ...{ ...lineBetween(from, cell, this.columns), class: kind },
        "stroke-width": 0.02 + 0.3 * weight,
      }),
    );
    $(".rays", this.root).replaceChildren(...elements);
  }
}

const EDGE = 0.4; // of a cell, from its center to where a line ends

/**
 * Return the ends of a line from one cell to another, both just inside the edge of a cell.
 *
 * @param {number} from
 * @param {number} to
 * @param {number} columns
 */
export function lineBetween(from, to, columns) {
  const across = (to % columns) - (from % columns);
  const down = Math.floor(to / columns) - Math.floor(from / columns);
  const part = EDGE / Math.max(Math.abs(across), Math.abs(down));
  const x = (/** @type {number} */ share) => (from % columns) + 0.5 + share * across;
  const y = (/** @type {number} */ share) => Math.floor(from / columns) + 0.5 + share * down;
  return { x1: x(part), y1: y(part), x2: x(1 - part), y2: y(1 - part) };
}

/**
 * Return the classes of a cell that is at an edge of a box.
 *
 * @param {Geometry} geometry
 * @param {number} cell
 */
function edges({ box, columns, count }, cell) {
  if (!box) return [];
  const row = Math.floor(cell / columns) + 1;
  const column = (cell % columns) + 1;
  const isRight = column % box[1] === 0 && column < columns;
  const isLow = row % box[0] === 0 && row * columns < count;
  return [...(isRight ? ["right-edge"] : []), ...(isLow ? ["low-edge"] : [])];
}

/**
 * Return the place of a cell in words.
 *
 * @param {Geometry} geometry
 * @param {number} cell
 */
export function placeOf({ kind, columns, heads = [] }, cell) {
  const row = Math.floor(cell / columns);
  const column = (cell % columns) + 1;
  if (kind === "sudoku") return `row ${row + 1} column ${column}`;
  if (kind === "zebra") return `attribute ${heads[row]}, house ${column}`;
  return kind === "squares" ? `puzzle ${cell + 1}` : `place ${cell + 1}`;
}
