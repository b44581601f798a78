"""The table and the figure of experiments on text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

import numpy as np

from latent_tokens.evaluation.report import as_markdown, save_sheet
from latent_tokens.evaluation.rows import Row, value_of
from latent_tokens.palette import METHOD_COLORS
from latent_tokens.paper.design.experiments import EXPERIMENTS
from latent_tokens.paper.design.reference import TEXT, PrintedText
from latent_tokens.paper.figures.captions import candidates_of, hardware, held_out_sequences, span
from latent_tokens.paper.figures.legends import DASHED, MARKERS, STYLES_OF_ORDERS, by_method, legend_below
from latent_tokens.paper.running.held_out import held_out, nats_above
from latent_tokens.paper.tables.lines import Line

HEADINGS = (
    "method", "n", "paper: perplexity / s", "seed", "perplexity", "95% interval",
    "entropy", "95% interval", "distinct-2 %",
    "held-out nats per token", "difference to n = 0", "relative cost",
    "seconds", "speedup over mdm", "paper's speedup", "texts", "evaluator",
)  # fmt: skip
DODGE = 0.16  # between the points of two methods
INTERVALS: tuple[tuple[Literal["ci95", "entropy_ci95"], int], ...] = (("ci95", 1), ("entropy_ci95", 2))
LEGEND = (
    "Perplexity of generated texts under the evaluator model, and entropy of a text's tokens in nats,"
    " both with 95% intervals over texts. Repetition "
    "lowers both. The paper's perplexity and seconds are of texts of 1,024 tokens. It does not name its"
    " evaluator model. Held-out nats are exact, along one random order per "
    "sequence, which is the same for every n. Their difference to n = 0 has a 95% interval"
    " over sequences, which are evenly spaced in the "
    "held-out documents. Each line is of one training seed, and no interval covers the variation"
    " between seeds. Relative cost is tokens processed, "
    "relative to all masked tokens in every step. Seconds are of decoding all texts once, and"
    " vary between runs. A speedup over mdm is on the same hardware."
)


def text_markdown(lines: Sequence[Line], experiment: str) -> str:
    """Return the table of an experiment, and its legend."""
    body = [
        cells for line in lines for cells in (cells_of_rows(line, lines) if line.rows else [not_run(line)])
    ]
    return f"{as_markdown([HEADINGS, *body])}\n{LEGEND}\n"


def printed_in(line: Line) -> PrintedText | None:
    """Return the paper's numbers of a line, or None."""
    return TEXT.get(line.cell.method) if line.cell.latents in (None, 0) else None


def cells_of_line(line: Line) -> tuple[str, ...]:
    """Return the cells that name a line of the table, and the paper's numbers there."""
    cell = line.cell
    printed = printed_in(line)
    return (
        cell.method,
        "" if cell.latents is None else str(cell.latents),
        "" if printed is None else f"{printed.perplexity} / {printed.seconds}",
    )


def speedup(row: Row, lines: Sequence[Line]) -> str:
    """Return how many times as fast as mdm a row was decoded. It is empty if mdm ran on other hardware."""
    seconds = {
        run_of(other): other["seconds"] for line in lines if line.cell.method == "mdm" for other in line.rows
    }
    return f"{seconds[run_of(row)] / row['seconds']:.1f}x" if run_of(row) in seconds else ""


def run_of(row: Row) -> tuple[object, ...]:
    """Return all that rows must share for their seconds to compare."""
    return row["train_seed"], row["num_samples"], row["device"], row["threads"], row["precision"]


def not_run(line: Line) -> tuple[str, ...]:
    """Return the cells of a line without rows."""
    return (*cells_of_line(line), "", "not run", *("" for _ in HEADINGS[5:]))


def without_latents(line: Line, lines: Sequence[Line]) -> dict[int, Row]:
    """Return the rows of the same model at n = 0 by their seed, none if the line is at n = 0."""
    same_models = (
        candidate
        for candidate in lines
        if candidate.cell.method == line.cell.method and candidate.cell.latents == 0 != line.cell.latents
    )
    return {row["train_seed"]: row for candidate in same_models for row in candidate.rows}


def cells_of_rows(line: Line, lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Return a line of the table for each training seed."""
    table = []
    first = without_latents(line, lines)
    printed = printed_in(line)
    for row in line.rows:
        nats = held_out(row)
        above = nats_above(row, first[row["train_seed"]]) if row["train_seed"] in first else None
        intervals = (
            "" if (bounds := row[name]) is None else f"{bounds[0]:.{digits}f} - {bounds[1]:.{digits}f}"
            for name, digits in INTERVALS
        )
        perplexities, entropies = intervals
        cells = (
            *cells_of_line(line),
            "" if line.recipes[0].imported else str(row["train_seed"]),
            f"{row['perplexity']:.1f}",
            perplexities,
            f"{row['entropy']:.2f}",
            entropies,
            f"{row['distinct_2']:.1f}",
            "" if nats is None else f"{nats:.3f}",
            "" if above is None else f"{above[0]:+.3f} ± {above[1]:.3f}",
            f"{row['relative_cost']:.2f}x",
            f"{row['seconds']:.3f}",
            speedup(row, lines),
            "" if printed is None else f"{TEXT['mdm'].seconds / printed.seconds:.1f}x",
            f"{row['num_samples']:,}",
            row["judge"],
        )
        table.append(cells)
    return table


def draw_text(lines: Sequence[Line], experiment: str, command: str, stem: Path) -> list[Path]:
    """Write STEM.png and STEM.svg: held-out nats and perplexity over the number of latent tokens.

    Fewer than two numbers with results make no figure.
    """
    from matplotlib.figure import Figure

    shown = by_method([line for line in lines if line.rows])
    dial = list(dict.fromkeys(line.cell.latents for line in shown if line.cell.latents is not None))
    if len(dial) < 2:
        return []
    sheet = Figure(figsize=(9, 4.6), layout="constrained")
    panels = [("perplexity", "perplexity\nunder the evaluator model")]
    if any(held_out(line.rows[0]) is not None and without_latents(line, shown) for line in shown):
        panels.insert(0, ("difference", "held-out nats per token,\ndifference to n = 0"))
    methods = list(dict.fromkeys(line.cell.method for line in shown))
    methods_over_n = (line.cell.method for line in shown if line.cell.latents is not None)
    curves = list(dict.fromkeys(methods_over_n))
    for axes, (what, text) in zip(sheet.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for method in methods:
            method_lines = [line for line in shown if line.cell.method == method]
            points = [
                (line, *point) for line in method_lines if (point := point_of(line, shown, what)) is not None
            ]
            color = METHOD_COLORS[method]
            if method_lines[0].cell.latents is None:
                for line, value, _ in points:
                    style = STYLES_OF_ORDERS.get(line.cell.order, DASHED)
                    label = f"{method} {value:.0f}"
                    axes.axhline(value, linewidth=1.2, linestyle=style, color=color, label=label)
            elif points:
                aside = DODGE * (curves.index(method) - (len(curves) - 1) / 2)
                offsets = [dial.index(line.cell.latents or 0) + aside for line, _, _ in points]
                bars = np.array([bar or (0.0, 0.0) for _, _, bar in points]).T
                marker = MARKERS[curves.index(method)]
                values = [value for _, value, _ in points]
                axes.errorbar(offsets, values, bars, marker=marker, capsize=3, color=color, label=method)
        axes.set(xticks=range(len(dial)), xticklabels=dial, xlabel="latent tokens n", ylabel=text)
        axes.grid(axis="y", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        legend_below(axes)
    caption = f"{', '.join(counts_of(shown))}\n{intervals_of(shown)}\n{command}"
    return save_sheet(sheet, EXPERIMENTS[experiment].title, caption, stem)


def counts_of(lines: Sequence[Line]) -> list[str]:
    """Return the numbers of texts and sequences, the candidates and the hardware, for a caption."""
    rows = [row for line in lines for row in line.rows]
    notes = [f"{span({row['num_samples'] for row in rows})} texts per seed"]
    with_nats = [row for row in rows if "held_out_nats" in row]
    if with_nats:
        notes.append(held_out_sequences(with_nats))
    return [*notes, *candidates_of(rows), *hardware(rows)]


def intervals_of(lines: Sequence[Line]) -> str:
    """Return the evaluator model and the intervals, for a caption."""
    judges = ", ".join(dict.fromkeys(line.rows[0]["judge"] for line in lines))
    num_seeds = max(len(line.rows) for line in lines)
    intervals = "95% intervals over texts or held-out sequences, one training seed"
    if num_seeds > 1:
        intervals = f"means of {num_seeds} training seeds"
    return f"evaluator model: {judges}, {intervals}"


def point_of(line: Line, lines: Sequence[Line], what: str) -> tuple[float, tuple[float, float] | None] | None:
    """Return the value of a line in a panel, and its interval below and above, or None.

    Only one seed has an interval.
    """
    if what == "difference":
        first = without_latents(line, lines)
        differences = [
            above
            for row in line.rows
            if row["train_seed"] in first and (above := nats_above(row, first[row["train_seed"]])) is not None
        ]
        if not differences:
            return (0.0, None) if line.cell.latents == 0 else None
        half = differences[0][1]
        has_interval = len(differences) == 1 and math.isfinite(half)
        return fmean(value for value, _ in differences), (half, half) if has_interval else None
    value = fmean(value_of(row, what) for row in line.rows)
    row, *others = line.rows
    interval = row["ci95" if what == "perplexity" else "entropy_ci95"]
    return value, None if others or interval is None else (value - interval[0], interval[1] - value)
