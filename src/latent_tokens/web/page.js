"use strict";

const TABS = ["watch", "curve", "masks"];

function complain(error) {
  const line = $("#fault");
  line.hidden = !error;
  line.textContent = error ? error.message : "";
}

function dress(theme) {
  document.documentElement.dataset.theme = theme;
  $("#theme").setAttribute("aria-pressed", theme === "dark");
}

/** Follows the system until a theme is chosen. */
function makeTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => document.documentElement.dataset.chosen;
  dress(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => chosen() || dress(dark.matches ? "dark" : "light"));
  $("#theme").addEventListener("click", () => {
    document.documentElement.dataset.chosen = "yes";
    dress(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  });
}

function makeTabs(opened) {
  const open = (name, focus) => {
    for (const tab of TABS) {
      const button = $(`#tab-${tab}`);
      button.setAttribute("aria-selected", tab === name);
      button.tabIndex = tab === name ? 0 : -1;
      $(`#${tab}`).hidden = tab !== name;
      if (tab === name && focus) button.focus();
    }
    opened(name);
  };
  TABS.forEach((name, place) => {
    const button = $(`#tab-${name}`);
    button.addEventListener("click", () => (location.hash = name));
    button.addEventListener("keydown", ({ key }) => {
      const goal = { ArrowRight: place + 1, ArrowLeft: place + TABS.length - 1, Home: 0, End: TABS.length - 1 }[key];
      if (goal === undefined) return;
      open(TABS[goal % TABS.length], true);
      history.replaceState(null, "", `#${TABS[goal % TABS.length]}`);
    });
  });
  const named = () => location.hash.slice(1);
  addEventListener("hashchange", () => {
    if (TABS.includes(named()) || !named()) open(named() || "watch", false);
  });
  open(TABS.includes(named()) ? named() : "watch", false);
}

/** The link moves the focus and leaves the address, which names the tab. */
function makeSkipLink() {
  $(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    $("#main").focus();
  });
}

async function begin() {
  makeTheme();
  makeSkipLink();
  const traces = JSON.parse($("#traces").textContent);
  const watch = makeWatch();
  if (traces.length) {
    document.documentElement.classList.add("offline");
    $("#tabs").hidden = true;
    return watch.play(traces);
  }
  try {
    const models = await get("/api/models");
    watch.begin(models);
    const curve = makeCurve(models);
    const masks = makeMasks();
    makeTabs((name) => {
      if (name !== "watch") watch.pause();
      if (name === "curve") curve.open();
      if (name === "masks") masks.open();
    });
  } catch (error) {
    complain(error);
    if (!(error instanceof Fault)) throw error;
  }
  return undefined;
}

begin();
