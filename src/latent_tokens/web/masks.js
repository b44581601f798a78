"use strict";

const LENGTH = 8;
const WINDOW = 3;
const FREE = ["scdm", "esolm"];
const FORWARD = ["arm", "ar-mtp", `ar-mtp-window-${WINDOW}`, `ar-ntp-${WINDOW}`]; // from left to right
const METHODS = [["mdm", "MDM"], ["sidm", "SIDM"], ["scdm", "SCDM"], ["esolm", "Eso-LM"], ["arm", "ARM"], ["ar-mtp", "AR-MTP"], [`ar-mtp-window-${WINDOW}`, `AR-MTP, window ${WINDOW}`], [`ar-ntp-${WINDOW}`, `AR-NTP, window ${WINDOW}`]];
/** The paper's figures: a name, the settings that draw it, and what it shows. */
const FIGURES = [
  ["Attention: MDM", { method: "mdm", latents: 4 }, "The target attends to every masked token, so all of them are in the input: they are all latent."],
  ["Attention: SIDM", { method: "sidm", latents: 0 }, "The target attends to clean tokens and itself. The other masked tokens can be skipped: cheaper, but less accurate."],
  ["Standard SCDM", { method: "scdm", latents: 0 }, "A masked token attends only to slots before it. The target is the first masked token, so the others are skipped."],
  ["Modulation, n = 2", { method: "scdm", latents: 2 }, "Two masked tokens are placed before the target, which now attends to them. The weights are the same: n is set at inference."],
  ["Standard ARM", { method: "arm", latents: 0 }, "The next token is predicted at the token before it. No masked token is in the input, except at the first position."],
  ["AR-MTP", { method: "ar-mtp", latents: 4 }, "Left-to-right decoding in which all later tokens are predicted too: latent tokens for an autoregressive model."],
  ["AR-MTP, window", { method: `ar-mtp-window-${WINDOW}`, latents: WINDOW - 1 }, "Only a window of later tokens is in the input, so the number of latent tokens is bounded. The window is set in training."],
];
const NOUNS = { clean: "clean", latent: "latent", candidate: "candidate", hidden: "skipped" };

/** The tab Masks: requests the slots and the attention mask of a method, and draws both. */
function makeMasks() {
  const [method, clean, latents, candidates] = ["method", "clean", "latents", "candidates"].map((name) => $(`#mask-${name}`));
  const note = $("#mask-note");
  let shown = null;
  let asked = null; // the slot whose attention is drawn
  let figure = null;

  offer(method, METHODS, "scdm");
  $("#figures").append(...FIGURES.map(([name, settings], place) => {
    const button = el("button", { type: "button", "aria-pressed": "false" }, name);
    button.addEventListener("click", () => {
      method.value = settings.method;
      [clean.value, latents.value, candidates.value] = [3, settings.latents, 1];
      refresh(place);
    });
    return button;
  }));
  for (const control of [method, clean, latents, candidates]) control.addEventListener("input", () => refresh(null));
  $("#mask-settings").addEventListener("submit", (event) => event.preventDefault());

  function refresh(place) {
    figure = place;
    [...$("#figures").children].forEach((button, i) => button.setAttribute("aria-pressed", i === figure));
    for (const slider of [clean, latents, candidates]) $(`#${slider.id}-out`).textContent = slider.value;
    load();
  }

  const load = settled(async () => {
    const free = FREE.includes(method.value);
    latents.disabled = !free;
    candidates.disabled = FORWARD.includes(method.value);
    if (candidates.disabled) candidates.value = $("#mask-candidates-out").textContent = 1;
    const values = { method: method.value, length: LENGTH, clean: clean.value, candidates: candidates.value, ...(free ? { latents: latents.value } : {}) };
    try {
      shown = await get(`/api/masks?${query(values)}`);
      shown.mask.length = shown.slots.filter(({ kind }) => kind !== "hidden").length;
      asked = shown.slots.findLastIndex(({ kind }) => kind === "candidate");
      draw();
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      say(note, error.message, true);
    }
  }, 120);

  function draw() {
    const count = (kind) => shown.slots.filter((slot) => slot.kind === kind).length;
    const got = { latents: count("latent"), candidates: count("candidate") };
    if (latents.disabled) latents.value = $("#mask-latents-out").textContent = got.latents;
    const told = Object.entries(got).filter(([name, value]) => value !== Number($(`#mask-${name}`).value)).map(([name, value]) => plural(value, name.slice(0, -1)));
    const reason = latents.disabled ? `This method fixes the number of latent tokens: here ${got.latents}. ` : "";
    say(note, reason + (told.length ? `At most ${told.join(" and ")} here.` : ""));
    $("#mask-words").textContent = [figure === null ? "" : FIGURES[figure][2], shown.words].filter(Boolean).join(" ");
    drawMask();
    drawDiagram();
  }

  function choose(slot) {
    asked = slot;
    drawMask();
    drawDiagram();
    $(`#diagram [data-slot="${slot}"]`)?.focus();
  }

  function drawMask() {
    const { slots, mask } = shown;
    const head = (slot) => `${{ clean: "C", latent: "L", candidate: "K", hidden: "" }[slot.kind]}${slot.position + 1}`;
    const row = (seen, asker) => {
      const sight = seen.slice(0, mask.length);
      const line = el("tr", { class: asker === asked ? "asked" : null }, el("th", { scope: "row" }, `${NOUNS[slots[asker].kind]} ${slots[asker].position + 1}`));
      line.append(...sight.map((sees, key) => el("td", { class: sees ? `sees to-${slots[key].kind}` : null }, el("i"), el("span", { class: "unseen" }, sees ? "attends" : "no"))));
      return line;
    };
    const shownSlots = slots.slice(0, mask.length);
    $("#mask").replaceChildren(
      el("caption", { class: "unseen" }, "Attention mask: queries by keys"),
      el("thead", {}, el("tr", {}, el("td"), ...shownSlots.map((slot) => el("th", { scope: "col", title: `${NOUNS[slot.kind]}, position ${slot.position + 1}` }, head(slot))))),
      el("tbody", {}, ...mask.map(row)),
    );
  }

  function drawDiagram() {
    const { slots, mask } = shown;
    const [step, side, top, bottom] = [52, 40, 20, 130];
    const x = (slot) => 90 + slot * step;
    const picture = svg("svg", { viewBox: `0 0 ${90 + slots.length * step} 190`, role: "radiogroup", "aria-label": "Outputs" });
    picture.append(svg("text", { x: 30, y: top }, "Output"), svg("text", { x: 30, y: bottom }, "Input"), svg("text", { x: 30, y: bottom + 38, class: "small" }, "position"));
    (mask[asked] ?? []).forEach((sees, key) => {
      if (sees) picture.append(svg("line", { x1: x(key), y1: bottom - side / 2, x2: x(asked), y2: top + side / 2, class: `ray to-${slots[key].kind}` }));
    });
    slots.forEach((slot, place) => {
      const live = place < mask.length && slot.kind !== "hidden";
      const label = `${NOUNS[slot.kind]}, position ${slot.position + 1}`;
      const output = svg("g", live ? { role: "radio", "aria-checked": place === asked, tabindex: place === asked ? 0 : -1, "aria-label": label, "data-slot": place } : { "aria-hidden": "true" }, box(slot, x(place), top, side, place === asked ? "target" : ""), svg("text", { x: x(place), y: top }, live ? `x${slot.position + 1}` : ""));
      if (live) {
        output.addEventListener("click", () => choose(place));
        output.addEventListener("keydown", (event) => {
          const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, " ": 0, Enter: 0 }[event.key];
          if (way === undefined) return;
          event.preventDefault();
          choose((place + way + mask.length) % mask.length);
        });
      }
      picture.append(output, svg("g", { "aria-hidden": "true" }, box(slot, x(place), bottom, side, ""), svg("text", { x: x(place), y: bottom }, fed(place)), svg("text", { x: x(place), y: bottom + 38, class: "small" }, slot.position + 1)));
    });
    $("#diagram").replaceChildren(picture);
  }

  /** What a slot is fed: its token or MASK; with ARM's shift the token before. */
  function fed(place) {
    const slot = shown.slots[method.value === "arm" ? place - 1 : place];
    return slot?.kind === "clean" ? `x${slot.position + 1}` : "M";
  }

  function box(slot, x, y, side, more) {
    return svg("rect", { x: x - side / 2, y: y - side / 2, width: side, height: side, rx: slot.kind === "latent" ? side / 2 : 5, class: `box ${slot.kind} ${more}` });
  }

  return { open: () => shown || refresh(FIGURES.findIndex(([name]) => name.startsWith("Modulation"))) };
}
