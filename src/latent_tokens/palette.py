"""The colors of boards, figures and the page, whose page.css has the same values."""

from __future__ import annotations

PAGE = {
    "paper": "#faf9f6",
    "card": "#ffffff",
    "ink": "#1d2430",
    "soft": "#545d6b",
    "line": "#d8d4ca",
    "faint": "#eeebe3",
    "edge": "#767c88",
    "blue": "#0b62a8",
    "blue-wash": "#e4eff8",
    "on-blue": "#ffffff",
    "orange": "#9a4d00",
    "orange-line": "#c96a00",
    "orange-wash": "#fdf1df",
    "red": "#a9231b",
    "red-wash": "#fbe7e4",
    "green": "#00694a",
    "green-wash": "#e0f2ea",
}
"""The light theme of the page. Strips, animations and the manual's figures use these colors too.

Blue is decoded, orange is latent, red is wrong, green is right.
"""

VERMILION = "#d55e00"
BLUISH_GREEN = "#009e73"
STRONG_BLUE = "#0072b2"
SKY_BLUE = "#56b4e9"
GRAY = "#666666"
AMBER = "#e69f00"
METHOD_COLORS = {
    "mdm": VERMILION,
    "sidm": BLUISH_GREEN,
    "scdm": STRONG_BLUE,
    "esolm": SKY_BLUE,
    "arm": GRAY,
    "ar-mtp": "#cc79a7",
    "ar-mtp-window": "#cc79a7",
    "ar-ntp": "#882255",
    "mdm-depth": AMBER,
    "scdm-depth": "#332288",
    "ar-latents": "#117733",
}
"""The curves of methods, in the order of a legend: Okabe and Ito (2008), and three of Tol's muted colors."""

RULE_COLORS = {
    "top-prob": "#1d2430",
    "entropy": "#c51b4b",
    "threshold": "#8c510a",
    "entropy bound": "#6a3d9a",
    "entropy, threshold": "#8a8a00",
    "entropy, remasking": "#00504f",
}
"""The curves of decoding rules, none of which has the color of a method."""

DARK = {
    PAGE["ink"]: "#eae7e0",
    PAGE["soft"]: "#a9b0bc",
    PAGE["line"]: "#363c47",
    PAGE["faint"]: "#262b34",
    PAGE["edge"]: "#8b93a1",
    PAGE["blue"]: "#86c1f7",
    PAGE["orange-line"]: "#e09a3c",
    PAGE["green"]: "#6ad3ac",
    "#000000": "#eae7e0",
    "#555555": "#a9b0bc",
    "#ffffff": "#13161b",
    STRONG_BLUE: "#58aef0",
    VERMILION: "#ff8a3d",
    BLUISH_GREEN: "#2fc79a",
    GRAY: "#a9b0bc",
    "#882255": "#d977a8",
    "#332288": "#a79bf0",
    "#117733": "#5fc07f",
    "#c51b4b": "#ff7d9c",
    "#8c510a": "#d9a05f",
    "#6a3d9a": "#c09af0",
    "#8a8a00": "#cfcf4a",
}
"""The colors of figures for dark pages. Those that are missing stay."""
