"""Rows of dots: one marker per result of an ablation, one row per method and variant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from latent_tokens.evaluation.report import ORDER_NAMES
from latent_tokens.palette import METHOD_COLORS
from latent_tokens.paper.design.cells import Cell
from latent_tokens.paper.design.scales import Latents
from latent_tokens.paper.design.variants import label
from latent_tokens.paper.figures.curves import HEADROOM, bars
from latent_tokens.paper.figures.legends import MARKERS, SOLID, kind, legend_below, style_of
from latent_tokens.paper.tables.lines import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPREAD = 0.15  # between the markers of a row
FADING = 0.2  # of the opacity, from one number of latents of a method to the next
DEFAULTS = {
    "as printed": "reshuffled",
    "elbo": "flat weight",
    "k=growing": "fixed k",
    "target only": "all targets",
    **dict.fromkeys(("random", "relevant"), "nearest"),
}
"""The name of the default in a figure, by a variant that replaces it."""


def dots(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw one row per method and variant, with a marker per n. An n of one row only is a line."""
    # The numbers of latents that have markers, and those that are lines.
    methods = {line.cell.method for line in lines}
    numbers = sorted({line.cell.latents for line in lines}, key=by_number)
    rows_of = {n: {named(line.cell) for line in lines if line.cell.latents == n} for n in numbers}
    limits = [n for n in numbers if len(rows_of[n]) == 1 < max(map(len, rows_of.values()))]
    limits = [n for n in limits if n in (0, "all")]
    numbers = [n for n in numbers if n not in limits]
    points = [line for line in lines if line.cell.latents in numbers]
    names = list(dict.fromkeys(named(line.cell) for line in reversed(points)))
    pairs = {(line.cell.method, line.cell.latents) for line in points}
    numbers_of = {method: [n for n in numbers if (method, n) in pairs] for method in methods}

    # Values with their intervals, and those that the rows lie between.
    for line in points:
        its_numbers = numbers_of[line.cell.method]
        index = its_numbers.index(line.cell.latents)
        height = names.index(named(line.cell)) + SPREAD * ((len(its_numbers) - 1) / 2 - index)
        axes.errorbar(
            [line.mean], [height], xerr=bars([line]), marker=MARKERS[numbers.index(line.cell.latents)],
            capsize=3, color=METHOD_COLORS[kind(line.cell)], alpha=1 - FADING * index,
        )  # fmt: skip
    for line in lines:
        if line.cell.latents in limits:
            axes.axvline(line.mean, color=METHOD_COLORS[kind(line.cell)], **line_at(line.cell.latents))

    # Labels, limits and the legend.
    names = [name.replace("default", default_of(lines)) for name in names]
    labels = [name.split("\n")[-1] for name in names] if len(methods) == 1 else names
    axes.set(yticks=range(len(names)), yticklabels=labels, xlabel=lines[0].unit)
    axes.set(xlim=(0, HEADROOM * axes.dataLim.xmax), ylim=(-0.6, len(names) - 0.4))
    if len(methods) == 1:
        axes.set_ylabel(lines[0].cell.method)
    axes.grid(axis="x", alpha=0.3)
    if len(numbers) + len(limits) > 1:
        color = METHOD_COLORS[kind(lines[0].cell)] if len(methods) == 1 else "dimgray"
        for index, n in enumerate(numbers):
            alpha = 1 - FADING * index if len(methods) == 1 else 1
            axes.plot([], [], MARKERS[index], color=color, alpha=alpha, label=numbered(n))
        for n in limits:
            axes.plot([], [], color=color, label=numbered(n), **line_at(n))
        legend_below(axes)


def line_at(latents: Latents) -> dict[str, Any]:
    """Return the style of the line of a number of latents. Dashes are wide, to show on a line below them."""
    style = style_of(latents)
    return {"linestyle": style, "linewidth": 1 if style == SOLID else 2}


def default_of(lines: Sequence[Line]) -> str:
    """Return the name of the default in the panel of some lines: that of the variants that replace it."""
    variants = variants_of(lines)
    names = (f"{name} (default)" for variant, name in DEFAULTS.items() if variant in variants)
    return next(names, "default")


def numbered(latents: Latents) -> str:
    """Return the legend of a number of latents. Without one, the method has no choice."""
    return "fixed n" if latents is None else f"n = {latents}"


def by_number(latents: Latents) -> tuple[bool, bool, int]:
    """Return the sort key of a number of latents: numbers, "all", None."""
    return latents is None, latents == "all", latents if isinstance(latents, int) else 0


def named(cell: Cell) -> str:
    """Return the name of a cell's row in its panel."""
    if cell.variant is None:
        return f"{cell.method}\n{ORDER_NAMES[cell.order]}"
    return f"{cell.method}\n{label(cell.variant)}"


def variants_of(lines: Sequence[Line]) -> set[str]:
    """Return the names of the variants of some lines. No variant is the empty name."""
    return {line.cell.variant or "" for line in lines}
