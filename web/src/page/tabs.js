/** The tabs of the page. */

import { $ } from "./dom.js";

export class Tabs {
  current = "";

  /**
   * @param {string[]} names of the tabs that are offered
   * @param {(name: string) => void} opened
   */
  constructor(names, opened) {
    this.names = names;
    this.opened = opened;
    names.forEach((name, place) => {
      const tab = this.tab(name);
      tab.hidden = false;
      tab.addEventListener("click", () => this.open(name));
      tab.addEventListener("keydown", (event) => this.onKey(event, place));
    });
  }

  /** @param {string} name */
  tab(name) {
    return $(`#tab-${name}`);
  }

  /**
   * @param {KeyboardEvent} event
   * @param {number} place
   */
  onKey(event, place) {
    const count = this.names.length;
    const goals = { ArrowRight: place + 1, ArrowLeft: place + count - 1, Home: 0, End: count - 1 };
    const goal = goals[/** @type {keyof typeof goals} */ (event.key)];
    if (goal === undefined) return;
    event.preventDefault();
    const name = this.names[goal % count];
    this.open(name);
    this.tab(name).focus();
  }

  /** @param {string} name */
  open(name) {
    this.current = this.names.includes(name) ? name : this.names[0];
    for (const other of this.names) {
      const isOpen = other === this.current;
      this.tab(other).setAttribute("aria-selected", String(isOpen));
      this.tab(other).tabIndex = isOpen ? 0 : -1;
      $(`#${other}`).hidden = !isOpen;
    }
    this.opened(this.current);
  }
}
