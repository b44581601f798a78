"use strict";

const MARKS = ["circle", "square", "diamond", "triangle"];
const INKS = ["var(--blue)", "var(--orange-line)", "var(--green)", "var(--soft)"];
const FRAME = { left: 46, right: 18, top: 30, bottom: 42, height: 360 };

/** The tab Curve: draws the points of a run as they arrive. Earlier runs stay until they are cleared. */
function makeCurve(models) {
  const [run, stop, clear, words] = ["#curve-run", "#curve-stop", "#curve-clear", "#curve-words"].map((name) => $(name));
  const [model, count, candidates, order, seed] = ["model", "count", "candidates", "order", "seed"].map((name) => $(`#curve-${name}`));
  const series = [];
  const wished = { order: "top_prob", candidates: "4" };
  let control = null;

  offer(model, models.map(({ name }) => [name, shortName(name)]), models.find(({ method }) => method === "scdm")?.name);
  offer(candidates, CANDIDATES, "4");
  fitOrder();
  model.addEventListener("change", fitOrder);
  order.addEventListener("change", () => {
    wished.order = order.value;
    fitCandidates();
  });
  candidates.addEventListener("change", () => (wished.candidates = candidates.value));
  new ResizeObserver(draw).observe($("#plot"));

  function fitOrder() {
    const { left_to_right: fixed } = models.find(({ name }) => name === model.value);
    offer(order, ORDERS.filter(([name]) => !fixed || name === "left_to_right"), wished.order);
    fitCandidates();
  }

  function fitCandidates() {
    candidates.disabled = !ADAPTIVE.includes(order.value);
    candidates.value = candidates.disabled ? "1" : wished.candidates;
  }

  $("#run").addEventListener("submit", (event) => {
    event.preventDefault();
    start();
  });
  stop.addEventListener("click", () => control?.abort());
  clear.addEventListener("click", () => {
    series.length = 0;
    say(words, "");
    draw();
  });

  async function start() {
    const values = { model: model.value, count: count.value, candidates: candidates.value, order: order.value, seed: seed.value };
    const told = [shortName(values.model), orderName(values.order), ...(candidates.disabled ? [] : [`k = ${values.candidates}`]), ...(values.seed === "0" ? [] : [`seed ${values.seed}`])];
    const mine = { name: told.join(", "), points: new Map() };
    if (series.length === MARKS.length) series.shift();
    series.push(mine);
    control = new AbortController();
    running(true);
    say(words, "Decoding the first samples.");
    draw();
    try {
      for await (const [name, point] of events(`/api/curve?${query(values)}`, control.signal)) {
        if (name !== "point") continue;
        mine.points.set(String(point.latents), point);
        draw();
        const { latents, done, of, right } = point;
        say(words, `n = ${latents}: ${right} of ${done} correct${done < of ? `, ${of - done} to go` : ""}.`);
      }
      say(words, [...mine.points.values()].map(({ latents, right, done }) => `n = ${latents}: ${percent(right / done)} correct`).join(", ") + ".");
    } catch (error) {
      if (control.signal.aborted) say(words, "Stopped. The points measured so far remain.");
      else if (error instanceof Fault) say(words, error.message, true);
      else throw error;
    }
    if (!mine.points.size) series.splice(series.indexOf(mine), 1);
    running(false);
    draw();
  }

  function running(on) {
    run.disabled = on;
    stop.disabled = !on;
    clear.disabled = on || !series.length;
  }

  function draw() {
    const box = $("#plot");
    const width = Math.max(box.clientWidth, 280);
    box.replaceChildren(plot(series, width, control && run.disabled));
    const cells = (kind, values) => el("tr", {}, ...values.map((value) => el(kind, kind === "th" ? { scope: "col" } : {}, value)));
    $("#points thead").replaceChildren(...(series.length ? [cells("th", ["model", "n", "correct", "accuracy", "95% interval", "tokens processed", "relative cost"])] : []));
    $("#points tbody").replaceChildren(...series.flatMap(({ name, points }) => [...points.values()].map((p) =>
      cells("td", [name, p.latents, `${p.right} of ${p.done}`, percent(p.right / p.done), `${percent(p.low)} to ${percent(p.high)}`, number(Math.round(p.processed)), times(p.relative)]))));
    clear.disabled = run.disabled || !series.length;
  }

  return { open: draw };
}

/** Accuracy over cost, each point with its interval. */
function plot(series, width, busy) {
  const all = series.flatMap(({ points }) => [...points.values()]);
  const [low, high] = [Math.min(0.5, ...all.map(({ relative }) => relative)), 1];
  const start = Math.floor(10 * low - 0.001) / 10;
  const top = Math.min(1, Math.ceil(10 * Math.max(0.2, ...all.map((p) => p.high))) / 10);
  const x = (relative) => FRAME.left + ((relative - start) / (high - start)) * (width - FRAME.left - FRAME.right);
  const y = (share) => FRAME.height - FRAME.bottom - (share / top) * (FRAME.height - FRAME.top - FRAME.bottom);
  const spoken = all.length ? "Accuracy over relative cost, with the numbers in the table below" : "An empty plot";
  const picture = svg("svg", { viewBox: `0 0 ${width} ${FRAME.height}`, height: FRAME.height, role: "img", "aria-label": spoken });
  for (let tenth = 0; tenth <= Math.round(10 * top); tenth += top > 0.6 ? 2 : 1) {
    picture.append(svg("line", { x1: FRAME.left, x2: width - FRAME.right, y1: y(tenth / 10), y2: y(tenth / 10), stroke: "var(--line)" }), svg("text", { x: FRAME.left - 8, y: y(tenth / 10) + 4, "text-anchor": "end" }, `${10 * tenth}%`));
  }
  for (let tenth = Math.round(10 * start); tenth <= 10; tenth++) {
    picture.append(svg("text", { x: x(tenth / 10), y: FRAME.height - FRAME.bottom + 18, "text-anchor": "middle" }, times(tenth / 10).replace("0\u00d7", "\u00d7")));
  }
  picture.append(svg("text", { x: (width + FRAME.left) / 2, y: FRAME.height - 6, "text-anchor": "middle" }, "relative cost: tokens processed / tokens processed with n = all"));
  if (!all.length) picture.append(svg("text", { x: (width + FRAME.left) / 2, y: FRAME.height / 2 - 30, "text-anchor": "middle", class: "name" }, busy ? "The first points are being decoded." : "Press Run to measure the curve."));
  series.forEach(({ name, points }, place) => {
    const ink = INKS[place];
    const dots = [...points.values()].filter(({ done }) => done).sort((a, b) => a.relative - b.relative);
    picture.append(svg("polyline", { points: dots.map((p) => `${x(p.relative)},${y(p.right / p.done)}`).join(" "), fill: "none", stroke: ink, "stroke-width": 1.5, "stroke-dasharray": place ? "6 4" : null }));
    dots.forEach((p) => {
      const [cx, cy] = [x(p.relative), y(p.right / p.done)];
      picture.append(svg("path", { d: `M${cx} ${y(p.low)}V${y(p.high)}M${cx - 5} ${y(p.low)}h10M${cx - 5} ${y(p.high)}h10`, stroke: ink, "stroke-width": 1.5 }), mark(MARKS[place], cx, cy, ink, p.done === p.of));
      const first = cx < FRAME.left + 60; // else on the left, where a rising line leaves room
      picture.append(svg("text", { x: cx + (first ? 10 : -10), y: cy - 8, "text-anchor": first ? "start" : "end", class: "name" }, `n = ${p.latents}`));
    });
    if (dots.length) picture.append(mark(MARKS[place], FRAME.left + 14, FRAME.top + 8 + 20 * place, ink, true), svg("text", { x: FRAME.left + 26, y: FRAME.top + 12 + 20 * place, class: "name" }, name));
  });
  return picture;
}

/** A point, filled when all of its samples are decoded. */
function mark(shape, x, y, ink, whole) {
  const outline = { circle: "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0", square: "M-5 -5h10v10h-10z", diamond: "M0 -7l7 7l-7 7l-7 -7z", triangle: "M0 -7l7 12h-14z" }[shape];
  return svg("path", { d: outline, transform: `translate(${x} ${y})`, fill: whole ? ink : "var(--paper)", stroke: ink, "stroke-width": 2 });
}
