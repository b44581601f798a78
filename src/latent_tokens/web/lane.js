"use strict";

const CANDIDATES = ["1", "2", "4", "8", "16", "all", "growing"].map((k) => [k, { all: "all of them", growing: "one more than is clean" }[k] ?? k]);
const ORDERS = [["top_prob", "surest first"], ["margin", "widest margin"], ["entropy", "lowest entropy"], ["uniform", "random"], ["left_to_right", "left to right"]];
/** An order as the controls call it. */
const orderName = (order) => Object.fromEntries(ORDERS)[order] ?? String(order);
const ADAPTIVE = ["top_prob", "margin", "entropy"];
const FIXED = {
  mdm: "Not free: this model's masked tokens all see each other, so all of them are always read.",
  sidm: "None: this model's masked tokens do not see each other, so latents cannot help.",
  arm: "None: this model reads what is written, and writes the next token.",
  "ar-mtp": "Not free: this model always reads all that is to come.",
};
const RESTING = "Choose a cell to see what the model holds there.";

/** One board with its settings and its cost. `changed(lane)` hears of a setting, `typed(cell, key)` and `picked(cell)` of the board. */
function makeLane(number, { changed, typed, picked }) {
  const root = $("#lane").content.firstElementChild.cloneNode(true);
  const part = (selector) => $(selector, root);
  const [dial, models, candidates, order] = [part(".dial input"), part(".models"), part(".candidates"), part(".order")];
  const reason = part(".reason");
  reason.id = `reason-${number}`;
  dial.setAttribute("aria-describedby", reason.id);
  const board = makeBoard(part(".board"), { typed, picked });
  const lane = { root, board, trace: null, fault: "", model: null, asked: "8", tried: new Map() };

  offer(candidates, CANDIDATES, "8");
  dial.addEventListener("input", () => {
    lane.asked = dial.value === dial.max ? "all" : dial.value;
    drawDial();
    changed(lane);
  });
  candidates.addEventListener("change", () => changed(lane));
  order.addEventListener("change", () => {
    setOrder();
    changed(lane);
  });
  models.addEventListener("change", () => {
    lane.setModel(lane.models.find(({ name }) => name === models.value));
    changed(lane);
  });

  /** Offers models, of which one is taken. */
  lane.offer = (all, name) => {
    lane.models = all;
    offer(models, all.map((model) => [model.name, shortName(model.name)]), name);
    lane.setModel(all.find((model) => model.name === models.value));
  };

  lane.setModel = (model) => {
    lane.model = model;
    const orders = model.left_to_right ? ORDERS.filter(([name]) => name === "left_to_right") : ORDERS;
    offer(order, orders);
    setOrder();
  };

  /** Where the order asks for no confidence, the next cell is the only candidate. */
  function setOrder() {
    const before = candidates.disabled;
    candidates.disabled = !ADAPTIVE.includes(order.value);
    if (candidates.disabled) candidates.value = "1";
    else if (before) candidates.value = "8";
  }

  /** What is asked of the server, beside the puzzle and the seed. */
  lane.settings = () => ({ model: lane.model.name, ...(lane.model.dial ? { latents: atEnd() ? "all" : lane.asked } : {}), candidates: candidates.value, order: order.value });

  /** The dial goes from 0 to all that may be latent in the first step of a decode. */
  lane.setRoom = ({ kind, tokens }) => {
    const open = tokens.filter((token) => token === null).length;
    const growing = kind === "sudoku" ? tokens.length - open + 1 : open; // a prompt that is not drawn counts as clean
    const least = candidates.value === "all" ? open : candidates.value === "growing" ? growing : Number(candidates.value);
    dial.max = Math.max(0, open - least);
    drawDial();
  };

  lane.copy = (other) => {
    lane.offer(other.models, other.model.name);
    order.value = other.settings().order;
    setOrder();
    candidates.value = other.settings().candidates;
  };

  /** Whether the dial is at its end: a number that is as many as may be latent is all of them. */
  function atEnd() {
    return lane.asked === "all" || Number(lane.asked) >= Number(dial.max);
  }

  function drawDial() {
    const { dial: free, method } = lane.model ?? { dial: false };
    const most = Number(dial.max);
    dial.disabled = !free || most === 0;
    const all = atEnd();
    dial.value = all ? most : lane.asked;
    const told = free ? (all ? "all" : lane.asked) : ["sidm", "arm"].includes(method) ? "0" : "fixed";
    part(".dial-name b").textContent = told;
    dial.setAttribute("aria-valuetext", told === "all" ? "all latent tokens" : `${told} latent tokens`);
    const none = candidates.value === "all" ? "All cells are candidates, so none is left to be latent. Choose fewer candidates." : "No cell is left to be latent.";
    say(reason, lane.fault || (!free ? (FIXED[method] ?? "Not free: the number was set when this model was trained.") : most === 0 ? none : "The dial: how many of the other cells take part."), lane.fault !== "");
    part(".tried").replaceChildren(...[...lane.tried].map(([latents, right]) => triedMark(latents === "all" ? most : Number(latents), most, right)));
  }

  /** In the place of a dial: what a trace was decoded with. */
  lane.fix = (trace) => {
    const { latents } = trace.start.settings;
    const most = trace.start.tokens.filter((token) => token === null).length;
    dial.max = most;
    dial.value = latents === "all" || latents === null ? most : latents;
    dial.disabled = true;
    part(".dial-name b").textContent = latents ?? "fixed";
    say(reason, "Set when this was decoded.");
  };

  /** Draws the lane after `at` steps of what it shows. */
  lane.draw = ({ start, trace, at, chosen, editable, served }) => {
    const reached = trace ? Math.min(at, trace.frames.length) : 0;
    const shown = { start, frames: trace?.frames ?? [], end: trace?.end ?? null };
    const cells = cellsAt(shown, reached);
    const sudoku = start.kind === "sudoku";
    const clash = sudoku ? clashes(cells.map(({ token }) => token), start.side, start.box).cells : new Set();
    const over = shown.end && reached === shown.frames.length && reached > 0;
    board.draw({ start, cells, chosen, clash, broken: new Set(over ? shown.end.broken : []), editable });
    part(".story").textContent = storyAt(shown, reached);
    if (served) drawDial();
    drawOutcome(part(".outcome"), shown);
    drawCost(part(".cost"), shown, reached);
    drawWrong(part(".wrong"), over ? shown.end.wrong : []);
    const asked = chosen ?? shown.frames[reached - 1]?.chosen[0][0];
    drawMind(part(".mind"), start, asked === undefined ? null : cells[asked], asked);
    return over;
  };
  return lane;
}

function triedMark(value, most, right) {
  const mark = el("span", { class: right ? "yes" : "no" }, right ? "\u2713" : "\u2715");
  mark.style.left = `${most ? Math.min(100, (100 * value) / most) : 0}%`;
  return mark;
}

function drawOutcome(line, { start, frames, end }) {
  if (!end) return line.replaceChildren(frames.length ? `Decoding: ${frames.length} steps so far` : "");
  const verdict = end.right ? el("b", { class: "yes" }, "\u2713 right") : el("b", { class: "no" }, "\u2715 wrong");
  const ratio = start.all_processed ? ` (${times(end.processed / start.all_processed)})` : "";
  return line.replaceChildren(`With n = ${start.settings.latents} it ends `, verdict, `; ${number(end.processed)} tokens read${ratio}`);
}

function drawCost(box, trace, at) {
  const read = readAt(trace, at);
  const frame = trace.frames[at - 1] ?? { processed: 0, all_processed: 0 };
  const most = trace.start.all_processed || frame.all_processed || 1;
  const slots = $(".slots", box);
  if (!read) slots.replaceChildren(el("p", {}, "Nothing yet."));
  else {
    const strip = el("div", { class: "strip", "aria-hidden": "true" });
    for (const [kind, count] of Object.entries(read)) {
      const run = el("i", { class: `slot-${kind}` });
      run.style.flexGrow = count;
      run.style.setProperty("--count", count);
      if (count) strip.append(run);
    }
    const words = `${read.clean} clean, ${read.latent} latent, ${plural(read.candidate, "candidate")}; ${read.out ? `${read.out} left out` : "nothing left out"}`;
    slots.replaceChildren(strip, el("p", {}, words));
  }
  $(".meter i", box).style.width = `${(100 * frame.processed) / most}%`;
  $(".meter b", box).style.left = `calc(${(100 * frame.all_processed) / most}% - 2px)`;
  const ratio = frame.all_processed ? ` (${times(frame.processed / frame.all_processed)})` : "";
  $(".sum", box).textContent = !read ? "" : `${number(frame.processed)} tokens; with all latents, the mark, ${number(frame.all_processed)}${ratio}`;
}

function drawWrong(list, wrong) {
  list.hidden = !wrong.length;
  list.replaceChildren(...wrong.map((words) => el("li", {}, words)));
}

function drawMind(box, start, cell, index) {
  const [head, list] = [$("h4", box), $("ol", box)];
  if (!cell) {
    head.textContent = RESTING;
    return list.replaceChildren();
  }
  const here = placeOf(start, index);
  head.textContent = cell.beliefs ? `What the model ${cell.kind === "decoded" ? "held" : "holds"} in ${here}, ${KINDS[cell.kind](cell)}` : `${here}: ${KINDS[cell.kind](cell)}`;
  return list.replaceChildren(...(cell.beliefs ?? []).slice(0, 6).map(([token, p]) => {
    const bar = el("i");
    bar.style.width = `${100 * p}%`;
    return el("li", {}, el("span", {}, signOf(start, token)), bar, el("span", {}, percent(p)));
  }));
}
