"""Figures: curves over the number of latent tokens, and held-out nats and perplexity of text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from latent_tokens.configs import NumLatents
from latent_tokens.core.method import METHODS
from latent_tokens.evaluation.report import ORDER_NAMES, save_sheet
from latent_tokens.evaluation.rows import Row
from latent_tokens.palette import METHOD_COLORS
from latent_tokens.paper.experiments import EXPERIMENTS, WINDOWED, Cell
from latent_tokens.paper.run import held_out, nats_above
from latent_tokens.paper.tables import Line, differ_in_candidates, local_task, without_latents

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

STYLES_OF_ORDERS = {"top_prob": "--", "uniform": ":", "left_to_right": "-."}
"""The horizontal lines of models without a value on the axis, by their decoding order."""
MARKERS = ("o", "s", "^", "D")
Point = tuple[float, tuple[float, float] | None]  # a value, and its interval below and above
PointOf = Callable[[Line, Sequence[Line]], Point | None]  # of a line among those of its panel
BELOW = 35  # points from a panel to its legend: the tick labels and the label of the axis
MIN_TICK_DISTANCE = 0.03  # of the length of the axis


def kind(cell: Cell) -> str:
    """Return the name of the method without its window."""
    return re.sub(r"-[0-9]+$", "", cell.method)


def drawing_rank(name: str) -> int:
    """Return the place of a name in legends: that of the first method in it. Other names are last."""
    order = list(METHOD_COLORS)
    ranks = [order.index(word) for word in re.split("[ ,]+", name) if word in order]
    return ranks[0] if ranks else len(order)


def by_method(lines: Sequence[Line]) -> list[Line]:
    """Return lines in the order of their methods. Tasks keep their order."""
    tasks = [(line.cell.task, line.cell.problems) for line in lines]

    def place(line: Line) -> tuple[int, int]:
        return tasks.index((line.cell.task, line.cell.problems)), drawing_rank(kind(line.cell))

    return sorted(lines, key=place)


def legend_below(axes: Axes) -> None:
    """Draw a legend of two columns under the panel, so that it hides no curve. Methods are in one order."""
    from matplotlib.transforms import ScaledTranslation

    entries = zip(*axes.get_legend_handles_labels(), strict=True)
    handles, labels = zip(*sorted(entries, key=lambda entry: drawing_rank(entry[1])), strict=True)
    below = ScaledTranslation(0, -BELOW / 72, axes.figure.dpi_scale_trans)
    axes.legend(
        handles,
        labels,
        fontsize=8,
        frameon=False,
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=axes.transAxes + below,
        borderaxespad=0,
        handlelength=3.6,  # a shorter line hides its dashes behind its marker
        ncols=2,
    )


DODGE = 0.16  # between the points of two methods
PANELS_PER_ROW = 3
MOST_PANELS = 4
MIN_WIDTH = 8  # inches, for the title and the caption
PANEL_WIDTH = 3.6  # inches
PANEL_HEIGHT = 4.8  # inches
LOWEST_TOP = 10  # percent: a shorter axis would show noise as a curve
HEADROOM = 1.05  # of the highest interval
ADAPTIVE = "adaptive k"  # in the titles of panels


def sheet_of(num_panels: int) -> Figure:
    """Return a figure with empty panels, row by row."""
    from matplotlib.figure import Figure

    num_rows = ceil(num_panels / PANELS_PER_ROW)
    num_columns = ceil(num_panels / num_rows)
    size = (max(MIN_WIDTH, PANEL_WIDTH * num_columns), PANEL_HEIGHT * num_rows)
    sheet = Figure(figsize=size, layout="constrained")
    for index in range(num_panels):
        sheet.add_subplot(num_rows, num_columns, index + 1)
    return sheet


def sample_counts(lines: Sequence[Line]) -> list[str]:
    """Return the samples, training seeds, candidates and hardware of lines with results, for a caption."""
    rows = [row for line in lines for row in line.rows]
    notes = [f"{span({row['num_samples'] for row in rows})} samples per seed"]
    notes.append(counted({len(line.rows) for line in lines}, "training seed"))
    candidates = {row.get("candidates") for row in rows if row.get("order") == "top_prob"}
    fixed = candidates - {"growing"}
    if len(fixed) == 1:
        or_adaptive = " or adaptive" * ("growing" in candidates)
        notes.append(f"k = {fixed.pop()}{or_adaptive} in top-prob order")
    return [*notes, *hardware(rows)]


def hardware(rows: Sequence[Row]) -> list[str]:
    """Return the threads, the devices and the versions of PyTorch of results, for a caption."""
    notes = []
    threads = {row["threads"] for row in rows if "threads" in row}
    if threads:
        devices = ", ".join(sorted({str(row["device"]) for row in rows}))
        notes.append(f"{counted(threads, 'thread')} ({devices})")
    versions = {str(row["made_with"]["torch"]) for row in rows if "made_with" in row}
    if versions:
        releases = sorted({".".join(version.split(".")[:2]) for version in versions})
        notes.append(f"PyTorch {' and '.join(releases)}")
    return notes


def counted(numbers: set[int], noun: str) -> str:
    """Return the span of some numbers of things."""
    return f"{span(numbers)} {noun}{'s' * (numbers != {1})}"


def span(numbers: set[int]) -> str:
    """Return the smallest and the largest number, or the only one."""
    return "-".join(f"{number:,}" for number in sorted({min(numbers), max(numbers)}))


def curves(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw a curve over n for each kind of model that has one, and a dashed line for each without."""
    # "all" is at the largest number that a sample can have.
    most = max(int(row["forward_passes"]) for line in lines for row in line.rows) - 1
    values = {num_latents(line.cell) for line in lines} - {None}
    coordinates = {value: value if isinstance(value, int) else most for value in values}

    # One curve per kind of model and order.
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((family(line.cell), line.cell.order), []).append(line)
    for key, group in groups.items():
        number = [other for other in groups if other[0] == key[0]].index(key)
        k = group[0].candidates if differ_in_candidates(lines) else ""
        draw_group(axes, group, key, MARKERS[number], coordinates, k)

    # Ticks, labels and limits. The label of a number just below another one would be printed over it.
    ticks: list[NumLatents | None] = []
    for value in sorted(coordinates, key=lambda value: -coordinates[value]):
        if not ticks or coordinates[ticks[0]] - coordinates[value] > MIN_TICK_DISTANCE * most:
            ticks.insert(0, value)
    labels = [f"all ({most})" if tick == "all" else str(tick) for tick in ticks]
    axes.set_xticks([coordinates[tick] for tick in ticks], labels, fontsize=8)
    axes.set(xlabel="latent tokens n", ylabel=lines[0].unit)
    top = None if lines[0].is_loss else max(LOWEST_TOP, HEADROOM * axes.dataLim.ymax)
    axes.set_ylim(0, top)
    axes.grid(axis="y", alpha=0.3)
    legend_below(axes)


def draw_group(
    axes: Axes,
    lines: Sequence[Line],
    key: tuple[str, str],
    marker: str,
    coordinates: Mapping[NumLatents | None, int],
    k: str,
) -> None:
    """Draw one curve, or a dashed line if the model has no number of latents. Its legend names k if set."""
    name, order = key
    kinds = ", ".join(dict.fromkeys(kind(line.cell) for line in lines))
    label = f"{kinds}, {ORDER_NAMES[order]}"
    label += f", k={k}" if k else ""
    color = METHOD_COLORS[name]
    if num_latents(lines[0].cell) is None:
        mean = lines[0].mean
        value = lines[0].written(mean) if lines[0].is_loss else f"{mean:.0f}"
        horizontal(axes, mean, order, color, f"{label} {value}").set_zorder(3)
        return
    numbered = ((num_latents(line.cell), line) for line in lines)
    placed = [(coordinates[n], line) for n, line in numbered if n is not None]
    placed.sort(key=lambda pair: pair[0])
    points = [line for _, line in placed]
    axes.errorbar(
        [place for place, _ in placed],
        [line.mean for line in points],
        bars(points),
        marker=marker,
        capsize=3,
        color=color,
        linestyle="-" if len(points) > 1 else "none",
        label=label,
    )


def horizontal(axes: Axes, value: float, order: str, color: str, label: str) -> Line2D:
    """Draw the line of a model without a value on the axis."""
    style = STYLES_OF_ORDERS.get(order, "--")
    return axes.axhline(value, linewidth=1.2, linestyle=style, color=color, label=label)


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


def num_latents(cell: Cell) -> NumLatents | None:
    """Return the number of latent tokens, set at inference or by the window in training, or None."""
    if cell.method.startswith(WINDOWED):
        window = METHODS[cell.method].window
        return None if window == "all" else window - 1
    return "all" if cell.method == "ar-mtp" else cell.latents


def bars(lines: Sequence[Line]) -> list[list[float]] | None:
    """Return the lengths of the intervals below and above the means, or None if a line has none."""
    pairs = [(line.mean, interval) for line in lines if (interval := line.interval)]
    if len(pairs) < len(lines):
        return None
    below = [mean - interval.low for mean, interval in pairs]
    above = [interval.high - mean for mean, interval in pairs]
    return [below, above]


def draw_experiment(lines: Sequence[Line], experiment: str, command: str, stem: Path) -> list[Path]:
    """Write STEM.png and STEM.svg of the lines that have results, and return the paths.

    There is one panel per task and k, and at most MOST_PANELS. Bars are 95% intervals. Without
    results nothing is written.
    """
    shown = by_method([line for line in lines if line.rows])
    if not shown:
        return []
    every_panel = panels_of(shown)
    panels = dict(list(every_panel.items())[:MOST_PANELS])
    sheet = sheet_of(len(panels))
    for axes, (title, of_panel) in zip(sheet.axes, panels.items(), strict=True):
        curves(axes, of_panel)
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    if len({local_task(line) for line in shown}) == 1:
        share_limits(sheet.axes)
    drawn = [line for of_panel in panels.values() for line in of_panel]
    others = [f"in the table only: {title}" for title in list(every_panel)[MOST_PANELS:]]
    caption = f"{', '.join([*sample_counts(drawn), *intervals_note(drawn), *others])}\n{command}"
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


def panels_of(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Return the lines of each panel by its title, without panels of one value."""
    counts = Counter(map(panel_title, lines))
    titles = [title for title, count in counts.items() if count > 1] or list(counts)
    by_title = {title: [line for line in lines if panel_title(line) == title] for title in titles}
    notes = {title: candidates_in(shown) for title, shown in by_title.items()}
    fixed = set(notes.values()) - {"", ADAPTIVE}
    if len(fixed) == 1:  # the caption has it
        notes |= {title: "" for title, note in notes.items() if note in fixed}
    names = {title: f"{title}, {note}".removesuffix(", ") for title, note in notes.items()}
    return {names[title]: shown for title, shown in by_title.items()}


def candidates_in(lines: Sequence[Line]) -> str:
    """Return the number of candidates in top-prob order of a panel, empty if it is not one number."""
    if {line.cell.k for line in lines} == {"growing"}:
        return ADAPTIVE
    rows = [row for line in lines for row in line.rows]
    numbers = {row["candidates"] for row in rows if row.get("order") == "top_prob"}
    return f"k = {numbers.pop()}" if len(numbers) == 1 else ""


def panel_title(line: Line) -> str:
    """Return the title of the panel of a line. A k of its own has a panel of its own."""
    task = local_task(line)
    return task if line.cell.k is None else f"{task}, {ORDER_NAMES[line.cell.order]}"


def draw_text(lines: Sequence[Line], experiment: str, command: str, stem: Path) -> list[Path]:
    """Write STEM.png and STEM.svg: held-out nats and perplexity over the number of latent tokens.

    Fewer than two numbers with results make no figure.
    """
    from matplotlib.figure import Figure

    shown = by_method([line for line in lines if line.rows])
    over_n = [line.cell for line in shown if line.cell.latents is not None]
    numbers = list(dict.fromkeys(cell.latents for cell in over_n))
    if len(numbers) < 2:
        return []
    panels: dict[PointOf, str] = {perplexity_of: "perplexity\nunder the evaluator model"}
    if any(held_out(line.rows[0]) is not None and without_latents(line, shown) for line in shown):
        panels = {difference_of: "held-out nats per token,\ndifference to n = 0", **panels}
    sheet = Figure(figsize=(9, 4.6), layout="constrained")
    all_axes = sheet.subplots(1, len(panels), squeeze=False)[0]
    for axes, (point_of, text) in zip(all_axes, panels.items(), strict=True):
        draw_lines_over_n(axes, shown, numbers, point_of)
        axes.set_xticks(range(len(numbers)), numbers)
        axes.set(xlabel="latent tokens n", ylabel=text)
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        legend_below(axes)
    caption = f"{', '.join(text_counts(shown))}\n{intervals_of(shown)}\n{command}"
    return save_sheet(sheet, EXPERIMENTS[experiment].title, caption, stem)


def draw_lines_over_n(
    axes: Axes, lines: Sequence[Line], numbers: Sequence[NumLatents | None], point_of: PointOf
) -> None:
    """Draw a curve for each method of text with numbers of latents, and a dashed line for each without."""
    with_n = [line.cell.method for line in lines if line.cell.latents is not None]
    over_n = list(dict.fromkeys(with_n))
    for method in dict.fromkeys(line.cell.method for line in lines):
        of_method = [line for line in lines if line.cell.method == method]
        points = [(line, *point) for line in of_method if (point := point_of(line, lines))]
        color = METHOD_COLORS[method]
        if of_method[0].cell.latents is None:
            for line, value, _ in points:
                horizontal(axes, value, line.cell.order, color, f"{method} {value:.0f}")
        elif points:
            aside = DODGE * (over_n.index(method) - (len(over_n) - 1) / 2)
            offsets = [numbers.index(line.cell.latents or 0) + aside for line, _, _ in points]
            bars = np.array([bar or (0.0, 0.0) for _, _, bar in points]).T
            values = [value for _, value, _ in points]
            look: dict[str, Any] = {"marker": MARKERS[over_n.index(method)], "capsize": 3}
            axes.errorbar(offsets, values, bars, color=color, label=method, **look)


def text_counts(lines: Sequence[Line]) -> list[str]:
    """Return the numbers of texts and sequences, the candidates and the hardware, for a caption."""
    rows = [row for line in lines for row in line.rows]
    notes = [f"{span({row['num_samples'] for row in rows})} texts per seed"]
    with_nats = [row for row in rows if "held_out_nats" in row]
    if with_nats:
        counts = sorted({len(row["held_out_nats"]) for row in with_nats})
        length = with_nats[0]["held_out_tokens"] // len(with_nats[0]["held_out_nats"])
        notes.append(f"{' or '.join(map(str, counts))} held-out sequences of {length} tokens")
    candidates = sorted({str(row["candidates"]) for row in rows if "candidates" in row})
    if candidates:
        notes.append(f"k = {' or '.join(candidates)}")
    return [*notes, *hardware(rows)]


def intervals_of(lines: Sequence[Line]) -> str:
    """Return the evaluator model and the intervals, for a caption."""
    evaluators = ", ".join(dict.fromkeys(line.rows[0]["judge"] for line in lines))
    num_seeds = max(len(line.rows) for line in lines)
    intervals = "95% intervals over texts or held-out sequences, one training seed"
    if num_seeds > 1:
        intervals = f"means of {num_seeds} training seeds"
    return f"evaluator model: {evaluators}, {intervals}"


def difference_of(line: Line, lines: Sequence[Line]) -> Point | None:
    """Return the held-out nats of a line above those of its model at n = 0. Only one seed has an interval."""
    first = without_latents(line, lines)
    paired = [row for row in line.rows if row["train_seed"] in first]
    above = [nats_above(row, first[row["train_seed"]]) for row in paired]
    differences = [difference for difference in above if difference is not None]
    if not differences:
        return (0.0, None) if line.cell.latents == 0 else None
    half = differences[0][1]
    has_interval = len(differences) == 1 and math.isfinite(half)
    return fmean(value for value, _ in differences), (half, half) if has_interval else None


def perplexity_of(line: Line, lines: Sequence[Line]) -> Point:
    """Return the perplexity of a line. Only one seed has an interval."""
    value = fmean(row["perplexity"] for row in line.rows)
    interval = line.rows[0]["ci95"]
    if len(line.rows) > 1 or interval is None:
        return value, None
    return value, (value - interval[0], interval[1] - value)
