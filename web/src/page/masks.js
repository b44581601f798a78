/** The tab Masks: the slots and the attention mask of a method. */

import { $, el, find, offer, plural, settled, write } from "./dom.js";
import { drawDiagram, drawMask } from "./mask_view.js";
import { Fault, get, query } from "./server.js";

/** @typedef {"clean" | "latent" | "candidate" | "hidden"} SlotKind */
/** @typedef {{ slots: { position: number, kind: SlotKind }[], mask: boolean[][], words: string }} Mask */
/** @typedef {{ name: string, method: string, latents: number, words: string }} Figure one of the paper */

const LENGTH = 8;
const NUM_CLEAN = 3; // of the figures
const WINDOW = 3;
const WINDOW_MTP = `ar-mtp-window-${WINDOW}`;
const WINDOW_NTP = `ar-ntp-${WINDOW}`;
const FREE = ["scdm", "esolm"];
const LEFT_TO_RIGHT = ["arm", "ar-mtp", WINDOW_MTP, WINDOW_NTP];
/** @type {readonly (readonly [string, string])[]} */
const METHODS = [
  ["mdm", "MDM"],
  ["sidm", "SIDM"],
  ["scdm", "SCDM"],
  ["esolm", "Eso-LM"],
  ["arm", "ARM"],
  ["ar-mtp", "AR-MTP"],
  [WINDOW_MTP, `AR-MTP, window ${WINDOW}`],
  [WINDOW_NTP, `AR-NTP, window ${WINDOW}`],
];
/** @type {Figure[]} */
const FIGURES = [
  {
    name: "Attention: MDM",
    method: "mdm",
    latents: 4,
    words: "The target attends to every masked token, so all of them are in the input: they are all latent.",
  },
  {
    name: "Attention: SIDM",
    method: "sidm",
    latents: 0,
    words:
      "The target attends to clean tokens and itself. The other masked tokens can be skipped: " +
      "cheaper, but less accurate.",
  },
  {
    name: "Standard SCDM",
    method: "scdm",
    latents: 0,
    words:
      "A masked token attends only to slots before it. The target is the first masked token, " +
      "so the others are skipped.",
  },
  {
    name: "Modulation, n = 2",
    method: "scdm",
    latents: 2,
    words:
      "Two masked tokens are placed before the target, which now attends to them. " +
      "The weights are the same: n is set at inference.",
  },
  {
    name: "Standard ARM",
    method: "arm",
    latents: 0,
    words:
      "The next token is predicted at the token before it. No masked token is in the input, " +
      "except at the first position.",
  },
  {
    name: "AR-MTP",
    method: "ar-mtp",
    latents: 4,
    words:
      "Left-to-right decoding in which all later tokens are predicted too: " +
      "latent tokens for an autoregressive model.",
  },
  {
    name: "AR-MTP, window",
    method: WINDOW_MTP,
    latents: WINDOW - 1,
    words:
      "Only a window of later tokens is in the input, so the number of latent tokens is bounded. " +
      "The window is set in training.",
  },
];

export class Masks {
  method = find("#mask-method", HTMLSelectElement);
  clean = find("#mask-clean", HTMLInputElement);
  latents = find("#mask-latents", HTMLInputElement);
  candidates = find("#mask-candidates", HTMLInputElement);
  note = $("#mask-note");
  /** @type {Mask | null} */
  shown = null;
  chosen = 0; // the slot whose attention is drawn
  version = 0; // of the latest request
  /** @type {Figure | null} */
  figure = null;

  constructor() {
    offer(this.method, METHODS, "scdm");
    $("#figures").append(...FIGURES.map((figure) => this.figureButton(figure)));
    for (const control of [this.method, this.clean, this.latents, this.candidates]) {
      control.addEventListener("input", () => this.refresh(null));
    }
    $("#mask-settings").addEventListener("submit", (event) => event.preventDefault());
    this.load = settled(() => void this.request(), 120);
  }

  /** @param {Figure} figure */
  figureButton(figure) {
    const button = el("button", { type: "button", "aria-pressed": "false" }, figure.name);
    button.addEventListener("click", () => {
      this.method.value = figure.method;
      this.clean.value = String(NUM_CLEAN);
      this.latents.value = String(figure.latents);
      this.candidates.value = "1";
      this.refresh(figure);
    });
    return button;
  }

  /** Load the first figure, unless one is drawn. */
  open() {
    if (!this.shown) this.refresh(FIGURES.find(({ name }) => name.startsWith("Modulation")) ?? null);
  }

  /** @param {Figure | null} figure */
  refresh(figure) {
    this.figure = figure;
    FIGURES.forEach((other, i) =>
      $("#figures").children[i].setAttribute("aria-pressed", String(other === figure)),
    );
    for (const slider of [this.clean, this.latents, this.candidates])
      $(`#${slider.id}-out`).textContent = slider.value;
    this.load();
  }

  /** Ask for the mask of the settings. An answer that is overtaken is not drawn. */
  async request() {
    const version = ++this.version;
    const isFree = FREE.includes(this.method.value);
    this.latents.disabled = !isFree;
    this.candidates.disabled = LEFT_TO_RIGHT.includes(this.method.value);
    if (this.candidates.disabled) $("#mask-candidates-out").textContent = this.candidates.value = "1";
    const latents = isFree ? { latents: this.latents.value } : {};
    const counts = { clean: this.clean.value, candidates: this.candidates.value, ...latents };
    try {
      const path = `/api/masks?${query({ method: this.method.value, length: LENGTH, ...counts })}`;
      const mask = await get(path);
      if (version !== this.version) return;
      this.shown = mask;
      this.draw();
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      if (version === this.version) write(this.note, error.message, true);
    }
  }

  draw() {
    if (!this.shown) return;
    const { slots, words } = this.shown;
    const count = (/** @type {SlotKind} */ kind) => slots.filter((slot) => slot.kind === kind).length;
    const latents = count("latent");
    if (this.latents.disabled) $("#mask-latents-out").textContent = this.latents.value = String(latents);
    const most = [
      ...(latents === Number(this.latents.value) ? [] : [plural(latents, "latent")]),
      ...(count("candidate") === Number(this.candidates.value)
        ? []
        : [plural(count("candidate"), "candidate")]),
    ];
    const reason = this.latents.disabled
      ? `This method fixes the number of latent tokens: here ${latents}. `
      : "";
    write(this.note, reason + (most.length ? `At most ${most.join(" and ")} here.` : ""));
    $("#mask-words").textContent = [this.figure?.words, words].filter(Boolean).join(" ");
    this.choose(slots.findLastIndex(({ kind }) => kind === "candidate"));
  }

  /** @param {number} slot whose attention is drawn */
  choose(slot) {
    if (!this.shown) return;
    const { slots, mask } = this.shown;
    const numShown = slots.filter(({ kind }) => kind !== "hidden").length;
    const view = {
      slots,
      mask: mask.slice(0, numShown),
      chosen: slot,
      isShifted: this.method.value === "arm",
    };
    const hadFocus = $("#diagram").contains(document.activeElement);
    drawMask($("#mask"), view);
    drawDiagram($("#diagram"), view, (next) => this.choose(next));
    if (hadFocus) find(`#diagram [data-slot="${slot}"]`, SVGElement).focus();
  }
}
