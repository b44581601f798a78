"use strict";

const KEPT = 60; // decodes that are shown again without asking
const QUIET = 250; // milliseconds without a change before the server is asked

/** The tab Watch. `begin(models)` asks the server; `play(traces)` shows what is there, without one. */
function makeWatch() {
  const state = { puzzle: null, text: "", at: 1, chosen: null, timer: null, lanes: [], served: false };
  const kept = new Map();
  const [scrub, words, example, text, seed] = ["#scrub", "#puzzle-words", "#example", "#text", "#seed"].map((name) => $(name));
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
    const lane = addLane();
    const best = models.find(({ name }) => name === "sudoku-9-scdm");
    lane.offer(models, (models[0].name === "sudoku-6-scdm" && best ? best : models[0]).name); // else the first run that was named
    state.task = model().task;
    newTask();
  }

  /** The examples of the first lane's task, and the first of them. */
  function newTask() {
    const { examples } = model();
    offer(example, [...examples.map((puzzle, i) => [puzzle, `${model().task} ${i + 1}`]), ["", "my own"]], examples[0] ?? "");
    $("#clear").hidden = !isSudoku();
    setPuzzle(example.value);
  }

  /** Takes a puzzle as text: at once where it can be read here, then as the server reads it. */
  function setPuzzle(puzzle, at = 1) {
    pause();
    if (isSudoku()) {
      try {
        state.puzzle = puzzle ? readSudoku(puzzle, model().side) : Array(model().side ** 2).fill(null);
      } catch (error) {
        return say(words, error.message, true);
      }
    }
    text.value = puzzle;
    Object.assign(state, { text: puzzle, at, chosen: null });
    return newPuzzle();
  }

  function newPuzzle() {
    if (isSudoku()) state.text = text.value = writeSudoku(state.puzzle);
    const same = (puzzle) => (isSudoku() ? writeSudoku(readSudoku(puzzle, model().side)) : puzzle) === state.text;
    example.value = model().examples.find(same) ?? "";
    for (const lane of state.lanes) {
      lane.abort?.abort();
      Object.assign(lane, { trace: null, fault: "", tried: new Map() });
    }
    state.lanes.forEach(pad);
    const found = isSudoku() ? clashes(state.puzzle, model().side, model().box).words : [];
    const full = isSudoku() && !state.puzzle.includes(null);
    say(words, found.length ? `${found.join("; ")}.` : full ? "Every cell is given: there is nothing to decode." : "", found.length > 0);
    state.blocked = found.length > 0 || full;
    draw();
    if (!state.blocked) check();
  }

  const check = settled(async () => {
    const puzzle = state.text;
    if (isSudoku() && (!state.puzzle.includes(null) || clashes(state.puzzle, model().side, model().box).words.length)) return;
    try {
      const { solutions, conflicts } = await post("/api/check", { model: model().name, puzzle });
      if (puzzle !== state.text) return;
      const count = { 0: "No answer agrees with what is given: there is nothing to find.", 1: model().kind === "countdown" ? "It can be made." : "It has one solution.", 2: "It has several solutions; any of them is right." }[solutions];
      say(words, conflicts.length ? "Some cells contradict each other." : (count ?? ""), solutions === 0);
      state.blocked = solutions === 0;
      if (solutions !== 0) state.lanes.forEach(decode);
      else draw();
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      if (puzzle === state.text) say(words, error.message, true);
    }
  }, QUIET);

  function changed(lane) {
    if (lane === state.lanes[0]) {
      const before = state.task;
      state.task = model().task;
      if (before !== state.task) {
        if (state.lanes[1]) compare();
        return newTask();
      }
    }
    draw();
    return later(lane);
  }

  const waiting = new Set();
  const flush = settled(() => {
    waiting.forEach(decode);
    waiting.clear();
  }, QUIET);

  function later(lane) {
    waiting.add(lane);
    flush();
  }

  async function decode(lane) {
    lane.abort?.abort();
    const values = { ...lane.settings(), puzzle: state.text, temperature: 0, seed: seed.value || 0 };
    const key = query(values);
    lane.fault = "";
    if (kept.has(key)) {
      lane.trace = kept.get(key);
      return noteTried(lane, values);
    }
    const control = (lane.abort = new AbortController());
    const trace = { start: null, frames: [], end: null };
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
      return noteTried(lane, values);
    } catch (error) {
      if (control.signal.aborted) return undefined;
      if (!(error instanceof Fault)) throw error;
      Object.assign(lane, { trace: null, fault: error.message });
      return draw();
    }
  }

  /** Marks on the dial how a number of latents ended; marks of other settings go. */
  function noteTried(lane, { latents, ...others }) {
    const setting = query(others);
    if (lane.setting !== setting) lane.tried = new Map();
    lane.setting = setting;
    if (latents !== undefined) lane.tried.set(latents, lane.trace.end.right);
    draw();
  }

  function typed(cell, key) {
    if (!state.served || !isSudoku()) return;
    const sign = key.toUpperCase();
    const erase = ["Delete", "Backspace", "0", ".", " "].includes(key);
    if (!erase && !SIGNS.slice(0, model().side).includes(sign)) return;
    pause();
    state.puzzle = state.puzzle.with(cell, erase ? null : SIGNS.indexOf(sign));
    state.at = 0;
    newPuzzle();
  }

  function picked(cell) {
    if (state.chosen === cell) return;
    state.chosen = cell;
    draw();
  }

  /** Buttons that type into the chosen cell, for who has no keyboard. */
  function pad({ root }) {
    const box = $(".pad", root);
    box.hidden = !isSudoku();
    if (box.hidden) return;
    const signs = [...SIGNS.slice(0, model().side)];
    if (box.children.length === signs.length + 1) return;
    const key = (sign, name, label) => {
      const button = el("button", { type: "button", "aria-label": label }, name);
      button.addEventListener("click", () => typed(state.chosen ?? 0, sign));
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

  /** What a lane shows before its trace begins. */
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
    const two = state.lanes.length > 1;
    state.lanes.forEach((lane, i) => {
      const start = lane.trace?.start ?? draft();
      if (state.served) lane.setRoom(start);
      $("h3", lane.root).textContent = two || !state.served ? [two ? "AB"[i] : "", lane.trace ? settingWords(lane.trace.start) : ""].filter(Boolean).join(". ") : "";
      lane.draw({ start, trace: lane.trace, at: state.at, chosen: state.chosen, editable: state.served && start.kind === "sudoku", served: state.served });
    });
    const { kind, words: given } = state.lanes[0].trace?.start ?? { words: [] };
    const told = kind === "countdown" ? [`Make ${given.at(-1)} from ${given.slice(0, -1).join(", ")}, each used once.`] : given;
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
      go(state.at + 1);
      if (state.at >= steps()) {
        pause();
        announce();
      } else state.timer = setTimeout(next, 1000 / $("#speed").value);
    };
    state.timer = setTimeout(next, 0);
    drawPlay();
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
