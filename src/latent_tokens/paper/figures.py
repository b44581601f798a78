"""Figures of an experiment: curves, or one marker per result. Tables have no figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from latent_tokens.evaluation.report import ORDER_NAMES, save_sheet
from latent_tokens.palette import BLUISH_GREEN, GRAY, METHOD_COLORS, STRONG_BLUE, VERMILION
from latent_tokens.paper.cells import Cell
from latent_tokens.paper.curves import (
    CANDIDATES,
    LATENTS,
    MARKERS,
    STEPS,
    STYLES,
    Axis,
    bars,
    curves,
    kind,
    legend_below,
    share_limits,
)
from latent_tokens.paper.experiments import EXPERIMENTS, WINDOWED
from latent_tokens.paper.lines import Line, measurement, stand_in
from latent_tokens.paper.scales import Latents
from latent_tokens.paper.tokens import Painter, Panel, token_panels
from latent_tokens.paper.variants import VARIANTS, label

DEAD = "dead ends, "  # the prefix of variants that count dead ends
CANDIDATE_COLORS = {"k=1": GRAY, "k=8": STRONG_BLUE, "k=all": VERMILION, "k=growing": BLUISH_GREEN}
SPREAD = 0.15  # between the markers of a row
FADING = 0.2  # of the opacity, from one number of latents to the next

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(lines: Sequence[Line], experiment: str, command: str, stem: Path) -> list[Path]:
    """Write STEM.png and STEM.svg of the lines that have results, and return the paths.

    There is one panel per task, in an ablation per task and order. Bars are 95% intervals. Without results
    nothing is written.
    """
    from matplotlib.figure import Figure

    shown = [line for line in lines if line.rows]
    if not shown:
        return []
    over = EXPERIMENTS[experiment].over
    panels = token_panels(shown, over) if over else panels_of(shown)
    painters = [panel.paint for panel in panels]

    # The height of a figure of dots depends on its tallest panel.
    tallest = max(len({named(line.cell) for line in panel.lines}) for panel in panels)
    height = max(4.4, 0.62 * tallest + 1.5) if dots in painters else 4.8
    sheet = Figure(figsize=(max(8, 3.6 * len(panels)), height), layout="constrained")
    for axes, panel in zip(sheet.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        panel.paint(axes, panel.lines)
        axes.set_title(panel.title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    if dots not in painters and len({stand_in(line) for line in shown}) == 1:
        share_limits(sheet.axes)

    notes = measurement(shown)
    if not {ahead, lost} & set(painters):
        notes += intervals_note(shown)
    caption = f"{', '.join(notes)}\n{command}"
    return save_sheet(sheet, EXPERIMENTS[experiment].title, caption, stem)


def intervals_note(lines: Sequence[Line]) -> list[str]:
    """Return what the bars of lines are, for a caption, or nothing if a line has no interval."""
    intervals = [line.interval for line in lines]
    kinds = {"" if interval is None else interval.kind for interval in intervals}
    if "" in kinds:
        return []
    if "Wilson" not in kinds:
        return ["95% intervals over training seeds"]
    repeated = any(line.num_independent < line.num_samples for line in lines)
    of_samples = "of samples" + ", each puzzle once" * repeated
    if kinds == {"Wilson"}:
        return [f"95% intervals {of_samples}"]
    return [f"95% intervals over training seeds, with fewer than three {of_samples}"]


def panels_of(lines: Sequence[Line]) -> list[Panel]:
    """Return the panels of an experiment, without those of one value, which compare nothing."""
    counts = Counter(map(panel_title, lines))
    titles = [title for title, count in counts.items() if count > 1] or list(counts)
    by_title = {title: tuple(line for line in lines if panel_title(line) == title) for title in titles}
    adaptive = {title for title, shown in by_title.items() if variants_of(shown) == {"k=growing"}}
    return [
        Panel(f"{title}, adaptive k" if title in adaptive else title, shown, painter(shown))
        for title, shown in by_title.items()
    ]


def variants_of(lines: Sequence[Line]) -> set[str]:
    """Return the names of the variants of some lines. No variant is the empty name."""
    return {line.cell.variant or "" for line in lines}


def panel_title(line: Line) -> str:
    """Return the title of the panel of a line."""
    cell = line.cell
    if (cell.variant or "").startswith(DEAD):
        return f"{stand_in(line)}, {with_latents(cell.method, cell.latents, ' ')}"
    if cell.variant in (None, "watched") or cell.method.startswith("ar"):
        return stand_in(line)
    noise = VARIANTS[cell.variant].evaluation.get("confidence_noise")
    title = f"{stand_in(line)}, {ORDER_NAMES[cell.order]}"
    return title if noise is None else f"{title}, noise {noise:g}"


def with_latents(name: str, latents: Latents, separator: str) -> str:
    """Return a name with the number of latents if there is one."""
    return name if latents is None else f"{name}{separator}n={latents}"


def painter(lines: Sequence[Line]) -> Painter:
    """Return the function that draws these lines."""
    variants = variants_of(lines)
    if "watched" in variants:
        return ahead
    if any(name.startswith(DEAD) for name in variants):
        return lost
    for axis in (CANDIDATES, STEPS, LATENTS):
        if suits(axis, lines):
            return lambda axes, lines, axis=axis: curves(axes, lines, axis)  # type: ignore[misc]
    return dots


def suits(axis: Axis, lines: Sequence[Line]) -> bool:
    """Return whether the lines of an experiment differ in the quantity of an axis."""
    variants = variants_of(lines)
    if axis is CANDIDATES:
        return len(variants) > 1 and all(name.startswith("k=") for name in variants)
    if axis is STEPS:
        return any(VARIANTS[name or "plain"].share != 1 for name in variants)
    has_latents = any(
        line.cell.latents is not None or line.cell.method.startswith(WINDOWED) for line in lines
    )
    return has_latents and variants in ({""}, {"k=growing"})


def dots(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw one row per method and variant, with a marker per n. An n of one row only is a dashed line."""
    methods = {line.cell.method for line in lines}
    numbers = sorted({line.cell.latents for line in lines}, key=by_number)
    rows_of = {n: {named(line.cell) for line in lines if line.cell.latents == n} for n in numbers}
    limits = [n for n in numbers if len(rows_of[n]) == 1 < max(map(len, rows_of.values()))]
    limits = limits[: len(STYLES) - 1]
    numbers = [n for n in numbers if n not in limits]
    points = [line for line in lines if line.cell.latents in numbers]
    names = list(dict.fromkeys(named(line.cell) for line in reversed(points)))

    # Values with their intervals, and those that the rows lie between.
    for line in points:
        index = numbers.index(line.cell.latents)
        height = names.index(named(line.cell)) + SPREAD * ((len(numbers) - 1) / 2 - index)
        axes.errorbar(
            [line.mean], [height], xerr=bars([line]), marker=MARKERS[index], capsize=3,
            color=METHOD_COLORS[kind(line.cell)], alpha=1 - FADING * index,
        )  # fmt: skip
    for line in lines:
        if line.cell.latents in limits:
            style = STYLES[1 + limits.index(line.cell.latents)]
            axes.axvline(line.mean, linewidth=1, linestyle=style, color=METHOD_COLORS[kind(line.cell)])

    # Labels, limits and the legend.
    labels = [name.split("\n")[-1] for name in names] if len(methods) == 1 else names
    axes.set(yticks=range(len(names)), yticklabels=labels, xlabel=lines[0].unit, xlim=(0, None))
    if len(methods) == 1:
        axes.set_ylabel(lines[0].cell.method)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="x", alpha=0.3)
    if len(numbers) + len(limits) > 1:
        color = METHOD_COLORS[kind(lines[0].cell)] if len(methods) == 1 else "dimgray"
        for index, n in enumerate(numbers):
            axes.plot([], [], MARKERS[index], color=color, alpha=1 - FADING * index, label=numbered(n))
        for index, n in enumerate(limits):
            axes.plot([], [], STYLES[1 + index], color=color, linewidth=1, label=numbered(n))
        legend_below(axes)


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


def ahead(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw the latents whose prediction is decoded later, in percent, over the steps until then.

    The counts are of correct samples of all seeds.
    """
    for line in lines:
        counts = line.summed("foresight", "steps", "hit_right", "seen_right")
        shares = {steps: 100 * hit / seen for steps, (hit, seen) in counts.items() if seen}
        name = f"{line.cell.method}, {ORDER_NAMES[line.cell.order]}"
        axes.plot(
            list(shares),
            list(shares.values()),
            marker="o" if line.cell.order == "top_prob" else "s",
            markersize=3,
            linestyle=STYLES[line.cell.latents == "all"],
            color=METHOD_COLORS[kind(line.cell)],
            label=with_latents(name, line.cell.latents, ", "),
        )
    axes.set(xlabel="steps until the latent is decoded", ylim=(0, 100))
    axes.set_ylabel("latents predicted as decoded later, % (valid boards)")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8, frameon=False)


def lost(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw the samples without a solution left, in percent, over the number of clean tokens."""
    for line, style in zip(lines, STYLES, strict=False):
        counts = line.summed("dead_ends", "clean", "alive", "died")
        num_samples = next(iter(counts.values()))[0]
        shares = [100 * died / num_samples for died in accumulate(died for _, died in counts.values())]
        name = (line.cell.variant or "").removeprefix(DEAD)
        legend = f"{name}: {line.mean:.0f}% valid"
        axes.plot(list(counts), shares, linestyle=style, color=CANDIDATE_COLORS[name], label=legend)
    axes.set(xlabel="clean tokens", ylabel="boards without a solution left, %", ylim=(0, 100))
    axes.grid(axis="y", alpha=0.3)
    legend_below(axes)
