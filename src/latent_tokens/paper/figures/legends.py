"""Legends of figures: one order of methods, one line style per number of latent tokens, one place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from latent_tokens.palette import METHOD_COLORS
from latent_tokens.paper.design.cells import Cell
from latent_tokens.paper.design.scales import Latents
from latent_tokens.paper.tables.lines import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SOLID, DASHED, DASH_DOTTED, DOTTED = "-", "--", "-.", ":"
STYLES = (DOTTED, DASHED, DASH_DOTTED, SOLID)
STYLES_OF_ORDERS = {"top_prob": DASHED, "uniform": DOTTED, "left_to_right": DASH_DOTTED}
"""The horizontal lines of models without a value on the axis, by their decoding order."""
MARKERS = ("o", "s", "^", "D")
BELOW = 35  # points from a panel to its legend: the tick labels and the label of the axis
LINE_HEIGHT = 10  # points of each further line of a tick label


def kind(cell: Cell) -> str:
    """Return the name of the method without its window."""
    return re.sub(r"-[0-9]+$", "", cell.method)


def rank(name: str) -> int:
    """Return the place of a name in legends: that of the first method in it. Other names are last."""
    order = list(METHOD_COLORS)
    return next((order.index(word) for word in re.split("[ ,]+", name) if word in order), len(order))


def by_method(lines: Sequence[Line]) -> list[Line]:
    """Return lines in the order of their methods. Tasks keep their order."""
    tasks = list(dict.fromkeys((line.cell.task, line.cell.problems) for line in lines))
    return sorted(
        lines,
        key=lambda line: (tasks.index((line.cell.task, line.cell.problems)), rank(kind(line.cell))),
    )


def style_of(latents: Latents) -> str:
    """Return the line style of a number of latent tokens: all are solid, none is dashed."""
    if latents in (None, "all"):
        return SOLID
    return DASHED if latents == 0 else DASH_DOTTED


def legend_below(axes: Axes) -> None:
    """Draw a legend of two columns under the panel, so that it hides no curve. Methods are in one order."""
    from matplotlib.transforms import ScaledTranslation

    handles, labels = axes.get_legend_handles_labels()
    in_order = sorted(range(len(labels)), key=lambda i: rank(labels[i]))
    further_lines = max((tick.get_text().count("\n") for tick in axes.get_xticklabels()), default=0)
    points = BELOW + LINE_HEIGHT * further_lines
    below = ScaledTranslation(0, -points / 72, axes.figure.dpi_scale_trans)
    axes.legend(
        [handles[i] for i in in_order],
        [labels[i] for i in in_order],
        fontsize=8,
        frameon=False,
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=axes.transAxes + below,
        borderaxespad=0,
        handlelength=3.6,  # a shorter line hides its dashes behind its marker
        ncols=2,
    )
