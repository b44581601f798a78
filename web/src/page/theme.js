/** The theme: the system's until another is chosen, which is kept. */

import { $ } from "./dom.js";

const KEY = "latent-tokens-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

/** @param {string | null} theme that of the address */
export function startTheme(theme) {
  dress(theme ?? stored() ?? system());
  dark.addEventListener("change", () => stored() ?? dress(system()));
  $("#theme").addEventListener("click", () => {
    const next = currentTheme() === "dark" ? "light" : "dark";
    dress(next);
    store(next);
  });
}

export const currentTheme = () => document.documentElement.dataset.theme ?? "light";

const system = () => (dark.matches ? "dark" : "light");

/** @param {string} theme */
export function dress(theme) {
  document.documentElement.dataset.theme = theme === "dark" ? "dark" : "light";
  $("#theme").setAttribute("aria-pressed", String(theme === "dark"));
}

/** Return the chosen theme. A browser may forbid storage. */
function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** @param {string} theme */
function store(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // The theme is kept until the page is closed.
  }
}
