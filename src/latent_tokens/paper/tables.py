"""Tables in Markdown: results next to the paper's numbers, and those of text.

A line is a cell with its recipes and the results that were measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import factorial
from statistics import fmean
from typing import NamedTuple

from latent_tokens.evaluation.intervals import half_interval, wilson
from latent_tokens.evaluation.report import ORDER_NAMES, as_markdown
from latent_tokens.evaluation.rows import Row, bounds_of, value_of
from latent_tokens.evaluation.settings import is_adaptive
from latent_tokens.paper.experiments import EXPERIMENTS, PUZZLE_TASKS, Cell
from latent_tokens.paper.recipes import Recipe
from latent_tokens.paper.reference import AR_MTP, TEXT, TOP_PROB, UNIFORM, Printed, PrintedText
from latent_tokens.paper.run import held_out, nats_above
from latent_tokens.paper.scales import BOARDS_9
from latent_tokens.tasks import CompactZebra, Zebra, configured

LOSSES = {"sudoku-large": "soft_loss", "text": "perplexity"}  # lower is better
DECIMALS = {"soft_loss": 2}  # of a metric; 1 for the others
ENOUGH = 3  # training seeds of an interval over seeds


class Interval(NamedTuple):
    """A 95% interval, and its kind: "t" over training seeds, "Wilson" of samples, or "t and Wilson"."""

    low: float
    high: float
    kind: str


def interval_over_seeds(
    values: Sequence[float], noise: tuple[float, float] | None
) -> Interval | None:
    """Return the 95% interval of a mean over training seeds.

    From three seeds on, it is Student's t, and on each side at least as wide as the sampling noise.
    With fewer it is the sampling noise alone, which leaves out the variation between seeds.

    Args:
        values: one value per training seed.
        noise: the bounds of the interval from the number of samples, or None if it is not known.
    """
    if len(values) < ENOUGH:
        return None if noise is None else Interval(*noise, "Wilson")
    mean = fmean(values)
    half = half_interval(values)
    if noise is None:
        return Interval(mean - half, mean + half, "t")
    low = min(mean - half, noise[0])
    high = max(mean + half, noise[1])
    return Interval(low, high, "t" if (low, high) == (mean - half, mean + half) else "t and Wilson")


@dataclass(frozen=True)
class Line:
    """A cell with its recipes, one per seed, and the results that were measured."""

    cell: Cell
    recipes: tuple[Recipe, ...]
    rows: tuple[Row, ...]

    @property
    def is_loss(self) -> bool:
        """Whether lower is better."""
        return self.cell.task in LOSSES

    @property
    def metric(self) -> str:
        """The key of the value in a result. An accuracy is known only if there is a result."""
        return LOSSES.get(self.cell.task) or str(self.rows[0]["metric"])

    @property
    def is_text(self) -> bool:
        """Whether the cell is of text."""
        return self.recipes[0].data.task == "text"

    @property
    def by_seed(self) -> dict[int, float]:
        """The value of each training seed: percent correct, or a loss."""
        return {row["train_seed"]: value_of(row, self.metric) for row in self.rows}

    def of_seeds(self, seeds: Sequence[int]) -> Line:
        """Return the line with the results of some training seeds only."""
        return replace(self, rows=tuple(row for row in self.rows if row["train_seed"] in seeds))

    @property
    def values(self) -> list[float]:
        """The values of the training seeds."""
        return list(self.by_seed.values())

    @property
    def mean(self) -> float:
        """The mean over training seeds."""
        return fmean(self.values)

    @property
    def unit(self) -> str:
        """The metric in words: percent correct, or a loss without a unit."""
        return self.metric.replace("_", " ") if self.is_loss else f"{self.metric} %"

    def written(self, value: float, sign: str = "") -> str:
        """Return a value with its digits. With the sign "+", a difference of two values."""
        return f"{value:{sign}.{DECIMALS.get(self.metric, 1)}f}"

    @property
    def candidates(self) -> str:
        """The k of its results. It is empty without results, and in an order that is not adaptive."""
        if not self.rows or not is_adaptive(self.cell.order):
            return ""
        return str(self.rows[0].get("candidates", ""))

    @property
    def num_samples(self) -> int:
        """The samples of all training seeds."""
        return sum(row["num_samples"] for row in self.rows)

    @property
    def num_independent(self) -> int:
        """The samples of all training seeds. Seeds that solve the same puzzles count each puzzle once."""
        if self.cell.problems is None and self.cell.task not in PUZZLE_TASKS:
            return self.num_samples
        return sum({row["problems_sha256"]: int(row["num_samples"]) for row in self.rows}.values())

    @property
    def interval(self) -> Interval | None:
        """The interval of the mean (`interval_over_seeds`). A loss has none with fewer than three seeds."""
        if self.is_loss:
            return interval_over_seeds(self.values, None)
        low, high = wilson(self.mean / 100, self.num_independent)
        interval = interval_over_seeds(self.values, (100 * low, 100 * high))
        return interval and Interval(
            max(0.0, interval.low), min(100.0, interval.high), interval.kind
        )


def lines(recipes: Sequence[Recipe], results: Mapping[str, Row]) -> list[Line]:
    """Return the cells of some recipes in their order, with the results that exist.

    Args:
        recipes: recipes of an experiment.
        results: rows by the hash of their recipe.
    """
    by_cell: dict[Cell, list[Recipe]] = {}
    for recipe in recipes:
        by_cell.setdefault(recipe.cell, []).append(recipe)
    shown = []
    for cell, of_cell in by_cell.items():
        rows = (results[recipe.hash] for recipe in of_cell if recipe.hash in results)
        shown.append(Line(cell, tuple(of_cell), tuple(rows)))
    return shown


def local_task(line: Line) -> str:
    """Return the task that replaces the cell's task at this scale."""
    task = line.recipes[0].data.task
    return task if line.cell.problems is None else f"{task}, infilling puzzles"


def differ_in_candidates(lines: Sequence[Line]) -> bool:
    """Return whether lines differ in k, and not all of them have it in their cell."""
    with_k = [line for line in lines if line.candidates]
    are_named = all(line.cell.k is not None for line in with_k)
    return len({line.candidates for line in with_k}) > 1 and not are_named


TABLE_HEADINGS = (
    "task", "method", "order", "k", "n", "variant", "paper", "ours", "chance", "metric",
    "95% interval", "kind", "strict %", "samples", "each seed", "relative cost",
    "relative cost, paper's formula",
)  # fmt: skip
MAY_BE_EMPTY = tuple(map(TABLE_HEADINGS.index, ("n", "variant", "paper", "chance", "strict %")))
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
    table = [TABLE_HEADINGS, *map(cells_of, lines)]
    empty = {column for column in MAY_BE_EMPTY if not any(row[column] for row in table[1:])}
    if not differ_in_candidates(lines):
        empty.add(TABLE_HEADINGS.index("k"))
    shown = [[cell for column, cell in enumerate(row) if column not in empty] for row in table]
    notes = [note for name, note in LEGEND_OF.items() if TABLE_HEADINGS.index(name) not in empty]
    legend = " ".join([LEGEND, *notes, EXPERIMENTS[experiment].note]).rstrip()
    return f"{as_markdown(shown)}\n{legend}\n"


def cells_of(line: Line) -> tuple[str, ...]:
    """Return one row of the table. It is "not run" if no seed was run."""
    cell = line.cell
    number = printed(cell)
    setting = (
        local_task(line),
        cell.method,
        ORDER_NAMES[cell.order],
        line.candidates,
        "" if cell.latents is None else str(cell.latents),
        cell.legacy_name or "",
        "" if number is None else cost(number),
    )
    if not line.rows:
        return (
            *setting,
            "not run",
            chance(line),
            *("" for _ in TABLE_HEADINGS[len(setting) + 2 :]),
        )
    interval = line.interval
    bounds = "" if interval is None else " - ".join(map(line.written, interval[:2]))
    strict = [row["strict"] for row in line.rows if "strict" in row]  # only Countdown has it
    return (
        *setting,
        line.written(line.mean),
        chance(line),
        line.unit,
        bounds,
        "" if interval is None else interval.kind,
        line.written(fmean(strict)) if strict else "",
        f"{line.num_samples:,}",
        " ".join(map(line.written, line.values)),
        mean_cost(row["relative_cost"] for row in line.rows),
        mean_cost(row["paper_cost"] for row in line.rows),
    )


def mean_cost(costs: Iterable[float | None]) -> str:
    """Return the mean of a relative cost over seeds. It is empty if no result has one."""
    numbers = [cost for cost in costs if cost is not None]
    return f"{fmean(numbers):.2f}x" if numbers else ""


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
    task = "sudoku-gen" if cell.task == BOARDS_9 else cell.task
    columns = [table.get(task, {}) for table in (TOP_PROB, UNIFORM, AR_MTP)]
    key = (cell.method, cell.order)
    return next((column[key] for column in columns if key in column), None)


def cost(number: Printed) -> str:
    """Return a printed accuracy with its cost."""
    price = "" if number.cost is None else f" / {number.cost:.2f}x"
    return f"{number.accuracy}{price}"


TEXT_HEADINGS = (
    "method", "n", "paper: perplexity / s", "seed", "perplexity", "95% interval",
    "entropy", "95% interval", "distinct-2 %",
    "held-out nats per token", "difference to n = 0", "relative cost",
    "seconds", "speedup over mdm", "paper's speedup", "texts", "evaluator",
)  # fmt: skip
TEXT_LEGEND = (
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
    """Return the table of an experiment with a line per training seed, and its legend."""
    table: list[tuple[str, ...]] = [TEXT_HEADINGS]
    for line in lines:
        table += [text_cells(line, row, lines) for row in line.rows] or [
            (*line_labels(line), "", "not run", *("" for _ in TEXT_HEADINGS[5:]))
        ]
    return f"{as_markdown(table)}\n{TEXT_LEGEND}\n"


def printed_text(line: Line) -> PrintedText | None:
    """Return the paper's numbers of a line, or None."""
    return TEXT.get(line.cell.method) if line.cell.latents in (None, 0) else None


def line_labels(line: Line) -> tuple[str, str, str]:
    """Return the method and n of a line, and the paper's numbers there."""
    number = printed_text(line)
    latents = "" if line.cell.latents is None else str(line.cell.latents)
    ours = "" if number is None else f"{number.perplexity} / {number.seconds}"
    return line.cell.method, latents, ours


def text_cells(line: Line, row: Row, lines: Sequence[Line]) -> tuple[str, ...]:
    """Return the cells of one training seed. Other lines have its n = 0, and the seconds of mdm."""
    nats = held_out(row)
    first = without_latents(line, lines).get(row["train_seed"])
    above = None if first is None else nats_above(row, first)
    number = printed_text(line)
    return (
        *line_labels(line),
        "" if line.recipes[0].imported else str(row["train_seed"]),
        f"{row['perplexity']:.1f}",
        bounds_of(row["ci95"]),
        f"{row['entropy']:.2f}",
        bounds_of(row["entropy_ci95"], digits=2),
        f"{row['distinct_2']:.1f}",
        "" if nats is None else f"{nats:.3f}",
        "" if above is None else f"{above[0]:+.3f} ± {above[1]:.3f}",
        f"{row['relative_cost']:.2f}x",
        f"{row['seconds']:.3f}",
        speedup(row, lines),
        "" if number is None else f"{TEXT['mdm'].seconds / number.seconds:.1f}x",
        f"{row['num_samples']:,}",
        row["judge"],
    )


def speedup(row: Row, lines: Sequence[Line]) -> str:
    """Return how many times as fast as mdm a row was decoded. It is empty if mdm ran on other hardware."""

    def run_of(row: Row) -> tuple[object, ...]:  # all that must be equal for seconds to compare
        on = (row["device"], row["threads"], row["precision"])
        return row["train_seed"], row["num_samples"], *on

    rows = (other for line in lines if line.cell.method == "mdm" for other in line.rows)
    seconds = {run_of(other): other["seconds"] for other in rows}
    return f"{seconds[run_of(row)] / row['seconds']:.1f}x" if run_of(row) in seconds else ""


def without_latents(line: Line, lines: Sequence[Line]) -> dict[int, Row]:
    """Return the rows of the same model at n = 0 by their seed, none if the line is at n = 0."""
    if line.cell.latents == 0:
        return {}
    at_zero = [other for other in lines if other.cell.latents == 0]
    same_models = [other for other in at_zero if other.cell.method == line.cell.method]
    return {row["train_seed"]: row for other in same_models for row in other.rows}
