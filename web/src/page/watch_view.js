/** The parts of the tab Watch around the boards. */

import { drawnTrace } from "./decode.js";
import { $, el, shortName, write } from "./dom.js";
import { settingWords } from "./trace.js";

/** @typedef {import("./lane.js").Lane} Lane */

/**
 * Write the headings of the lanes and of their settings.
 *
 * @param {Lane[]} lanes
 * @param {boolean} isServed
 * @param {boolean} isSame whether B shows the board of A
 */
export function drawHeads(lanes, isServed, isSame) {
  const isTwo = lanes.length > 1;
  $("#lanes").classList.toggle("two", isTwo);
  lanes.forEach((lane, i) => {
    const name = isTwo ? `${"AB"[i]}. ` : "";
    for (const part of [lane.root, lane.settings.root])
      part.setAttribute("aria-label", isTwo ? `Board ${"AB"[i]}` : "Board");
    const trace = drawnTrace(lane.decode, 0);
    const where = isSame && i === 1 ? ", on the board of A" : "";
    const words = trace ? settingWords(trace.start) + where : "";
    const isSampled = Boolean(trace?.start.settings.temperature); // the settings do not show it
    write($("h2", lane.root), isTwo || !isServed || isSampled ? name + words : "");
    write($("h3", lane.settings.root), isTwo ? `Board ${"AB"[i]}` : "");
  });
}

/**
 * Write the clues of a Zebra puzzle, or the numbers of a Countdown puzzle.
 *
 * @param {import("./types.js").Board | undefined} start
 */
export function drawClues(start) {
  const given = start?.words ?? [];
  const line = `Make ${given.at(-1)} from ${given.slice(0, -1).join(", ")}. Use each number once.`;
  const clues = start?.kind === "countdown" ? [line] : given;
  $("#clues").hidden = !clues.length;
  $("#clues").replaceChildren(...clues.map((clue) => el("li", {}, clue)));
}

/**
 * Write the steps of the lanes for a screen reader.
 *
 * @param {Lane[]} lanes
 */
export function announce(lanes) {
  const name = (/** @type {number} */ i) => (lanes.length > 1 ? `${"AB"[i]}: ` : "");
  const stories = lanes.map(({ root }, i) => name(i) + $(".story", root).textContent);
  write($("#said"), stories.join(" "));
}

/**
 * Return the number of solutions in words.
 *
 * @param {number | null} solutions 2 is several, null unknown
 */
export function solutionWords(solutions) {
  if (solutions === 0) return "The puzzle has no solution.";
  if (solutions === 2) return "The puzzle has several solutions. Any of them is accepted.";
  return solutions === null ? "" : "The puzzle has one solution.";
}

/**
 * Return why a model cannot decode the puzzle, or "".
 *
 * @param {Lane[]} lanes
 * @param {import("./puzzle.js").Puzzle} puzzle
 */
export function inability(lanes, puzzle) {
  const lane = lanes.find(({ model }) => model.continues_prefix && !puzzle.isPrefix);
  if (!lane) return "";
  const name = shortName(lane.model.name);
  return `${name} cannot infill: it only continues given cells from the first on. Choose another model.`;
}

export function toggleSettings() {
  const isShown = $("#settings").hidden;
  $("#settings").hidden = !isShown;
  $("#settings-button").setAttribute("aria-expanded", String(isShown));
}
