"""Figures of an experiment: curves against the number of latent tokens where it has any, else ours and the paper's numbers on one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from latent_tokens.methods import METHODS
from latent_tokens.paper.experiments import EXPERIMENTS, WINDOWED, Cell
from latent_tokens.paper.scales import Latents
from latent_tokens.paper.tables import Line, printed, stand_in
from latent_tokens.paper.variants import VARIANTS
from latent_tokens.report import COLOURS, ORDER_NAMES, save_sheet

KIND_COLOURS = {**COLOURS, "ar-mtp-window": "#E69F00", "ar-ntp": "#56B4E9"}
LOWEST_TOP = 10  # per cent: an axis that ended lower would show noise as a curve
DEAD = "dead ends, "  # how variants begin that are watched for them
CANDIDATE_COLOURS = {"k=1": "#666666", "k=8": "#0072B2", "k=all": "#D55E00", "k=growing": "#009E73"}
STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D")

Abscissa = Callable[[Cell], Any]


def draw(lines: Sequence[Line], experiment: str, command: str, stem: Path) -> list[Path]:
    """Writes STEM.png and STEM.svg of the lines of an experiment that have rows; nothing where none has.

    A panel a task, in an ablation a task and order; bars are 95 % intervals.
    """
    from matplotlib.figure import Figure

    shown = [line for line in lines if line.rows]
    panels = list(dict.fromkeys(map(panel, shown)))
    if not panels:
        return []
    tallest = max(len([line for line in shown if panel(line) == name]) for name in panels)
    paint = painter(shown)
    sheet = Figure(figsize=(max(8, 3.6 * len(panels)), max(4.4, 0.32 * tallest + 1.5) if paint is dots else 4.8), layout="constrained")
    for axes, name in zip(sheet.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        paint(axes, [line for line in shown if panel(line) == name])
        axes.set_title(name, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    intervals = "" if paint in (ahead, lost) or any(line.interval is None for line in shown) else "95 % intervals of all samples together; "
    caption = f"{intervals}{command}"
    return save_sheet(sheet, EXPERIMENTS[experiment].title, caption, stem)


def panel(line: Line) -> str:
    """What lines of one panel share."""
    cell = line.cell
    if (cell.variant or "").startswith(DEAD):
        return f"{stand_in(line)}, {cell.method}" + ("" if cell.latents is None else f" n={cell.latents}")
    return stand_in(line) if cell.variant in (None, "watched") or cell.method.startswith("ar") else f"{stand_in(line)}, {ORDER_NAMES[cell.order]}"


def painter(lines: Sequence[Line]) -> Callable[[Any, Sequence[Line]], None]:
    """How these lines are best drawn."""
    variants = {line.cell.variant or "" for line in lines}
    if "watched" in variants:
        return ahead
    if any(name.startswith(DEAD) for name in variants):
        return lost
    if all(name.startswith("k=") for name in variants):
        return lambda axes, own: curves(axes, own, lambda cell: VARIANTS[cell.variant or ""].evaluation["candidates"], "candidates k")
    if any(VARIANTS[name or "plain"].share != 1 for name in variants):
        return lambda axes, own: curves(axes, own, lambda cell: 100 * VARIANTS[cell.variant or ""].share, "training steps, % of the recipe's")
    if any(line.cell.latents is not None or line.cell.method.startswith(WINDOWED) for line in lines) and variants == {""}:
        return lambda axes, own: curves(axes, own, dial, "latent tokens n")
    return dots


def curves(axes: Any, lines: Sequence[Line], abscissa: Abscissa, label: str) -> None:
    """A curve for each kind of model that has an abscissa, a dashed line for each that has none."""
    ticks = sorted({x for line in lines if (x := abscissa(line.cell)) is not None}, key=lambda x: (isinstance(x, str), x))
    groups: dict[tuple[str, str, Any], list[Line]] = {}
    for line in lines:
        name, n = (family(line.cell), None) if abscissa is dial else (kind(line.cell), line.cell.latents)
        groups.setdefault((name, line.cell.order, n), []).append(line)
    for (name, order, n), own in groups.items():
        number = [key for key in groups if key[0] == name].index((name, order, n))
        about = f"{', '.join(dict.fromkeys(kind(line.cell) for line in own))}, {ORDER_NAMES[order]}" + ("" if n is None else f", n={n}")
        if abscissa(own[0].cell) is None:
            axes.axhline(own[0].mean, linewidth=1, linestyle="--", color=KIND_COLOURS[name], label=f"{about} {own[0].mean:.0f}")
            continue
        shown: dict[str, Any] = {"marker": MARKERS[number], "capsize": 3, "color": KIND_COLOURS[name]}
        for joined in (True, False):  # a rule is no point of the curve
            places = {ticks.index(x): line for line in own if ((x := abscissa(line.cell)) == "growing") != joined}
            points = [places[place] for place in sorted(places)]
            if points:
                shown |= {"linestyle": STYLES[number], "label": about} if joined else {"linestyle": "none", "label": None}
                axes.errorbar(sorted(places), [line.mean for line in points], bars(points), **shown)
    names = [f"{tick:g}" if isinstance(tick, float) else tick for tick in ticks]
    axes.set(xticks=range(len(ticks)), xticklabels=names, xlabel=label, ylabel=lines[0].of)
    axes.set_ylim(0, None if lines[0].interval is None else max(LOWEST_TOP, axes.get_ylim()[1]))
    axes.grid(axis="y", alpha=0.3)
    legend_below(axes)


def dots(axes: Any, lines: Sequence[Line]) -> None:
    """A line a cell: ours with its interval, the paper's hollow."""
    for place, line in enumerate(reversed(lines)):
        colour, number = KIND_COLOURS[kind(line.cell)], printed(line.cell)
        axes.errorbar([line.mean], [place], xerr=bars([line]), marker="o", capsize=3, color=colour)
        if number is not None:
            axes.plot([number.accuracy], [place], "D", color=colour, fillstyle="none")
    papers = any(printed(line.cell) is not None for line in lines)
    axes.set(yticks=range(len(lines)), yticklabels=[named(line.cell) for line in reversed(lines)])
    axes.set(xlabel=f"{lines[0].of}{' (hollow: the paper)' if papers else ''}", xlim=(0, 100 if papers else None))
    axes.set_ylim(-0.6, len(lines) - 0.4)
    axes.grid(axis="x", alpha=0.3)


def named(cell: Cell) -> str:
    """What a cell is, among those of its panel."""
    if cell.variant is None:
        return f"{cell.method}\n{ORDER_NAMES[cell.order]}"
    n = "" if cell.latents is None else f" n={cell.latents}"
    return f"{cell.method}{n}, {cell.variant}"


def ahead(axes: Any, lines: Sequence[Line]) -> None:
    """What latents predict against the steps until they are decoded: a curve a line, all seeds together, of samples that came out right."""
    for line in lines:
        shares = {steps: 100 * hit / seen for steps, (hit, seen) in line.summed("foresight", "steps", "hit_right", "seen_right").items() if seen}
        name = f"{line.cell.method}, {ORDER_NAMES[line.cell.order]}" + ("" if line.cell.latents is None else f", n={line.cell.latents}")
        style, marker = STYLES[line.cell.latents == "all"], "o" if line.cell.order == "top_prob" else "s"
        axes.plot(list(shares), list(shares.values()), marker=marker, markersize=3, linestyle=style, color=KIND_COLOURS[kind(line.cell)], label=name)
    axes.set(xlabel="steps until the latent is decoded", ylabel="predicted as decoded, %; boards that came out right", ylim=(0, 100))
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8, frameon=False)


def lost(axes: Any, lines: Sequence[Line]) -> None:
    """How many of 100 samples have lost their last right answer, against the number of clean tokens: a curve a line, all seeds together."""
    for line, style in zip(lines, STYLES, strict=False):
        counts = line.summed("dead_ends", "clean", "alive", "died")
        begun = next(iter(counts.values()))[0]
        gone = [100 * died / begun for died in accumulate(died for _, died in counts.values())]
        name = (line.cell.variant or "").removeprefix(DEAD)
        axes.plot(list(counts), gone, linestyle=style, color=CANDIDATE_COLOURS[name], label=f"{name}: {line.mean:.0f} % right")
    axes.set(xlabel="clean tokens", ylabel="samples without a right answer left, %", ylim=(0, 100))
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
    """The number of latents, where a cell is a point of a curve: the dial's, or that which an autoregressive model was trained with."""
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
