"""A Markdown table per experiment: our results next to the paper's numbers, one line per cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import factorial
from statistics import fmean
from typing import Literal, cast

from latent_tokens.configs import ScaleName
from latent_tokens.evaluation.intervals import half_interval, wilson
from latent_tokens.evaluation.report import ORDER_NAMES, as_markdown
from latent_tokens.evaluation.rows import Row, value_of
from latent_tokens.paper.cells import Cell
from latent_tokens.paper.diversity import columns_of
from latent_tokens.paper.experiments import EXPERIMENTS
from latent_tokens.paper.recipes import Recipe
from latent_tokens.paper.reference import AR_MTP, TOP_PROB, UNIFORM, Printed
from latent_tokens.paper.variants import label
from latent_tokens.tasks import Zebra, configured

HEADINGS = (
    *("task", "method", "order", "n", "variant", "paper", "ours", "chance", "metric", "95% interval"),
    *("samples", "each seed", "over seeds", "latents predicted"),
    *("distinct %", "intercalates (reference)"),
    *("relative cost", "relative cost, paper's formula"),
)
OF_SOME = ("n", "variant", "paper", "chance", "latents predicted", "distinct %", "intercalates (reference)")
MAY_BE_EMPTY = tuple(map(HEADINGS.index, OF_SOME))
LEGEND = (
    "The 95% interval pools the samples of all training seeds (Wilson), and seeds that solve the same puzzles"
    ' count each puzzle once. "Over seeds" is half of the 95% interval of the mean over training seeds'
    " (Student's t). Relative cost is tokens processed, relative to all masked tokens in every step."
)
LEGEND_OF = {
    "paper": 'The column "paper" has the published accuracy and cost, which are of larger tasks and models.',
    "n": "With k > 1 candidates, n = 0 still leaves up to k - 1 other masked tokens in the input.",
    "chance": "Chance is a random assignment that uses every value once per attribute.",
    "distinct %": "Distinct: valid boards that differ from all others of their seed. Intercalates: 2x2 Latin"
    " subsquares of a valid board, and of boards that the task generates (reference).",
}
STEPS_AHEAD = (1, 4, 16)  # steps between a latent's prediction and its decoding
LOSSES = {"sudoku-large": "soft_loss", "text": "perplexity"}  # lower is better
PUZZLES = ("sudoku-puzzle", "zebra", "countdown")  # tasks whose problems are the same for every seed
DIGITS = {"soft_loss": 2, "nats_per_token": 4}  # of a metric; 1 for the others


@dataclass(frozen=True)
class Line:
    """A cell with its recipes, one per seed, and the results that were measured."""

    cell: Cell
    recipes: tuple[Recipe, ...]
    rows: tuple[Row, ...]

    @property
    def metric(self) -> str:
        """The key of the value in a result. An accuracy is known only if there is a result."""
        return self.loss or str(self.rows[0]["metric"])

    @property
    def loss(self) -> str | None:
        """The key of the value if lower is better, else None."""
        if any(recipe.variant.in_nats for recipe in self.recipes):
            return "nats_per_token"
        return LOSSES.get(self.cell.task)

    @property
    def is_loss(self) -> bool:
        """Whether lower is better."""
        return self.loss is not None

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

    def written(self, value: float) -> str:
        """Return a value with its digits."""
        return f"{value:.{DIGITS.get(self.metric, 1)}f}"

    def signed(self, value: float) -> str:
        """Return a difference of two values with its sign and its digits."""
        return f"{value:+.{DIGITS.get(self.metric, 1)}f}"

    @property
    def num_samples(self) -> int:
        """The samples of all training seeds."""
        return sum(row["num_samples"] for row in self.rows)

    @property
    def num_independent(self) -> int:
        """The samples of all training seeds. Seeds that solve the same puzzles count each puzzle once."""
        if self.cell.problems is None and self.cell.task not in PUZZLES:
            return self.num_samples
        return sum({row["problems_sha256"]: int(row["num_samples"]) for row in self.rows}.values())

    @property
    def over_seeds(self) -> float | None:
        """Half of the 95% interval of the mean over training seeds (Student's t). None for one seed."""
        return half_interval(self.values) if len(self.values) > 1 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's interval of all samples, in percent. None for a loss."""
        if self.is_loss:
            return None
        low, high = wilson(self.mean / 100, self.num_independent)
        return 100 * low, 100 * high

    def summed(self, key: str, by: str, *names: str) -> dict[int, list[int]]:
        """Return sums over all seeds of the counts of a watcher.

        Args:
            key: the key of the watcher's records in a result.
            by: the number of a record, which sorts the sums.
            names: the counts that are summed.
        """
        sums: dict[int, list[int]] = {}
        rows = cast(Sequence[Mapping[str, Sequence[Mapping[str, int]]]], self.rows)
        for record in (record for row in rows for record in row.get(key, ())):
            before = sums.get(record[by], [0] * len(names))
            sums[record[by]] = [total + record[name] for total, name in zip(before, names, strict=True)]
        return dict(sorted(sums.items()))

    @property
    def foreseen(self) -> str:
        """Percent of the latents whose prediction was decoded 1, 4 and 16 steps later, in correct samples."""
        counts = self.summed("foresight", "steps", "hit_right", "seen_right")
        shares = {step: 100 * hit / seen for step, (hit, seen) in counts.items() if seen}
        return ", ".join(f"{shares[step]:.0f} ({step} ahead)" for step in STEPS_AHEAD if step in shares)


def lines(recipes: Sequence[Recipe], results: Mapping[str, Row]) -> list[Line]:
    """Return the cells of some recipes in their order, with the results that exist.

    Args:
        recipes: recipes of an experiment.
        results: rows by the hash of their recipe.
    """
    by_cell: dict[Cell, list[Recipe]] = {}
    for recipe in recipes:
        by_cell.setdefault(recipe.cell, []).append(recipe)
    return [
        Line(
            cell, tuple(of_cell), tuple(results[recipe.hash] for recipe in of_cell if recipe.hash in results)
        )
        for cell, of_cell in by_cell.items()
    ]


def markdown(lines: Sequence[Line], experiment: str, scale: ScaleName) -> str:
    """Return the table of an experiment without empty columns, its legend, and its command."""
    table = [HEADINGS, *map(cells_of, lines)]
    empty = {column for column in MAY_BE_EMPTY if not any(row[column] for row in table[1:])}
    shown = [[cell for column, cell in enumerate(row) if column not in empty] for row in table]
    notes = [note for name, note in LEGEND_OF.items() if HEADINGS.index(name) not in empty]
    legend = " ".join([LEGEND, *notes, EXPERIMENTS[experiment].note]).rstrip()
    command = f"`latent-tokens reproduce {experiment} --scale {scale}`"
    return f"{as_markdown(shown)}\n{legend}\n\n{command}\n"


def stand_in(line: Line) -> str:
    """Return the task that replaces the cell's task at this scale."""
    task = line.recipes[0].data.task
    return task if line.cell.problems is None else f"{task}, infilling puzzles"


def cells_of(line: Line) -> tuple[str, ...]:
    """Return one row of the table. It is "not run" if no seed was run."""
    cell = line.cell
    number = printed(cell)
    setting = (
        stand_in(line),
        cell.method,
        ORDER_NAMES[cell.order],
        "" if cell.latents is None else str(cell.latents),
        label(cell.variant),
        "" if number is None else cost(number),
    )
    if not line.rows:
        return (*setting, "not run", chance(line), *("" for _ in HEADINGS[len(setting) + 2 :]))
    interval = "" if line.interval is None else f"{line.interval[0]:.1f} - {line.interval[1]:.1f}"
    over_seeds = "" if line.over_seeds is None else f"± {line.written(line.over_seeds)}"
    return (
        *setting,
        line.written(line.mean),
        chance(line),
        line.unit,
        interval,
        f"{line.num_samples:,}",
        " ".join(map(line.written, line.values)),
        over_seeds,
        line.foreseen,
        *columns_of(line.rows),
        mean_cost(line, "relative_cost"),
        mean_cost(line, "paper_cost"),
    )


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
    if not isinstance(task, Zebra) or len(task.houses) * len(task.attributes) != 1:
        return ""
    (houses,) = task.houses
    (attributes,) = task.attributes
    return f"{100 / factorial(houses) ** attributes:.2f}"


def printed(cell: Cell) -> Printed | None:
    """Return the number that the paper prints in this cell, or None."""
    if (cell.latents, cell.problems, cell.variant) != (None, None, None):
        return None
    columns = [table.get(cell.task, {}) for table in (TOP_PROB, UNIFORM, AR_MTP)]
    key = (cell.method, cell.order)
    return next((column[key] for column in columns if key in column), None)


def cost(number: Printed) -> str:
    """Return a printed accuracy with its cost."""
    return f"{number.accuracy}" if number.cost is None else f"{number.accuracy} / {number.cost:.2f}x"
