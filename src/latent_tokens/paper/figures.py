"""Figures of an experiment: curves against the number of latent tokens where it has any, else ours and the paper's numbers on one line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latent_tokens.methods import METHODS
from latent_tokens.paper.recipes import WINDOWED, Cell
from latent_tokens.paper.tables import Line, printed, stand_in
from latent_tokens.report import COLOURS, ORDER_NAMES, save_sheet

KIND_COLOURS = {**COLOURS, "ar-mtp-window": "#E69F00", "ar-ntp": "#56B4E9"}


def draw(lines: Sequence[Line], title: str, caption: str, stem: Path) -> list[Path]:
    """Writes STEM.png and STEM.svg of the lines that have rows, a panel a task; 95 % bars. Nothing where none has."""
    from matplotlib.figure import Figure

    shown = [line for line in lines if line.rows]
    panels = list(dict.fromkeys(stand_in(line) for line in shown))
    if not panels:
        return []
    sheet = Figure(figsize=(max(8, 3.6 * len(panels)), 4.4), layout="constrained")
    for axes, name in zip(sheet.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        own = [line for line in shown if stand_in(line) == name]
        (curves if any(abscissa(line.cell) is not None for line in own) else dots)(axes, own)
        axes.set_title(name, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    return save_sheet(sheet, title, caption, stem)


def curves(axes: Any, lines: Sequence[Line]) -> None:
    """A curve for each kind of model with a number of latents, a dashed line for each other one."""
    ticks = sorted({x for line in lines if (x := abscissa(line.cell)) is not None}, key=lambda x: (isinstance(x, str), x))
    for key in dict.fromkeys((kind(line.cell), line.cell.order) for line in lines):
        own = [line for line in lines if (kind(line.cell), line.cell.order) == key]
        colour, label = KIND_COLOURS[key[0]], f"{key[0]}, {ORDER_NAMES[key[1]]}"
        if abscissa(own[0].cell) is None:
            axes.axhline(own[0].mean, linewidth=1, linestyle="--", color=colour, label=f"{label} {own[0].mean:.0f}")
        else:
            places = [ticks.index(x) for line in own if (x := abscissa(line.cell)) is not None]
            axes.errorbar(places, [line.mean for line in own], bars(own), marker="o", capsize=3, color=colour, label=label)
    axes.set(xticks=range(len(ticks)), xticklabels=ticks, xlabel="latent tokens n", ylabel=unit(lines[0]), ylim=(0, None))
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def dots(axes: Any, lines: Sequence[Line]) -> None:
    """A line a model: ours with its interval, the paper's hollow."""
    for place, line in enumerate(reversed(lines)):
        colour, number = KIND_COLOURS[kind(line.cell)], printed(line.cell)
        axes.errorbar([line.mean], [place], xerr=bars([line]), marker="o", capsize=3, color=colour)
        if number is not None:
            axes.plot([number.accuracy], [place], "D", color=colour, fillstyle="none")
    names = [f"{line.cell.method}\n{ORDER_NAMES[line.cell.order]}" for line in reversed(lines)]
    axes.set(yticks=range(len(names)), yticklabels=names, xlabel=f"{unit(lines[0])} (hollow: the paper's)", xlim=(0, 100))
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="x", alpha=0.3)


def kind(cell: Cell) -> str:
    """The name of the method without its window."""
    return re.sub(r"-[0-9]+$", "", cell.method)


def abscissa(cell: Cell) -> int | str | None:
    """The number of latents, where a cell is a point of a curve: the dial's, or a window's."""
    if cell.method.startswith(WINDOWED):
        window = METHODS[cell.method].window
        return None if window is None else window - 1
    return cell.latents


def bars(lines: Sequence[Line]) -> Any:
    """How far the intervals reach down and up; None where there are none."""
    if any(line.interval is None for line in lines):
        return None
    ends = [(line.mean, *(line.interval or (0, 0))) for line in lines]
    return [[middle - low for middle, low, _ in ends], [high - middle for middle, _, high in ends]]


def unit(line: Line) -> str:
    """What the axis shows."""
    return "soft loss" if line.interval is None else f"{line.metric}, %"
