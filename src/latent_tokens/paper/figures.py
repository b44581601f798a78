"""Figures of an experiment: curves over latents, candidates or training steps, else our values and the paper's on one axis."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import log2
from pathlib import Path
from typing import Any

from latent_tokens.core.methods import METHODS
from latent_tokens.evaluation.report import COLORS, ORDER_NAMES, save_sheet
from latent_tokens.paper.experiments import EXPERIMENTS, WINDOWED, Cell
from latent_tokens.paper.scales import Latents
from latent_tokens.paper.tables import Line, printed, stand_in
from latent_tokens.paper.variants import VARIANTS, label

KIND_COLOURS = {**COLORS, "ar-mtp-window": "#E69F00", "ar-ntp": "#56B4E9"}
LOWEST_TOP = 10  # percent: a shorter axis would show noise as a curve
DEAD = "dead ends, "  # how variants begin that are watched for them
CANDIDATE_COLOURS = {"k=1": "#666666", "k=8": "#0072B2", "k=all": "#D55E00", "k=growing": "#009E73"}
STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D")
SPREAD = 0.15  # between the markers of a row


@dataclass(frozen=True)
class Axis:
    """A quantity that curves are drawn over: the value of a cell (a number, "all", "growing" or None), and its place on the axis."""

    label: str
    value: Callable[[Cell], Any]
    place: Callable[[float], float]
    below: int = 0  # by how much "all" is less than the number of steps


def draw(lines: Sequence[Line], experiment: str, command: str, stem: Path) -> list[Path]:
    """Write STEM.png and STEM.svg of the lines that have results, and return the paths. Without results nothing is written.

    There is one panel per task, in an ablation per task and order. Bars are 95% intervals.
    """
    from matplotlib.figure import Figure

    shown = [line for line in lines if line.rows]
    counts = Counter(map(panel, shown))
    panels = [name for name, count in counts.items() if count > 1] or list(
        counts
    )  # a panel of one value compares nothing
    if not panels:
        return []
    tallest = max(len({named(line.cell) for line in shown if panel(line) == name}) for name in panels)
    paint = painter(shown)
    sheet = Figure(
        figsize=(max(8, 3.6 * len(panels)), max(4.4, 0.62 * tallest + 1.5) if paint is dots else 4.8),
        layout="constrained",
    )
    for axes, name in zip(sheet.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        paint(axes, [line for line in shown if panel(line) == name])
        axes.set_title(name, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    intervals = (
        ""
        if paint in (ahead, lost) or any(line.interval is None for line in shown)
        else "95% intervals of all samples together; "
    )
    papers = (
        "the paper's tasks are larger; "
        if paint is dots and any(printed(line.cell) for line in shown)
        else ""
    )
    caption = f"{intervals}{papers}{command}"
    return save_sheet(sheet, EXPERIMENTS[experiment].title, caption, stem)


def panel(line: Line) -> str:
    """The title of the panel of a line."""
    cell = line.cell
    if (cell.variant or "").startswith(DEAD):
        return f"{stand_in(line)}, {cell.method}" + ("" if cell.latents is None else f" n={cell.latents}")
    return (
        stand_in(line)
        if cell.variant in (None, "watched") or cell.method.startswith("ar")
        else f"{stand_in(line)}, {ORDER_NAMES[cell.order]}"
    )


def painter(lines: Sequence[Line]) -> Callable[[Any, Sequence[Line]], None]:
    """Return the function that draws these lines."""
    variants = {line.cell.variant or "" for line in lines}
    if "watched" in variants:
        return ahead
    if any(name.startswith(DEAD) for name in variants):
        return lost
    for axis in (CANDIDATES, STEPS, LATENTS):
        if suits(axis, lines):
            return lambda axes, own: curves(axes, own, axis)
    return dots


def suits(axis: Axis, lines: Sequence[Line]) -> bool:
    """Whether the lines of an experiment differ in the quantity of an axis."""
    variants = [line.cell.variant or "" for line in lines]
    if axis is CANDIDATES:
        return all(name.startswith("k=") for name in variants)
    if axis is STEPS:
        return any(VARIANTS[name or "plain"].share != 1 for name in variants)
    return set(variants) == {""} and any(
        line.cell.latents is not None or line.cell.method.startswith(WINDOWED) for line in lines
    )


def curves(axes: Any, lines: Sequence[Line], axis: Axis) -> None:
    """Draw a curve for each kind of model that has a value on the axis, and a dashed line for each that has none."""
    lines = [*lines, *with_all_candidates(lines)] if axis is CANDIDATES else lines
    values = {value for line in lines if (value := axis.value(line.cell)) is not None}
    places = places_of(values, lines, axis)
    groups: dict[tuple[str, str, Any], list[Line]] = {}
    for line in lines:
        name, n = (family(line.cell), None) if axis is LATENTS else (kind(line.cell), line.cell.latents)
        groups.setdefault((name, line.cell.order, n), []).append(line)
    for (name, order, n), own in groups.items():
        number = [key for key in groups if key[0] == name].index((name, order, n))
        about = f"{', '.join(dict.fromkeys(kind(line.cell) for line in own))}, {ORDER_NAMES[order]}" + (
            "" if n is None else f", n={n}"
        )
        if axis.value(own[0].cell) is None:
            axes.axhline(
                own[0].mean,
                linewidth=1,
                linestyle="--",
                color=KIND_COLOURS[name],
                label=f"{about} {own[0].mean:.0f}",
            )
            continue
        shown: dict[str, Any] = {"marker": MARKERS[number], "capsize": 3, "color": KIND_COLOURS[name]}
        for joined in (True, False):  # a function of the number of clean tokens is not a point of the curve
            points = sorted(
                (line for line in own if (axis.value(line.cell) == "growing") != joined),
                key=lambda line: places[axis.value(line.cell)],
            )
            if points:
                shown |= (
                    {"linestyle": STYLES[number], "label": about}
                    if joined
                    else {"linestyle": "none", "label": None}
                )
                axes.errorbar(
                    [places[axis.value(line.cell)] for line in points],
                    [line.mean for line in points],
                    bars(points),
                    **shown,
                )
    ticks = sorted(places, key=lambda value: places[value])
    axes.set_xticks(
        [places[tick] for tick in ticks], [tick_label(tick, lines, axis) for tick in ticks], fontsize=8
    )
    axes.set(xlabel=axis.label, ylabel=lines[0].unit)
    if "growing" in places:
        axes.axvline(places["growing"] - 0.5, linewidth=0.8, linestyle=":", color="#999999")
    axes.set_ylim(0, None if lines[0].interval is None else max(LOWEST_TOP, axes.get_ylim()[1]))
    axes.grid(axis="y", alpha=0.3)
    legend_below(axes)


def with_all_candidates(lines: Sequence[Line]) -> list[Line]:
    """The results of n = all at k = all, once more for n = 0: no masked token is left to be latent, so they are the same."""
    others = {(line.cell.method, line.cell.order) for line in lines if line.cell.latents == 0}
    every = [line for line in lines if line.cell.variant == "k=all" and line.cell.latents == "all"]
    return [
        replace(line, cell=replace(line.cell, latents=0))
        for line in every
        if (line.cell.method, line.cell.order) in others
    ]


def places_of(values: set[Any], lines: Sequence[Line], axis: Axis) -> dict[Any, float]:
    """Where each value is on the axis. "all" is the largest number that a sample can have, "growing" is apart from the numbers."""
    numbers = [value for value in values if not isinstance(value, str)]
    most = max([most_of(lines, axis), *numbers])
    places = {number: axis.place(number) for number in numbers}
    if "all" in values:
        places["all"] = axis.place(most)
    if "growing" in values:
        places["growing"] = axis.place(most) + 1
    return places


def most_of(lines: Sequence[Line], axis: Axis) -> int:
    """The number that "all" stands for at the first step of the longest sample."""
    return max(int(row["forward_passes"]) for line in lines for row in line.rows) - axis.below


def tick_label(value: Any, lines: Sequence[Line], axis: Axis) -> str:
    """A value under the axis."""
    if value == "growing":
        return "growing\n(clean + 1)"
    if value == "all":
        return f"all ({most_of(lines, axis)})"
    return f"{value:g}" if isinstance(value, float) else str(value)


def dots(axes: Any, lines: Sequence[Line]) -> None:
    """One row per method and variant, a marker per n: our values with their intervals, and the paper's as hollow markers."""
    names = list(dict.fromkeys(named(line.cell) for line in reversed(lines)))
    numbers = sorted(
        {line.cell.latents for line in lines},
        key=lambda n: (n is None, n == "all", n if isinstance(n, int) else 0),
    )
    for line in lines:
        colour, number = KIND_COLOURS[kind(line.cell)], printed(line.cell)
        index = numbers.index(line.cell.latents)
        height = names.index(named(line.cell)) + SPREAD * ((len(numbers) - 1) / 2 - index)
        axes.errorbar(
            [line.mean],
            [height],
            xerr=bars([line]),
            marker=MARKERS[index],
            capsize=3,
            color=colour,
            alpha=1 - 0.2 * index,
        )
        if number is not None:
            axes.plot([number.accuracy], [height], "D", color=colour, fillstyle="none")
    papers = any(printed(line.cell) is not None for line in lines)
    axes.set(yticks=range(len(names)), yticklabels=names)
    axes.set(
        xlabel=f"{lines[0].unit}{' (hollow: the paper)' if papers else ''}", xlim=(0, 100 if papers else None)
    )
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="x", alpha=0.3)
    if len(numbers) > 1:
        colour = KIND_COLOURS[kind(lines[0].cell)]
        for index, n in enumerate(numbers):
            axes.plot([], [], MARKERS[index], color=colour, alpha=1 - 0.2 * index, label=f"n = {n}")
        axes.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)


def named(cell: Cell) -> str:
    """The row of a cell in its panel."""
    return (
        f"{cell.method}\n{ORDER_NAMES[cell.order]}"
        if cell.variant is None
        else f"{cell.method}\n{label(cell.variant)}"
    )


def ahead(axes: Any, lines: Sequence[Line]) -> None:
    """Draw the share of latents whose prediction is decoded later, over the steps until then, in correct samples of all seeds."""
    for line in lines:
        shares = {
            steps: 100 * hit / seen
            for steps, (hit, seen) in line.summed("foresight", "steps", "hit_right", "seen_right").items()
            if seen
        }
        name = f"{line.cell.method}, {ORDER_NAMES[line.cell.order]}" + (
            "" if line.cell.latents is None else f", n={line.cell.latents}"
        )
        style, marker = STYLES[line.cell.latents == "all"], "o" if line.cell.order == "top_prob" else "s"
        axes.plot(
            list(shares),
            list(shares.values()),
            marker=marker,
            markersize=3,
            linestyle=style,
            color=KIND_COLOURS[kind(line.cell)],
            label=name,
        )
    axes.set(
        xlabel="steps until the latent is decoded",
        ylabel="latents predicted as decoded later, % (valid boards)",
        ylim=(0, 100),
    )
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8, frameon=False)


def lost(axes: Any, lines: Sequence[Line]) -> None:
    """Draw the share of samples without a solution left over the number of clean tokens, of all seeds together."""
    for line, style in zip(lines, STYLES, strict=False):
        counts = line.summed("dead_ends", "clean", "alive", "died")
        begun = next(iter(counts.values()))[0]
        gone = [100 * died / begun for died in accumulate(died for _, died in counts.values())]
        name = (line.cell.variant or "").removeprefix(DEAD)
        axes.plot(
            list(counts),
            gone,
            linestyle=style,
            color=CANDIDATE_COLOURS[name],
            label=f"{name}: {line.mean:.0f}% valid",
        )
    axes.set(xlabel="clean tokens", ylabel="boards without a solution left, %", ylim=(0, 100))
    axes.grid(axis="y", alpha=0.3)
    legend_below(axes)


def legend_below(axes: Any) -> None:
    """A legend of two columns under the panel, where it hides no curve."""
    axes.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def kind(cell: Cell) -> str:
    """The name of the method without its window."""
    return re.sub(r"-[0-9]+$", "", cell.method)


def family(cell: Cell) -> str:
    """The kind of model, where ar-mtp is the last point of the windows' curve: all that is masked as latents."""
    return "ar-mtp-window" if cell.method == "ar-mtp" else kind(cell)


def dial(cell: Cell) -> Latents:
    """The number of latent tokens of a cell, set at inference or by the window in training; None if it has no number."""
    if cell.method.startswith(WINDOWED):
        window = METHODS[cell.method].window
        return None if window is None else window - 1
    return "all" if cell.method == "ar-mtp" else cell.latents


def bars(lines: Sequence[Line]) -> Any:
    """How far the intervals reach down and up; None where there are none."""
    if any(line.interval is None for line in lines):
        return None
    ends = [(line.mean, *(line.interval or (0, 0))) for line in lines]
    return [[middle - low for middle, low, _ in ends], [high - middle for middle, _, high in ends]]


LATENTS = Axis("latent tokens n", dial, float, 1)
CANDIDATES = Axis("candidates k", lambda cell: VARIANTS[cell.variant or ""].evaluation["candidates"], log2)
STEPS = Axis("training steps, % of the recipe", lambda cell: 100 * VARIANTS[cell.variant or ""].share, log2)
