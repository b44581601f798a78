"""Figures of an experiment: curves, or one marker per result. Tables have no figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from latent_tokens.evaluation.report import ORDER_NAMES, save_sheet
from latent_tokens.palette import METHOD_COLORS
from latent_tokens.paper.design.experiments import EXPERIMENTS, WINDOWED
from latent_tokens.paper.design.scales import Latents
from latent_tokens.paper.design.variants import VARIANTS
from latent_tokens.paper.figures.captions import measurement
from latent_tokens.paper.figures.curves import (
    CANDIDATES,
    LATENTS,
    STEPS,
    Axis,
    curves,
    share_limits,
)
from latent_tokens.paper.figures.dots import dots, named, variants_of
from latent_tokens.paper.figures.legends import STYLES, by_method, kind, legend_below, style_of
from latent_tokens.paper.figures.sheets import sheet_of
from latent_tokens.paper.figures.tokens import Painter, Panel, token_panels
from latent_tokens.paper.tables.lines import Line, stand_in

DEAD = "dead ends, "  # the prefix of variants that count dead ends
ADAPTIVE = "adaptive k"  # in the titles of panels
NEUTRAL_COLORS = ("#949494", "#767676", "#444444", "#000000")  # of no method, from light to dark

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(lines: Sequence[Line], experiment: str, command: str, stem: Path) -> list[Path]:
    """Write STEM.png and STEM.svg of the lines that have results, and return the paths.

    There is one panel per task, in an ablation per task and order. Bars are 95% intervals. Without results
    nothing is written.
    """
    shown = by_method([line for line in lines if line.rows])
    if not shown:
        return []
    over = EXPERIMENTS[experiment].over
    panels = token_panels(shown, over) if over else panels_of(shown)
    painters = [panel.paint for panel in panels]

    # The height of a figure of dots depends on its tallest panel.
    tallest = max(len({named(line.cell) for line in panel.lines}) for panel in panels)
    height = max(4.4, 0.62 * tallest + 1.5) if dots in painters else 4.8
    sheet = sheet_of(len(panels), height)
    for axes, panel in zip(sheet.axes, panels, strict=True):
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
    notes = {title: candidates_in(shown) for title, shown in by_title.items()}
    fixed = set(notes.values()) - {"", ADAPTIVE}
    if len(fixed) == 1:  # the caption has it
        notes |= {title: "" for title, note in notes.items() if note in fixed}
    return [
        Panel(f"{title}, {notes[title]}".removesuffix(", "), shown, painter(shown))
        for title, shown in by_title.items()
    ]


def candidates_in(lines: Sequence[Line]) -> str:
    """Return the number of candidates in top-prob order of a panel, empty if it is not one number."""
    if variants_of(lines) == {"k=growing"}:
        return ADAPTIVE
    rows = [row for line in lines for row in line.rows]
    numbers = {row["candidates"] for row in rows if row.get("order") == "top_prob"}
    return f"k = {numbers.pop()}" if len(numbers) == 1 else ""


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
        return len({VARIANTS[name or "plain"].share for name in variants}) > 1
    has_latents = any(
        line.cell.latents is not None or line.cell.method.startswith(WINDOWED) for line in lines
    )
    return has_latents and variants in ({""}, {"k=growing"})


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
            linestyle=style_of(line.cell.latents),
            color=METHOD_COLORS[kind(line.cell)],
            label=with_latents(name, line.cell.latents, ", "),
        )
    axes.set(xlabel="steps until the latent is decoded", ylim=(0, 100))
    axes.set_ylabel("latents predicted as decoded later, %\n(valid boards)")
    axes.grid(axis="y", alpha=0.3)
    legend_below(axes)


def lost(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw the samples without a solution left, in percent, over the number of clean tokens."""
    for line, style, color in zip(lines, STYLES, NEUTRAL_COLORS, strict=False):
        counts = line.summed("dead_ends", "clean", "alive", "died")
        num_samples = next(iter(counts.values()))[0]
        shares = [100 * died / num_samples for died in accumulate(died for _, died in counts.values())]
        name = (line.cell.variant or "").removeprefix(DEAD)
        legend = f"{name}: {line.mean:.0f}% valid"
        axes.plot(list(counts), shares, linestyle=style, color=color, label=legend)
    axes.set(xlabel="clean tokens", ylabel="boards without a solution left, %", ylim=(0, 100))
    axes.grid(axis="y", alpha=0.3)
    legend_below(axes)
