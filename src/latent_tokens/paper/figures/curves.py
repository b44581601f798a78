"""Curves over the number of latents, the number of candidates or the training steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import TYPE_CHECKING

from latent_tokens.core.method import METHODS
from latent_tokens.evaluation.report import ORDER_NAMES
from latent_tokens.palette import METHOD_COLORS
from latent_tokens.paper.design.cells import Cell
from latent_tokens.paper.design.experiments import WINDOWED
from latent_tokens.paper.design.scales import Latents
from latent_tokens.paper.design.variants import VARIANTS
from latent_tokens.paper.figures.legends import (
    DASHED,
    MARKERS,
    STYLES_OF_ORDERS,
    kind,
    legend_below,
    style_of,
)
from latent_tokens.paper.tables.lines import Line, differ_in_candidates

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Value = float | str
"""A number, "all" or "growing"."""
Key = tuple[str, str, Latents]
"""The key of a curve, which its lines share: the kind of model, the order, and n unless n is the axis."""

LOWEST_TOP = 10  # percent: a shorter axis would show noise as a curve
HEADROOM = 1.05  # of the highest interval


@dataclass(frozen=True)
class Axis:
    """A quantity that curves are drawn over."""

    label: str
    value: Callable[[Cell], Value | None]  # None: the cell has no value on the axis
    coordinate: Callable[[float], float]
    below: int = 0  # how much "all" is less than the number of steps


def curves(axes: Axes, lines: Sequence[Line], axis: Axis) -> None:
    """Draw a curve for each kind of model with values on the axis, and a dashed line for each without."""
    if axis is CANDIDATES:
        lines = [*lines, *with_all_candidates(lines)]
    values = {value for line in lines if (value := axis.value(line.cell)) is not None}
    coordinates = coordinates_of(values, lines, axis)

    # One curve per kind of model, order and number of latents.
    groups: dict[Key, list[Line]] = {}
    for line in lines:
        groups.setdefault(key_of(line, axis), []).append(line)
    for key, group in groups.items():
        number = [other for other in groups if other[0] == key[0]].index(key)
        k = group[0].candidates if axis is LATENTS and differ_in_candidates(lines) else ""
        draw_group(axes, group, key, number, axis, coordinates, k)

    # Ticks, labels and limits.
    ticks = sorted(coordinates, key=lambda value: coordinates[value])
    labels = [tick_label(tick, lines, axis) for tick in ticks]
    axes.set_xticks([coordinates[tick] for tick in ticks], labels, fontsize=8)
    axes.set(xlabel=axis.label, ylabel=lines[0].unit)
    if "growing" in coordinates:
        axes.axvline(coordinates["growing"] - 0.5, linewidth=0.8, linestyle=":", color="#999999")
    top = None if lines[0].is_loss else max(LOWEST_TOP, HEADROOM * axes.dataLim.ymax)
    axes.set_ylim(0, top)
    axes.grid(axis="y", alpha=0.3)
    legend_below(axes)


def key_of(line: Line, axis: Axis) -> Key:
    """Return what the lines of one curve share."""
    if axis is LATENTS:
        return family(line.cell), line.cell.order, None
    return kind(line.cell), line.cell.order, line.cell.latents


def draw_group(
    axes: Axes,
    lines: Sequence[Line],
    key: Key,
    number: int,
    axis: Axis,
    coordinates: dict[Value, float],
    k: str,
) -> None:
    """Draw one curve, or a dashed line if the model has no value on the axis. Its legend names k if set."""
    name, order, n = key
    kinds = ", ".join(dict.fromkeys(kind(line.cell) for line in lines))
    label = f"{kinds}, {ORDER_NAMES[order]}" if n is None else f"{kinds}, {ORDER_NAMES[order]}, n={n}"
    label += f", k={k}" if k else ""
    color = METHOD_COLORS[name]
    if axis.value(lines[0].cell) is None:
        mean = lines[0].mean
        style = STYLES_OF_ORDERS.get(order, DASHED)
        value = lines[0].written(mean) if lines[0].is_loss else f"{mean:.0f}"
        axes.axhline(mean, linewidth=1.2, linestyle=style, color=color, label=f"{label} {value}", zorder=3)
        return

    # A function of the number of clean tokens is not a point of the curve, so it is not joined to it.
    for is_joined in (True, False):
        points = [line for line in lines if (axis.value(line.cell) == "growing") != is_joined]
        places = {line.cell: coordinates[value_of(line, axis)] for line in points}
        points.sort(key=lambda line: places[line.cell])
        if points:
            axes.errorbar(
                [places[line.cell] for line in points],
                [line.mean for line in points],
                bars(points),
                marker=MARKERS[number],
                capsize=3,
                color=color,
                linestyle=style_of(n) if is_joined and len(points) > 1 else "none",
                label=label if is_joined else None,
            )


def value_of(line: Line, axis: Axis) -> Value:
    """Return the value of a line on an axis. It must have one."""
    value = axis.value(line.cell)
    assert value is not None
    return value


def with_all_candidates(lines: Sequence[Line]) -> list[Line]:
    """Return the results of n = all at k = all for n = 0: no masked token is left to be latent."""
    others = {(line.cell.method, line.cell.order) for line in lines if line.cell.latents == 0}
    every = [line for line in lines if num_candidates(line.cell) == line.cell.latents == "all"]
    return [
        replace(line, cell=replace(line.cell, latents=0))
        for line in every
        if (line.cell.method, line.cell.order) in others
    ]


def coordinates_of(values: set[Value], lines: Sequence[Line], axis: Axis) -> dict[Value, float]:
    """Return the coordinate of each value.

    "all" is at the largest number that a sample can have. "growing" is apart from the numbers.
    """
    numbers = [value for value in values if not isinstance(value, str)]
    most = max([most_of(lines, axis), *numbers])
    coordinates: dict[Value, float] = {number: axis.coordinate(number) for number in numbers}
    if "all" in values:
        coordinates["all"] = axis.coordinate(most)
    if "growing" in values:
        coordinates["growing"] = axis.coordinate(most) + 1
    return coordinates


def most_of(lines: Sequence[Line], axis: Axis) -> int:
    """Return the number that "all" is in the first step of the longest sample."""
    return max(int(row["forward_passes"]) for line in lines for row in line.rows) - axis.below


def tick_label(value: Value, lines: Sequence[Line], axis: Axis) -> str:
    """Return the label of a value under the axis."""
    if value == "growing":
        return "growing\n(clean + 1)"
    if value == "all":
        return f"all ({most_of(lines, axis)})"
    return f"{value:g}" if isinstance(value, float) else str(value)


def share_limits(panels: Sequence[Axes]) -> None:
    """Give panels of the same quantity the same vertical limits."""
    for quantity in {axes.get_ylabel() for axes in panels}:
        alike = [axes for axes in panels if axes.get_ylabel() == quantity]
        bottom = min(axes.get_ylim()[0] for axes in alike)
        top = max(axes.get_ylim()[1] for axes in alike)
        for axes in alike:
            axes.set_ylim(bottom, top)


def family(cell: Cell) -> str:
    """Return the kind of model. ar-mtp is the last point of the windows' curve: all masked tokens."""
    return "ar-mtp-window" if cell.method == "ar-mtp" else kind(cell)


def num_latents(cell: Cell) -> Latents:
    """Return the number of latent tokens, set at inference or by the window in training, or None."""
    if cell.method.startswith(WINDOWED):
        window = METHODS[cell.method].window
        return None if window is None else window - 1
    return "all" if cell.method == "ar-mtp" else cell.latents


def num_candidates(cell: Cell) -> Value:
    """Return the number of candidates of a variant."""
    value: Value = VARIANTS[cell.variant or ""].evaluation["candidates"]
    return value


def training_share(cell: Cell) -> Value:
    """Return the training steps of a variant, in percent of the recipe's."""
    return 100 * VARIANTS[cell.variant or ""].share


def bars(lines: Sequence[Line]) -> list[list[float]] | None:
    """Return the lengths of the intervals below and above the means, or None if a line has none."""
    intervals = [line.interval for line in lines if line.interval is not None]
    if len(intervals) < len(lines):
        return None
    pairs = list(zip(lines, intervals, strict=True))
    below = [line.mean - interval.low for line, interval in pairs]
    return [below, [interval.high - line.mean for line, interval in pairs]]


LATENTS = Axis("latent tokens n", num_latents, float, 1)
CANDIDATES = Axis("candidates k", num_candidates, log2)
STEPS = Axis("training steps, % of the recipe", training_share, log2)
