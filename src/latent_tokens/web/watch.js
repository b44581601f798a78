"use strict";

const KEPT = 60; // decodes that are shown again without asking
const QUIET = 250; // milliseconds without a change before the server is asked
const CHECK_AGAIN = 50; // milliseconds until the player checks again whether a frame has arrived

/** The tab Watch. `begin(models)` asks the server; `play(traces)` shows what is there, without one. */
function makeWatch() {
  const state = { puzzle: null, text: "", at: 1, chosen: null, timer: null, lanes: [], served: false, past: [] };
  const kept = new Map();
  const [scrub, words, caption, example, text, seed, undoing] = ["#scrub", "#puzzle-words", "#caption", "#example", "#text", "#seed", "#undo"].map((name) => $(name));
  const model = () => state.lanes[0].model;
  const isSudoku = () => model().kind === "sudoku";

  function addLane() {
    const lane = makeLane(state.lanes.length, { changed, typed, picked });
    state.lanes.push(lane);
    $("#lanes").append(lane.root);
    $("#lanes").classList.toggle("two", state.lanes.length > 1);
    return lane;
  }

  function begin(models) {
    state.served = true;
    addLane().offer(models, models[0].name);
    state.task = model().task;
    newTask();
  }

  /** Loads the first example of the first lane's task. */
  function newTask() {
    state.past = [];
    state.text = "";
    offerExamples();
    $("#clear").hidden = undoing.hidden = !isSudoku();
    setPuzzle(model().examples[0]?.puzzle ?? "");
    state.past = [];
    drawUndo();
  }

  function offerExamples() {
    const options = model().examples.map(({ puzzle, label }, i) => [puzzle, `${i + 1}. ${label || model().task}`]);
    offer(example, [...options, ["", "own puzzle"]]);
  }

  /** Marks the example that the puzzle is, with its caption. */
  function markExample() {
    const same = ({ puzzle }) => (isSudoku() ? writeSudoku(readSudoku(puzzle, model().side)) : puzzle) === state.text;
    const found = model().examples.find(same);
    example.value = found?.puzzle ?? "";
    say(caption, found?.caption ?? "");
  }

  /** Undo has one entry per puzzle that was replaced. */
  function remember() {
    if (isSudoku() && state.text && state.past.at(-1) !== state.text) state.past.push(state.text);
  }

  function undo() {
    if (!state.past.length) return;
    const before = state.past.pop();
    const { chosen, past } = state;
    state.past = [];
    setPuzzle(before, 0);
    Object.assign(state, { chosen, past });
    draw();
  }

  const drawUndo = () => undoing.setAttribute("aria-disabled", state.past.length === 0);

  /** Loads a puzzle: immediately if the page can parse it, then as the server parses it. */
  function setPuzzle(puzzle, at = 1) {
    pause();
    const before = state.text;
    if (isSudoku()) {
      try {
        state.puzzle = puzzle ? readSudoku(puzzle, model().side) : Array(model().side ** 2).fill(null);
      } catch (error) {
        return say(words, error.message, true);
      }
      if (before !== writeSudoku(state.puzzle)) remember();
    }
    text.value = puzzle;
    Object.assign(state, { text: puzzle, at, chosen: null });
    return newPuzzle();
  }

  function newPuzzle() {
    if (isSudoku()) state.text = text.value = writeSudoku(state.puzzle);
    markExample();
    for (const lane of state.lanes) {
      lane.abort?.abort();
      Object.assign(lane, { trace: null, incoming: null, pending: false, fault: "", tried: new Map() });
    }
    state.lanes.forEach(pad);
    const problem = problemOf();
    say(words, problem, problem !== "");
    state.blocked = problem !== "";
    if (!state.blocked) for (const lane of state.lanes) lane.pending = true;
    draw();
    if (!state.blocked) check();
  }

  /** Why the puzzle cannot be decoded, or "". */
  function problemOf() {
    if (!isSudoku()) return "";
    const found = clashes(state.puzzle, model().side, model().box).words;
    if (found.length) return `${found.join("; ")}.`;
    if (!state.puzzle.includes(null)) return "Every cell is given. Clear a cell to decode it.";
    const unable = state.lanes.find((lane) => lane.model.continues_prefix && !isPrefix());
    return unable ? `${shortName(unable.model.name)} cannot infill: it only continues given cells from the first on. Choose another model.` : "";
  }

  /** Whether no given cell comes after an empty one. */
  const isPrefix = () => !isSudoku() || !state.puzzle.some((digit, cell) => digit !== null && state.puzzle[cell - 1] === null);

  const check = settled(async () => {
    const puzzle = state.text;
    if (problemOf()) return;
    try {
      const { solutions, conflicts } = await post("/api/check", { model: model().name, puzzle });
      if (puzzle !== state.text) return;
      const count = { 0: "The puzzle has no solution.", 1: model().kind === "countdown" ? "The puzzle has a solution." : "The puzzle has one solution.", 2: "The puzzle has several solutions. Any of them is accepted." }[solutions];
      say(words, conflicts.length ? "Some cells contradict each other." : (count ?? ""), solutions === 0);
      state.blocked = solutions === 0;
      if (solutions !== 0) state.lanes.forEach(decode);
      else settle();
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      if (puzzle !== state.text) return;
      say(words, error.message, true);
      settle();
    }
  }, QUIET);

  /** No lane waits for a decode any more. */
  function settle() {
    for (const lane of state.lanes) lane.pending = false;
    draw();
  }

  function changed(lane) {
    if (lane === state.lanes[0]) {
      const before = state.task;
      state.task = model().task;
      if (before !== state.task) {
        if (state.lanes[1]) compare();
        return newTask();
      }
      offerExamples();
      markExample();
    }
    const problem = problemOf();
    if (problem || state.blocked) return newPuzzle();
    draw();
    return later(lane);
  }

  const waiting = new Set();
  const flush = settled(() => {
    waiting.forEach(decode);
    waiting.clear();
  }, QUIET);

  function later(lane) {
    if (state.blocked) return;
    Object.assign(lane, { pending: true, incoming: null });
    waiting.add(lane);
    draw();
    flush();
  }

  async function decode(lane) {
    lane.abort?.abort();
    const values = { ...lane.settings(), puzzle: state.text, temperature: 0, seed: seed.value || 0 };
    const key = query(values);
    lane.fault = "";
    if (kept.has(key)) return arrived(lane, kept.get(key), values);
    lane.pending = true;
    const control = (lane.abort = new AbortController());
    const trace = (lane.incoming = { start: null, frames: [], end: null, latents: values.latents });
    try {
      for await (const [name, data] of events(`/api/decode?${key}`, control.signal)) {
        if (control.signal.aborted) return undefined;
        if (name === "frame") trace.frames.push(data);
        else trace[name] = data;
        if (trace.end || trace.frames.length >= state.at) {
          lane.trace = trace;
          drawSoon();
        }
      }
      kept.set(key, trace);
      if (kept.size > KEPT) kept.delete(kept.keys().next().value);
      return arrived(lane, trace, values);
    } catch (error) {
      if (control.signal.aborted) return undefined;
      if (!(error instanceof Fault)) throw error;
      Object.assign(lane, { trace: null, pending: false, fault: error.message, tried: new Map() });
      return draw();
    }
  }

  /** Shows a complete trace. The slider keeps its marks while only the number of latent tokens changes. */
  function arrived(lane, trace, { latents, ...others }) {
    const setting = query(others);
    if (lane.setting !== setting) lane.tried = new Map();
    if (trace.seen && latents !== undefined) lane.tried.set(latents, trace.end.right);
    Object.assign(lane, { trace, setting, pending: false });
    draw();
  }

  function typed(cell, key) {
    if (!state.served || !isSudoku()) return;
    const sign = key.toUpperCase();
    const erase = ["Delete", "Backspace", "0", ".", " "].includes(key);
    if (!erase && !SIGNS.slice(0, model().side).includes(sign)) return;
    if (cell === null) return say(words, "Choose a cell first.", true);
    pause();
    remember();
    state.puzzle = state.puzzle.with(cell, erase ? null : SIGNS.indexOf(sign));
    state.at = 0;
    newPuzzle();
    drawUndo();
  }

  function picked(cell) {
    if (state.chosen === cell) return;
    state.chosen = cell;
    draw();
  }

  /** Buttons that type into the chosen cell. */
  function pad({ root }) {
    const box = $(".pad", root);
    box.hidden = !isSudoku();
    if (box.hidden) return;
    const signs = [...SIGNS.slice(0, model().side)];
    if (box.children.length === signs.length + 1) return;
    const key = (sign, name, label) => {
      const button = el("button", { type: "button", "aria-label": label }, name);
      button.addEventListener("click", () => typed(state.chosen, sign));
      return button;
    };
    box.replaceChildren(...signs.map((sign) => key(sign, sign, `Type ${sign}`)), key("Delete", "\u232b", "Empty the cell"));
  }

  function compare() {
    const on = state.lanes.length === 1;
    $("#compare").setAttribute("aria-pressed", on);
    if (on) {
      const [first] = state.lanes;
      const second = addLane();
      second.copy(first);
      second.offer(first.models.filter(({ task }) => task === model().task), model().name);
      first.alone = first.asked;
      [first.asked, second.asked] = ["0", "all"];
      for (const lane of state.lanes) lane.trace = null;
      pad(second);
      state.lanes.forEach(later);
    } else {
      const second = state.lanes.pop();
      second.abort?.abort();
      second.root.remove();
      $("#lanes").classList.remove("two");
      waiting.delete(second);
      state.lanes[0].asked = state.lanes[0].alone;
      later(state.lanes[0]);
    }
    draw();
  }

  /** The start of a lane without a trace. */
  function draft() {
    const { kind, side, box } = model();
    return { kind, side, box, columns: side, heads: [], signs: Array.from({ length: side ?? 0 }, (_, i) => `${i + 1}`), tokens: isSudoku() ? state.puzzle : [], words: [] };
  }

  function steps() {
    const traces = state.lanes.filter(({ trace }) => trace).map(({ trace }) => stepsOf(trace));
    return traces.length ? Math.max(...traces) : state.served && !state.blocked ? draft().tokens.filter((token) => token === null).length : 0;
  }

  let asked = false;
  function drawSoon() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  }

  function draw() {
    const total = steps();
    state.at = Math.min(state.at, total);
    scrub.max = total;
    scrub.value = state.at;
    scrub.setAttribute("aria-valuetext", `step ${state.at} of ${total}`);
    $("#step").textContent = `Step ${state.at} of ${total}`;
    $("#first").disabled = $("#back").disabled = state.at === 0;
    $("#last").disabled = $("#forth").disabled = state.at === total;
    $("#play").disabled = total === 0;
    drawUndo();
    const two = state.lanes.length > 1;
    state.lanes.forEach((lane, i) => {
      const start = lane.trace?.start ?? draft();
      if (state.served) {
        lane.setRoom(start);
        lane.offerFor(state.task, isPrefix());
      }
      $("h3", lane.root).textContent = two || !state.served ? [two ? "AB"[i] : "", lane.trace ? settingWords(lane.trace.start) : ""].filter(Boolean).join(". ") : "";
      lane.draw({ start, trace: lane.trace, at: state.at, chosen: state.chosen, editable: state.served && start.kind === "sudoku", served: state.served });
    });
    const { kind, words: given } = state.lanes[0].trace?.start ?? { words: [] };
    const told = kind === "countdown" ? [`Make ${given.at(-1)} from ${given.slice(0, -1).join(", ")}. Use each number once.`] : given;
    $("#clues").hidden = !told.length;
    $("#clues").replaceChildren(...told.map((line) => el("li", {}, line)));
  }

  const announce = settled(() => {
    const told = state.lanes.map(({ root }, i) => (state.lanes.length > 1 ? `${"AB"[i]}: ` : "") + $(".story", root).textContent);
    $("#said").textContent = told.join(" ");
  }, 300);

  function go(at) {
    state.at = Math.max(0, Math.min(at, steps()));
    draw();
    if (!state.timer) announce();
  }

  function pause() {
    clearTimeout(state.timer);
    state.timer = null;
    drawPlay();
  }

  function play() {
    if (state.at >= steps()) state.at = 0;
    const next = () => {
      if (!arrivedUpTo(state.at + 1)) {
        state.timer = setTimeout(next, CHECK_AGAIN);
        return;
      }
      go(state.at + 1);
      if (state.at >= steps()) {
        pause();
        announce();
      } else state.timer = setTimeout(next, 1000 / $("#speed").value);
    };
    state.timer = setTimeout(next, 0);
    drawPlay();
  }

  /** Whether every lane that is being decoded has so many frames. */
  function arrivedUpTo(at) {
    return state.lanes.every(({ pending, incoming }) => !pending || (incoming?.frames.length ?? 0) >= at);
  }

  function drawPlay() {
    const button = $("#play");
    button.setAttribute("aria-label", state.timer ? "Pause" : "Play");
    $("path", button).setAttribute("d", state.timer ? "M4 3h2.5v10H4zM9.5 3H12v10H9.5z" : "M5 3l8 5-8 5z");
  }

  const step = (move) => () => {
    pause();
    go(move());
  };
  $("#first").addEventListener("click", step(() => 0));
  $("#back").addEventListener("click", step(() => state.at - 1));
  $("#forth").addEventListener("click", step(() => state.at + 1));
  $("#last").addEventListener("click", step(steps));
  $("#play").addEventListener("click", () => (state.timer ? pause() : play()));
  scrub.addEventListener("input", step(() => Number(scrub.value)));
  example.addEventListener("change", () => setPuzzle(example.value));
  $("#clear").addEventListener("click", () => setPuzzle("", 0));
  undoing.addEventListener("click", undo);
  $("#lanes").addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || !event.target.closest(".board")) return;
    event.preventDefault();
    undo();
  });
  $("#paste").addEventListener("submit", (event) => {
    event.preventDefault();
    setPuzzle(text.value);
  });
  $("#lanes").addEventListener("paste", (event) => {
    if (!event.target.closest(".board") || !state.served) return;
    event.preventDefault();
    setPuzzle(event.clipboardData.getData("text"));
  });
  seed.addEventListener("change", () => state.lanes.forEach(later));
  $("#compare").addEventListener("click", compare);

  return {
    begin,
    pause,
    play(traces) {
      for (const trace of traces.slice(0, 2)) {
        const lane = addLane();
        lane.trace = trace;
        lane.fix(trace);
      }
      draw();
    },
  };
}
