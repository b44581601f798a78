"use strict";

const CANDIDATES = ["1", "2", "4", "8", "16", "all", "growing"].map((k) => [k, { all: "all", growing: "decoded cells + 1" }[k] ?? k]);
const ORDERS = [["top_prob", "top-prob"], ["margin", "margin"], ["entropy", "entropy"], ["uniform", "uniform"], ["left_to_right", "left-to-right"]];
/** The name of a decoding order in the controls. */
const orderName = (order) => Object.fromEntries(ORDERS)[order] ?? String(order);
const ADAPTIVE = ["top_prob", "margin", "entropy"];
const FIXED = {
  mdm: "Fixed: all masked tokens attend to each other, so all of them are always in the input.",
  sidm: "None: masked tokens do not attend to each other, so latent tokens cannot help.",
  arm: "None: this model attends to clean tokens only and decodes the next one.",
  "ar-mtp": "Fixed: all masked tokens are always in the input.",
};
const METHOD_NAMES = {
  mdm: "Masked diffusion model (MDM)",
  sidm: "Semi-independent diffusion model (SIDM)",
  scdm: "Semi-causal diffusion model (SCDM)",
  esolm: "Esoteric language model (Eso-LM)",
  arm: "Autoregressive model (ARM)",
  "ar-mtp": "Autoregressive model with multi-token prediction (AR-MTP)",
};
const RESTING = "Choose a cell to see its predicted probabilities.";

/** One board with its settings and its cost. `changed(lane)` hears of a setting, `typed(cell, key)` and `picked(cell)` of the board. */
function makeLane(number, { changed, typed, picked }) {
  const root = $("#lane").content.firstElementChild.cloneNode(true);
  const part = (selector) => $(selector, root);
  const [dial, models, candidates, order] = [part(".dial input"), part(".models"), part(".candidates"), part(".order")];
  const reason = part(".reason");
  reason.id = `reason-${number}`;
  dial.setAttribute("aria-describedby", reason.id);
  const board = makeBoard(part(".board"), { typed, picked });
  const lane = { root, board, trace: null, incoming: null, pending: false, fault: "", model: null, asked: "all", tried: new Map(), wished: { candidates: null, order: "top_prob" } };

  offer(candidates, CANDIDATES);
  dial.addEventListener("input", () => {
    lane.asked = dial.value === dial.max ? "all" : dial.value;
    drawDial();
    changed(lane);
  });
  candidates.addEventListener("change", () => {
    lane.wished.candidates = candidates.value;
    changed(lane);
  });
  order.addEventListener("change", () => {
    lane.wished.order = order.value;
    applyWishes();
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
    const name = METHOD_NAMES[model.method] ?? model.method;
    part(".about").textContent = `${name}, ${(model.parameters / 1e6).toFixed(1)}M parameters.`;
    applyWishes();
  };

  /** Disables the models of this task that cannot take the puzzle: a shifted readout only continues a prefix. */
  lane.offerFor = (task, isPrefix) => {
    for (const option of models.options) {
      const model = lane.models.find(({ name }) => name === option.value);
      option.disabled = model.task === task && model.continues_prefix && !isPrefix;
      option.textContent = shortName(model.name) + (option.disabled ? " (cannot infill)" : "");
    }
  };

  /** Puts the wished order and k in force, as far as the model allows. Without a confidence, the next cell is the only candidate. */
  function applyWishes() {
    offer(order, lane.model.left_to_right ? ORDERS.filter(([name]) => name === "left_to_right") : ORDERS, lane.wished.order);
    candidates.disabled = !ADAPTIVE.includes(order.value);
    candidates.value = candidates.disabled ? "1" : (lane.wished.candidates ?? lane.model.candidates);
  }

  /** The settings in a request, without the puzzle and the seed. */
  lane.settings = () => ({ model: lane.model.name, ...(lane.model.dial ? { latents: atEnd() ? "all" : lane.asked } : {}), candidates: candidates.value, order: order.value });

  /** The slider goes from 0 to the number of cells that can be latent in the first step. */
  lane.setRoom = ({ kind, tokens }) => {
    const open = tokens.filter((token) => token === null).length;
    const growing = kind === "sudoku" ? tokens.length - open + 1 : open; // a prompt that is not drawn counts as clean
    const least = candidates.value === "all" ? open : candidates.value === "growing" ? growing : Number(candidates.value);
    dial.max = Math.max(0, open - least);
    drawDial();
  };

  lane.copy = (other) => {
    lane.wished = { ...other.wished };
    lane.offer(other.models, other.model.name);
  };

  /** Whether the slider is at its end, where n is all. */
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
    const none = candidates.value === "all" ? "All empty cells are candidates, so no cell can be latent. Choose a smaller k." : "No empty cell can be latent.";
    const fixed = FIXED[method] ?? "Fixed: the number was set in training.";
    const help = "How many empty cells, besides the candidates, are in the input.";
    say(reason, lane.fault || (!free ? fixed : most === 0 ? none : help), lane.fault !== "");
    part(".tried").replaceChildren(...[...lane.tried].map(([latents, right]) => triedMark(latents === "all" ? most : Number(latents), most, right)));
  }

  /** Shows the setting of a trace in place of the slider. */
  lane.fix = (trace) => {
    const { latents } = trace.start.settings;
    const most = trace.start.tokens.filter((token) => token === null).length;
    dial.max = most;
    dial.value = latents === "all" || latents === null ? most : latents;
    dial.disabled = true;
    part(".dial-name b").textContent = latents ?? "fixed";
    say(reason, "The setting of this decode.");
  };

  /** Draws the lane after `at` steps of what it shows. */
  lane.draw = ({ start, trace, at, chosen, editable, served }) => {
    const reached = trace ? Math.min(at, trace.frames.length) : 0;
    const shown = { start, frames: trace?.frames ?? [], end: trace?.end ?? null };
    const cells = cellsAt(shown, reached);
    const sudoku = start.kind === "sudoku";
    const clash = sudoku ? clashes(cells.map(({ token }) => token), start.side, start.box).cells : new Set();
    const over = shown.end && reached === shown.frames.length && reached > 0;
    if (over) {
      trace.seen = true;
      if (trace.latents !== undefined) lane.tried.set(trace.latents, shown.end.right);
    }
    root.dataset.state = lane.pending ? "decoding" : shown.end ? "decoded" : "idle";
    board.draw({ start, cells, chosen, clash, broken: new Set(over ? shown.end.broken : []), editable });
    part(".story").textContent = storyAt(shown, reached);
    if (served) drawDial();
    drawOutcome(part(".outcome"), shown, trace?.seen, lane.pending);
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

/** The verdict, once the decode was shown to its end. */
function drawOutcome(line, { start, frames, end }, seen, pending) {
  if (pending || !end) return line.replaceChildren(pending ? "Decoding." : "");
  if (!seen) return line.replaceChildren(`Decoded in ${plural(frames.length, "step")}. Play to the end for the verdict.`);
  const verdict = end.right ? el("b", { class: "yes" }, "\u2713 solved") : el("b", { class: "no" }, "\u2715 wrong");
  const ratio = start.all_processed ? ` (${times(end.processed / start.all_processed)})` : "";
  return line.replaceChildren(`n = ${start.settings.latents}: `, verdict, `, ${number(end.processed)} tokens processed${ratio}`);
}

function drawCost(box, trace, at) {
  const read = readAt(trace, at);
  const frame = trace.frames[at - 1] ?? { processed: 0, all_processed: 0 };
  const most = trace.start.all_processed || frame.all_processed || 1;
  const slots = $(".slots", box);
  if (!read) slots.replaceChildren(el("p", {}, "No step yet."));
  else {
    const strip = el("div", { class: "strip", "aria-hidden": "true" });
    for (const [kind, count] of Object.entries(read)) {
      const run = el("i", { class: `slot-${kind}` });
      run.style.flexGrow = count;
      run.style.setProperty("--count", count);
      if (count) strip.append(run);
    }
    const words = `${read.clean} clean, ${read.latent} latent, ${plural(read.candidate, "candidate")}. ${read.out ? `${read.out} skipped.` : "None skipped."}`;
    slots.replaceChildren(strip, el("p", {}, words));
  }
  $(".meter i", box).style.width = `${(100 * frame.processed) / most}%`;
  $(".meter b", box).style.left = `calc(${(100 * frame.all_processed) / most}% - 2px)`;
  const ratio = frame.all_processed ? ` (${times(frame.processed / frame.all_processed)})` : "";
  $(".sum", box).textContent = !read ? "" : `${number(frame.processed)} of ${number(frame.all_processed)} with all latent tokens (mark)${ratio}`;
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
  head.textContent = cell.beliefs ? `Predicted probabilities in ${here}, ${KINDS[cell.kind](cell)}` : `${here}: ${KINDS[cell.kind](cell)}`;
  return list.replaceChildren(...(cell.beliefs ?? []).slice(0, 6).map(([token, p]) => {
    const bar = el("i");
    bar.style.width = `${100 * p}%`;
    return el("li", {}, el("span", {}, signOf(start, token)), bar, el("span", {}, percent(p)));
  }));
}
