"""A Markdown table per experiment: our results next to the paper's numbers, one line per cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import factorial
from statistics import fmean
from typing import Any

from latent_tokens.configs import ScaleName
from latent_tokens.evaluation.intervals import half_interval, wilson
from latent_tokens.evaluation.report import ORDER_NAMES, as_markdown
from latent_tokens.paper.experiments import EXPERIMENTS, Cell
from latent_tokens.paper.recipes import Recipe
from latent_tokens.paper.reference import AR_MTP, TOP_PROB, UNIFORM, Printed
from latent_tokens.paper.variants import label
from latent_tokens.tasks import Zebra, configured

HEADINGS = (
    "task", "method", "order", "n", "variant", "paper", "ours", "chance", "metric", "95% interval", "samples", "each seed", "over seeds",
    "latents predicted", "relative cost", "relative cost, paper's formula",
)  # fmt: skip
MAY_BE_EMPTY = tuple(
    HEADINGS.index(name) for name in ("n", "variant", "paper", "chance", "latents predicted")
)
LEGEND = (
    'The 95% interval pools the samples of all training seeds (Wilson). "Over seeds" is half of the 95% interval of the mean over training seeds '
    "(Student's t). Relative cost is tokens processed, relative to all masked tokens in every step."
)
LEGEND_OF = {
    "paper": 'The column "paper" has the published accuracy and cost, which are of larger tasks and models.',
    "n": "With k > 1 candidates, n = 0 still leaves up to k - 1 other masked tokens in the input.",
    "chance": "Chance is a random assignment that uses every value once per attribute.",
}
AHEAD = (1, 4, 16)  # steps between a latent's prediction and its decoding
LOSSES = {"sudoku-large": "soft_loss", "text": "perplexity"}  # lower is better
DIGITS = {"soft_loss": 2}  # of a metric; 1 for the others

Row = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """A cell with its recipes, one per seed, and the results that were measured."""

    cell: Cell
    recipes: tuple[Recipe, ...]
    rows: tuple[Row, ...]

    @property
    def metric(self) -> str:
        """The key of the value in a result. An accuracy depends on the task, so it is known only if there is a result."""
        return LOSSES.get(self.cell.task) or str(self.rows[0]["metric"])

    @property
    def is_loss(self) -> bool:
        """Whether lower is better."""
        return self.cell.task in LOSSES

    @property
    def by_seed(self) -> dict[int, float]:
        """The value of each training seed: percent correct, or a loss."""
        return {row["train_seed"]: float(row[self.metric]) for row in self.rows}

    @property
    def values(self) -> list[float]:
        return list(self.by_seed.values())

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def unit(self) -> str:
        """The metric in words: percent correct, or a loss without a unit."""
        return self.metric.replace("_", " ") if self.is_loss else f"{self.metric} %"

    def written(self, value: float) -> str:
        """A value with its digits."""
        return f"{value:.{DIGITS.get(self.metric, 1)}f}"

    def signed(self, value: float) -> str:
        """A difference of two values with its sign and its digits."""
        return f"{value:+.{DIGITS.get(self.metric, 1)}f}"

    @property
    def over_seeds(self) -> float | None:
        """Half of the 95 % interval of the mean over training seeds (Student's t); None for a single one."""
        return half_interval(self.values) if len(self.values) > 1 else None

    def summed(self, key: str, by: str, *names: str) -> dict[int, list[int]]:
        """What a watcher wrote down, all seeds together: the sums of the counts named, by the number that each record stands for, in its order."""
        sums: dict[int, list[int]] = {}
        for record in (record for row in self.rows for record in row.get(key, ())):
            before = sums.get(record[by], [0] * len(names))
            sums[record[by]] = [total + record[name] for total, name in zip(before, names, strict=True)]
        return dict(sorted(sums.items()))

    @property
    def foreseen(self) -> str:
        """How many per cent of the latents came true so many steps later, of samples that came out right, where that was watched."""
        counts = self.summed("foresight", "steps", "hit_right", "seen_right")
        return ", ".join(
            f"{100 * hit / seen:.0f} ({step} ahead)"
            for step, (hit, seen) in counts.items()
            if step in AHEAD and seen
        )

    @property
    def is_text(self) -> bool:
        return self.cell.task == "text"

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's interval of all samples together, in percent. It does not cover the difference between seeds. None for a loss."""
        if self.is_loss:
            return None
        low, high = wilson(self.mean / 100, sum(row["num_samples"] for row in self.rows))
        return 100 * low, 100 * high


def lines(recipes: Sequence[Recipe], found: Mapping[str, Row]) -> list[Line]:
    """The cells of an experiment in their order, with the rows of `found`, by hash, that are theirs."""
    cells = dict.fromkeys(recipe.cell for recipe in recipes)
    of_cell = {cell: tuple(recipe for recipe in recipes if recipe.cell == cell) for cell in cells}
    return [
        Line(cell, own, tuple(found[recipe.hash] for recipe in own if recipe.hash in found))
        for cell, own in of_cell.items()
    ]


def markdown(lines: Sequence[Line], experiment: str, scale: ScaleName) -> str:
    """Return the table of an experiment without empty columns, its legend, and the command that makes it."""
    table = [HEADINGS, *map(cells_of, lines)]
    empty = {column for column in MAY_BE_EMPTY if not any(row[column] for row in table[1:])}
    shown = [[cell for column, cell in enumerate(row) if column not in empty] for row in table]
    notes = [note for name, note in LEGEND_OF.items() if HEADINGS.index(name) not in empty]
    legend = " ".join([LEGEND, *notes, EXPERIMENTS[experiment].note]).rstrip()
    return f"{as_markdown(shown)}\n{legend}\n\n`latent-tokens reproduce {experiment} --scale {scale}`\n"


def stand_in(line: Line) -> str:
    """The task that takes the place of the cell's task at this scale."""
    task = line.recipes[0].data.task
    return task if line.cell.problems is None else f"{task}, infilling puzzles"


def cells_of(line: Line) -> tuple[str, ...]:
    """One line of the table, "not run" if no seed was run."""
    cell, shown = line.cell, printed(line.cell)
    about = (
        stand_in(line),
        cell.method,
        ORDER_NAMES[cell.order],
        str("" if cell.latents is None else cell.latents),
        label(cell.variant),
        "" if shown is None else cost(shown),
    )
    if not line.rows:
        return (*about, "not run", chance(line), *("" for _ in HEADINGS[len(about) + 2 :]))
    interval = "" if line.interval is None else f"{line.interval[0]:.1f} - {line.interval[1]:.1f}"
    samples = f"{sum(row['num_samples'] for row in line.rows):,}"
    each = " ".join(map(line.written, line.values))
    priced = (
        [row[name] for row in line.rows if row[name] is not None] for name in ("relative_cost", "paper_cost")
    )
    tokens = (f"{fmean(costs):.2f}x" if costs else "" for costs in priced)
    seeds = "" if line.over_seeds is None else f"± {line.written(line.over_seeds)}"
    return (
        *about,
        line.written(line.mean),
        chance(line),
        line.unit,
        interval,
        samples,
        each,
        seeds,
        line.foreseen,
        *tokens,
    )


def chance(line: Line) -> str:
    """The accuracy of a random answer, if it is not negligible: on Zebra one of houses! orders per attribute."""
    data = line.recipes[0].data
    task = configured(data.task, {}) if data.task != "text" else None
    if not isinstance(task, Zebra) or len(task.houses) * len(task.attributes) != 1:
        return ""
    (houses,), (attributes,) = task.houses, task.attributes
    return f"{100 / factorial(houses) ** attributes:.2f}"


def printed(cell: Cell) -> Printed | None:
    """The number that the paper prints in this cell, or None."""
    if (cell.latents, cell.problems, cell.variant) != (None, None, None):
        return None
    found = (table.get(cell.task, {}).get((cell.method, cell.order)) for table in (TOP_PROB, UNIFORM, AR_MTP))
    return next((number for number in found if number is not None), None)


def cost(number: Printed) -> str:
    """A printed accuracy with its cost."""
    return f"{number.accuracy}" + (f" / {number.cost:.2f}x" if number.cost is not None else "")
