/** The tabs of the page. */

import { problemOf } from "./address.js";
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

  /**
   * Open the tab that an address names, or the current one, or the first one.
   *
   * @param {import("./address.js").Address} address
   * @param {string} first
   * @returns {string[]} why the tab cannot be opened
   */
  restore({ tab = "" }, first) {
    const isOffered = this.names.includes(tab);
    this.open(isOffered ? tab : this.current || first);
    return isOffered || !tab ? [] : [problemOf("tab", tab, `must be one of ${this.names.join(", ")}`)];
  }

  /** @param {string} name */
  open(name) {
    this.current = name;
    for (const other of this.names) {
      const isOpen = other === this.current;
      this.tab(other).setAttribute("aria-selected", String(isOpen));
      this.tab(other).tabIndex = isOpen ? 0 : -1;
      $(`#${other}`).hidden = !isOpen;
    }
    this.opened(this.current);
  }
}
