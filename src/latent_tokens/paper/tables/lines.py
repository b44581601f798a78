"""The lines of tables and figures: a cell with its recipes and the results that were measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from latent_tokens.evaluation.intervals import half_interval, wilson
from latent_tokens.evaluation.rows import Row, value_of
from latent_tokens.evaluation.settings import is_adaptive
from latent_tokens.paper.design.cells import PUZZLES, Cell
from latent_tokens.paper.design.recipes import Recipe

LOSSES = {"sudoku-large": "soft_loss", "text": "perplexity"}  # lower is better
DIGITS = {"soft_loss": 2}  # of a metric; 1 for the others
ENOUGH = 3  # training seeds of an interval over seeds


class Interval(NamedTuple):
    """A 95% interval, and its kind: "t" over training seeds, "Wilson" of samples, or "t and Wilson"."""

    low: float
    high: float
    kind: str


def interval_over_seeds(values: Sequence[float], noise: tuple[float, float] | None) -> Interval | None:
    """Return the 95% interval of a mean over training seeds.

    From three seeds on, it is Student's t, and on each side at least as wide as the sampling noise. With
    fewer it is the sampling noise alone, which leaves out the variation between seeds.

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
    def metric(self) -> str:
        """The key of the value in a result. An accuracy is known only if there is a result."""
        return self.loss or str(self.rows[0]["metric"])

    @property
    def loss(self) -> str | None:
        """The key of the value if lower is better, else None."""
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
        return {row["train_seed"]: self.value_in(row) for row in self.rows}

    def value_in(self, row: Row) -> float:
        """Return the value of a result."""
        return value_of(row, self.metric)

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
        if self.cell.problems is None and self.cell.task not in PUZZLES:
            return self.num_samples
        return sum({row["problems_sha256"]: int(row["num_samples"]) for row in self.rows}.values())

    @property
    def interval(self) -> Interval | None:
        """The interval of the mean (`interval_over_seeds`). A loss has none with fewer than three seeds."""
        if self.is_loss:
            return interval_over_seeds(self.values, None)
        low, high = wilson(self.mean / 100, self.num_independent)
        interval = interval_over_seeds(self.values, (100 * low, 100 * high))
        assert interval is not None
        return Interval(max(0.0, interval.low), min(100.0, interval.high), interval.kind)


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


def stand_in(line: Line) -> str:
    """Return the task that replaces the cell's task at this scale."""
    task = line.recipes[0].data.task
    return task if line.cell.problems is None else f"{task}, infilling puzzles"


def differ_in_candidates(lines: Sequence[Line]) -> bool:
    """Return whether lines differ in k, and not all of them have it in their cell."""
    with_k = [line for line in lines if line.candidates]
    are_named = all(line.cell.k is not None for line in with_k)
    return len({line.candidates for line in with_k}) > 1 and not are_named
