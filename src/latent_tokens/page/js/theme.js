/** The theme: the system's until another is chosen, which is kept. A link does not have it. */

import { $ } from "./dom.js";

const THEME = "latent-tokens-theme";

/** Dress the page, and let the button change the theme. */
export function startTheme() {
  const isDark = matchMedia("(prefers-color-scheme: dark)");
  const current = () => storedTheme() ?? (isDark.matches ? "dark" : "light");
  const dress = (/** @type {string} */ theme) => {
    document.documentElement.dataset.theme = theme;
    $("#theme").setAttribute("aria-pressed", String(theme === "dark"));
  };
  dress(current());
  $("#theme").hidden = false;
  isDark.addEventListener("change", () => dress(current()));
  $("#theme").addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    dress(next);
    try {
      localStorage.setItem(THEME, next);
    } catch {
      // A browser may forbid storage. The theme is then kept until the page is closed.
    }
  });
}

/** Return the chosen theme, or null. */
function storedTheme() {
  try {
    return localStorage.getItem(THEME);
  } catch {
    return null;
  }
}
