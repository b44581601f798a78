"""Figures over numbers of tokens: those of the training, and those of one sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from latent_tokens.evaluation.report import ORDER_NAMES
from latent_tokens.palette import METHOD_COLORS
from latent_tokens.paper.design.cells import Cell, TokenAxis
from latent_tokens.paper.design.scales import Latents
from latent_tokens.paper.design.variants import OFF_DISTRIBUTION, VARIANTS
from latent_tokens.paper.figures.curves import bars
from latent_tokens.paper.figures.legends import DASH_DOTTED, kind, legend_below, style_of
from latent_tokens.paper.tables.lines import Line, stand_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DODGE = 1.025  # between the points of two curves that were trained on as many tokens
Painter = Callable[["Axes", Sequence[Line]], None]
Key = tuple[str, Latents]
"""The key of a curve, which its points share: its name, and n unless the curve is over n."""


@dataclass(frozen=True)
class Panel:
    """A panel: its title, its lines, and the function that draws them."""

    title: str
    lines: tuple[Line, ...]
    paint: Painter


def token_panels(lines: Sequence[Line], over: tuple[TokenAxis, ...]) -> list[Panel]:
    """Return the panels of an experiment over numbers of tokens.

    Over one number there is a panel for each way of decoding, with a curve over n for each method. Over two
    there is a panel for each number, with a curve over the steps of the training for each method and n.
    """
    if len(over) > 1:
        title = stand_in(lines[0])
        return [Panel(title, tuple(lines), partial(token_curves, axis, over_steps)) for axis in over]
    titles = dict.fromkeys(way_of_decoding(line) for line in lines)
    return [
        Panel(
            title,
            tuple(line for line in lines if way_of_decoding(line) == title),
            partial(curves_over_latents, over[0]),
        )
        for title in titles
    ]


def way_of_decoding(line: Line) -> str:
    """Return the task, the order and the number of candidates of a line."""
    name = f"{stand_in(line)}, {ORDER_NAMES[line.cell.order]}"
    candidates = line.recipes[0].evaluation.candidates
    return name if candidates is None else f"{name}, k = {candidates}"


def over_latents(cell: Cell) -> tuple[Key, str]:
    """Return the curve of a cell, which is that of its method, and no note at its point."""
    return (f"{cell.method}, {OFF_DISTRIBUTION}" if is_off_distribution(cell) else cell.method, None), ""


def is_off_distribution(cell: Cell) -> bool:
    """Return whether a cell's model has fewer masked tokens in its input than in training."""
    return OFF_DISTRIBUTION in (cell.variant or "")


def over_steps(cell: Cell) -> tuple[Key, str]:
    """Return the curve of a cell and the note at its point: a curve of a method and n, and the training."""
    steps = VARIANTS[cell.variant or "plain"].share
    return (cell.method, cell.latents), "" if steps == 1 else f"{steps:g}x"


def curves_over_latents(axis: TokenAxis, axes: Axes, lines: Sequence[Line]) -> None:
    """Draw accuracy over a number of tokens, with the number of latent tokens above."""
    token_curves(axis, over_latents, axes, lines)
    latents = {NUMBERS[axis](line): line.cell.latents for line in lines if line.cell.latents is not None}
    top = axes.secondary_xaxis("top")
    top.set_xticks(list(latents), [str(n) for n in latents.values()])
    top.set_xlabel("n")
    top.spines["top"].set_visible(False)


def token_curves(
    axis: TokenAxis, curve_and_note: Callable[[Cell], tuple[Key, str]], axes: Axes, lines: Sequence[Line]
) -> None:
    """Draw accuracy over a number of tokens.

    Args:
        axis: the number of tokens.
        curve_and_note: which curve a cell belongs to, and what is written at its point.
        axes: where to draw.
        lines: the lines of one panel.
    """
    curves: dict[Key, list[Line]] = {}
    for line in lines:
        curves.setdefault(curve_and_note(line.cell)[0], []).append(line)
    for index, ((name, n), group) in enumerate(curves.items()):
        points = sorted(group, key=lambda line: (NUMBERS[axis](line), trained_tokens(line)))
        shift = DODGE ** (index - (len(curves) - 1) / 2) if axis == "trained" else 1
        places = [shift * NUMBERS[axis](line) for line in points]
        style = DASH_DOTTED if is_off_distribution(points[0].cell) else style_of(n)
        axes.errorbar(
            places,
            [line.mean for line in points],
            bars(points),
            marker="o",
            markersize=4,
            capsize=3,
            color=METHOD_COLORS[kind(points[0].cell)],
            linestyle=style if len(points) > 1 else "none",
            label=name if n is None else f"{name}, n={n}",
        )
        for line, place in zip(points, places, strict=True) if axis == "decoded" else ():
            note = curve_and_note(line.cell)[1]
            axes.annotate(note, (place, line.mean), (5, -9), textcoords="offset points", fontsize=7)
    if axis == "trained":
        ticks = sorted({trained_tokens(line) for line in lines})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick / 1e6:.3g}M" for tick in ticks])
        axes.minorticks_off()
    axes.margins(x=0.12)
    axes.set(xlabel=LABELS[axis], ylabel=lines[0].unit)
    axes.set_ylim(0, None)
    axes.grid(axis="y", alpha=0.3)
    legend_below(axes)


def trained_tokens(line: Line) -> float:
    """Return the tokens that training has processed."""
    return line.recipes[0].trained_tokens


def decoded_tokens(line: Line) -> float:
    """Return the tokens processed per sample, the mean over seeds."""
    return fmean(row["processed"] for row in line.rows)


NUMBERS: dict[TokenAxis, Callable[[Line], float]] = {"trained": trained_tokens, "decoded": decoded_tokens}
LABELS: dict[TokenAxis, str] = {
    "trained": "tokens processed in training",
    "decoded": "tokens processed per sample",
}
