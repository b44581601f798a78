"use strict";

/** A board under `root`. `draw(view)` shows {start, cells, chosen, broken}; `typed(cell, key)` and `picked(cell)` are told what the person does. */
function makeBoard(root, { typed, picked }) {
  let form = null;
  let cells = [];
  let at = 0;

  root.addEventListener("keydown", (event) => {
    const cell = cells.indexOf(event.target);
    if (cell < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const columns = form.columns || cells.length;
    const line = cell - (cell % columns);
    const goal = { ArrowLeft: cell - 1, ArrowRight: cell + 1, ArrowUp: cell - columns, ArrowDown: cell + columns, Home: line, End: line + columns - 1 }[event.key];
    if (goal !== undefined) {
      event.preventDefault();
      focus(Math.min(Math.max(goal, 0), cells.length - 1));
    } else if (event.key === "Delete" || event.key === "Backspace" || event.key.length === 1) {
      if (event.key === " ") event.preventDefault();
      typed(cell, event.key);
    }
  });
  root.addEventListener("focusin", (event) => pick(cells.indexOf(event.target)));
  root.addEventListener("click", (event) => {
    const cell = cells.indexOf(event.target.closest(".cell"));
    if (cell >= 0) focus(cell);
  });

  function pick(cell) {
    if (cell < 0) return;
    cells[at]?.setAttribute("tabindex", -1);
    at = cell;
    cells[at].setAttribute("tabindex", 0);
    picked(cell);
  }

  function focus(cell) {
    cells[cell]?.focus();
  }

  function build(start) {
    const count = start.tokens.length;
    const square = start.kind === "sudoku" || start.kind === "zebra";
    form = { kind: start.kind, columns: square ? start.columns : 0, count };
    cells = Array.from({ length: count }, () => el("div", { class: "cell", role: "gridcell", tabindex: -1 }));
    at = Math.min(at, count - 1);
    cells[at]?.setAttribute("tabindex", 0);
    const name = { sudoku: `Sudoku of ${start.side} by ${start.side}`, zebra: "The table of the solution", countdown: "The equations" }[start.kind] ?? "The tokens";
    root.replaceChildren(square ? gridOf(start, cells, name) : flowOf(cells, name));
  }

  return {
    focus,
    draw(view) {
      const { start } = view;
      if (form?.kind !== start.kind || form.count !== start.tokens.length || (form.columns && form.columns !== start.columns)) build(start);
      root.firstElementChild.classList.toggle("typed", view.editable);
      view.cells.forEach((cell, index) => drawCell(cells[index], cell, index, view));
    },
  };
}

function gridOf(start, cells, name) {
  const { columns } = start;
  const grid = el("div", { class: `grid ${start.kind}`, role: "grid", "aria-label": name });
  const heads = start.kind === "zebra";
  grid.style.setProperty("--columns", columns + (heads ? 1 : 0));
  grid.style.gridTemplateColumns = `repeat(${columns + (heads ? 1 : 0)}, minmax(0, 1fr))`;
  if (heads) grid.append(el("div", { class: "row", role: "row" }, ...Array.from({ length: columns + 1 }, (_, i) => el("div", { class: "head", role: "columnheader" }, i ? `house ${i}` : "value"))));
  for (let row = 0; row * columns < cells.length; row++) {
    const line = cells.slice(row * columns, (row + 1) * columns);
    const head = heads ? [el("div", { class: "head", role: "rowheader" }, start.heads[row])] : [];
    grid.append(el("div", { class: "row", role: "row" }, ...head, ...line));
    line.forEach((cell, column) => {
      cell.classList.add(...edges(start, row, column, columns, cells.length / columns));
    });
  }
  return grid;
}

/** Which borders of a cell are drawn otherwise. */
function edges(start, row, column, columns, rows) {
  const found = [];
  if (column === columns - 1) found.push("end");
  else if (start.box && (column + 1) % start.box[1] === 0) found.push("right");
  if (row === rows - 1) found.push("foot");
  else if (start.box && (row + 1) % start.box[0] === 0) found.push("low");
  return found;
}

function flowOf(cells, name) {
  return el("div", { role: "grid", "aria-label": name }, el("div", { class: "flow", role: "row" }, ...cells));
}

const EDGES = ["end", "right", "foot", "low"];

function drawCell(element, cell, index, { start, chosen, clash, broken }) {
  const classes = ["cell", cell.kind, ...EDGES.filter((edge) => element.classList.contains(edge))];
  if (clash.has(index)) classes.push("clash");
  if (broken.has(index)) classes.push("broken");
  if (chosen === index) classes.push("chosen");
  const open = cell.token === null;
  const label = [`${placeOf(start, index)}: ${open ? "" : `${signOf(start, cell.token)}, `}${KINDS[cell.kind](cell)}`];
  if (open && cell.beliefs) label.push(`most likely ${cell.beliefs.slice(0, 3).map(([token, p]) => `${signOf(start, token)} ${percent(p)}`).join(", ")}`);
  if (clash.has(index)) label.push("twice in a unit");
  const drawn = JSON.stringify([classes, label, cell.beliefs, cell.step]);
  if (element.drawn === drawn) return;
  element.drawn = drawn;
  element.className = classes.join(" ");
  element.setAttribute("aria-label", label.join("; "));
  if (open) element.replaceChildren(...(cell.beliefs ? [marks(start, cell.beliefs)] : []));
  else element.replaceChildren(start.signs[cell.token] || "_", ...(cell.step ? [el("span", { class: "when", "aria-hidden": "true" }, cell.step)] : []));
}

const KINDS = {
  given: () => "given",
  decoded: (cell) => `decoded in step ${cell.step}`,
  new: () => "decoded in this step",
  candidate: () => "empty, a candidate",
  latent: () => "empty, a latent token",
  open: () => "empty, skipped in this step",
  ready: () => "empty",
};

/** The predicted probabilities of a cell as pencil marks: each digit at its place, larger and darker if more likely. */
function marks(start, beliefs) {
  const picture = svg("svg", { viewBox: "0 0 100 100", "aria-hidden": "true" });
  const columns = start.kind === "sudoku" ? Math.ceil(Math.sqrt(start.side)) : 2;
  const rows = start.kind === "sudoku" ? Math.ceil(start.side / columns) : 2;
  const held = start.kind === "sudoku" ? beliefs.map(([token, p]) => [token, p, token]) : beliefs.slice(0, 4).map(([token, p], rank) => [token, p, rank]);
  for (const [token, p, place] of held) {
    if (p < 0.02) continue;
    const pull = Math.max(0, 4 * p - 3); // what is nearly sure goes to the middle
    const x = (((place % columns) + 0.5) * 82) / columns + 9;
    const y = ((Math.floor(place / columns) + 0.5) * 74) / rows + 20;
    const size = 15 + 17 * p + 18 * pull;
    picture.append(svg("text", { x: x + (50 - x) * pull, y: y + (53 - y) * pull, "font-size": size, "fill-opacity": Math.min(1, 0.3 + 0.7 * p) }, start.signs[token] || "_"));
  }
  return picture;
}
