"""A Markdown table per experiment: our results next to the paper's numbers, one line per cell."""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial
from statistics import fmean
from typing import Literal

from latent_tokens.evaluation.report import ORDER_NAMES, as_markdown
from latent_tokens.paper.design.cells import Cell
from latent_tokens.paper.design.experiments import EXPERIMENTS
from latent_tokens.paper.design.reference import AR_MTP, TOP_PROB, UNIFORM, Printed
from latent_tokens.paper.tables.lines import Line, differ_in_candidates, stand_in
from latent_tokens.tasks import CompactZebra, Zebra, configured

HEADINGS = (
    *("task", "method", "order", "k", "n", "variant", "paper", "ours", "chance", "metric", "95% interval"),
    *("kind", "strict %", "samples", "each seed"),
    *("relative cost", "relative cost, paper's formula"),
)
MAY_BE_EMPTY = tuple(map(HEADINGS.index, ("n", "variant", "paper", "chance", "strict %")))
LEGEND = (
    "Kinds of intervals: t is Student's t over training seeds, from three on, and never narrower than the"
    " interval of all samples (t and Wilson if that sets a bound). Wilson is the interval of all samples. It"
    " leaves out the variation between seeds. Seeds that solve the same puzzles count each puzzle once."
    " Relative cost is tokens processed, relative to all masked tokens in every step."
)
LEGEND_OF = {
    "paper": 'The column "paper" has the published accuracy and cost, which are of larger tasks and models.',
    "k": "k is the number of candidates in top-prob order.",
    "n": "With k > 1 candidates, n = 0 still leaves up to k - 1 other masked tokens in the input.",
    "chance": "Chance is a random assignment that uses every value once per attribute.",
    "strict %": "Lenient: every equation is true and the last value is the target. Strict: the equations also"
    " use each given number and each result exactly once.",
}


def markdown(lines: Sequence[Line], experiment: str) -> str:
    """Return the table of an experiment without empty columns, and its legend."""
    table = [HEADINGS, *map(cells_of, lines)]
    empty = {column for column in MAY_BE_EMPTY if not any(row[column] for row in table[1:])}
    if not differ_in_candidates(lines):
        empty.add(HEADINGS.index("k"))
    shown = [[cell for column, cell in enumerate(row) if column not in empty] for row in table]
    notes = [note for name, note in LEGEND_OF.items() if HEADINGS.index(name) not in empty]
    legend = " ".join([LEGEND, *notes, EXPERIMENTS[experiment].note]).rstrip()
    return f"{as_markdown(shown)}\n{legend}\n"


def cells_of(line: Line) -> tuple[str, ...]:
    """Return one row of the table. It is "not run" if no seed was run."""
    cell = line.cell
    number = printed(cell)
    setting = (
        stand_in(line),
        cell.method,
        ORDER_NAMES[cell.order],
        line.candidates,
        "" if cell.latents is None else str(cell.latents),
        cell.legacy_name or "",
        "" if number is None else cost(number),
    )
    if not line.rows:
        return (*setting, "not run", chance(line), *("" for _ in HEADINGS[len(setting) + 2 :]))
    interval = line.interval
    bounds = "" if interval is None else f"{line.written(interval.low)} - {line.written(interval.high)}"
    return (
        *setting,
        line.written(line.mean),
        chance(line),
        line.unit,
        bounds,
        "" if interval is None else interval.kind,
        mean_strict(line),
        f"{line.num_samples:,}",
        " ".join(map(line.written, line.values)),
        mean_cost(line, "relative_cost"),
        mean_cost(line, "paper_cost"),
    )


def mean_strict(line: Line) -> str:
    """Return the mean share of strict answers over seeds, in percent. Only Countdown has one."""
    shares = [row["strict"] for row in line.rows if "strict" in row]
    return line.written(fmean(shares)) if shares else ""


def mean_cost(line: Line, key: Literal["relative_cost", "paper_cost"]) -> str:
    """Return the mean of a relative cost over seeds. It is empty if no result has one."""
    costs = [cost for row in line.rows if (cost := row[key]) is not None]
    return f"{fmean(costs):.2f}x" if costs else ""


def chance(line: Line) -> str:
    """Return the accuracy of a random answer if it is not negligible.

    On Zebra it is one of (number of houses)! orders for each attribute.
    """
    data = line.recipes[0].data
    task = configured(data.task, {}) if data.task != "text" else None
    task = task.zebra if isinstance(task, CompactZebra) else task
    if not isinstance(task, Zebra) or len(task.houses) * len(task.attributes) != 1:
        return ""
    (houses,) = task.houses
    (attributes,) = task.attributes
    return f"{100 / factorial(houses) ** attributes:.2f}"


def printed(cell: Cell) -> Printed | None:
    """Return the number that the paper prints in this cell, or None."""
    if (cell.latents, cell.problems, cell.k) != (None, None, None):
        return None
    columns = [table.get(cell.task, {}) for table in (TOP_PROB, UNIFORM, AR_MTP)]
    key = (cell.method, cell.order)
    return next((column[key] for column in columns if key in column), None)


def cost(number: Printed) -> str:
    """Return a printed accuracy with its cost."""
    return f"{number.accuracy}" if number.cost is None else f"{number.accuracy} / {number.cost:.2f}x"
