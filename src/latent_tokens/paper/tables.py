"""Ours beside the paper's: a Markdown table of an experiment, a line a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from latent_tokens.configs import ScaleName
from latent_tokens.intervals import half_interval, wilson
from latent_tokens.paper.experiments import Cell
from latent_tokens.paper.recipes import Recipe
from latent_tokens.paper.reference import AR_MTP, TOP_PROB, UNIFORM, Printed
from latent_tokens.report import ORDER_NAMES, as_markdown

HEADINGS = (
    "task", "method", "order", "n", "changed", "paper", "ours", "of", "95 % interval", "samples", "each seed", "over seeds", "foreseen",
    "tokens", "tokens, paper's count", "training s", "sampling s", "commit",
)  # fmt: skip
MAY_BE_EMPTY = tuple(HEADINGS.index(name) for name in ("n", "changed", "foreseen"))
LEGEND = (
    "The interval is of all samples together (Wilson), the one over seeds of the mean over training seeds (Student's t). Tokens are relative to "
    "showing all that is masked. Seconds are of a machine that did other work too; a model's training counts in each of its lines."
)
AHEAD = (1, 4, 16)  # steps between a latent's prediction and its decoding

Row = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """A cell with its recipes, one a seed, and the rows that there are."""

    cell: Cell
    recipes: tuple[Recipe, ...]
    rows: tuple[Row, ...]

    @property
    def metric(self) -> str:
        return str(self.rows[0]["metric"])

    @property
    def by_seed(self) -> dict[int, float]:
        """The figure of each training seed: percent, or the soft loss of the large boards."""
        names = ["soft_loss" if self.cell.task == "sudoku-large" else row["metric"] for row in self.rows]
        return {row["train_seed"]: float(row[name]) for name, row in zip(names, self.rows, strict=True)}

    @property
    def values(self) -> list[float]:
        return list(self.by_seed.values())

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def of(self) -> str:
        """What the figures are: percent right by this metric, or a loss."""
        return "soft loss, nats" if self.cell.task == "sudoku-large" else f"{self.metric} %"

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
        return ", ".join(f"{100 * hit / seen:.0f} ({step} ahead)" for step, (hit, seen) in counts.items() if step in AHEAD and seen)

    @property
    def is_text(self) -> bool:
        return self.cell.task == "text"

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's of all samples together, in percent; it says nothing of how seeds differ. None for a loss."""
        if self.cell.task == "sudoku-large":
            return None
        low, high = wilson(self.mean / 100, sum(row["num_samples"] for row in self.rows))
        return 100 * low, 100 * high


def lines(recipes: Sequence[Recipe], found: Mapping[str, Row]) -> list[Line]:
    """The cells of an experiment in their order, with the rows of `found`, by hash, that are theirs."""
    cells = dict.fromkeys(recipe.cell for recipe in recipes)
    of_cell = {cell: tuple(recipe for recipe in recipes if recipe.cell == cell) for cell in cells}
    return [Line(cell, own, tuple(found[recipe.hash] for recipe in own if recipe.hash in found)) for cell, own in of_cell.items()]


def markdown(lines: Sequence[Line], experiment: str, scale: ScaleName, minutes: float) -> str:
    """The table of an experiment without empty columns, and under it the command that makes it and how long what is not there would take."""
    table = [HEADINGS, *map(cells_of, lines)]
    empty = {column for column in MAY_BE_EMPTY if not any(row[column] for row in table[1:])}
    shown = [[cell for column, cell in enumerate(row) if column not in empty] for row in table]
    missing = f"; what is not run takes about {minutes:.0f} minutes on this machine" if minutes else ""
    return f"{as_markdown(shown)}\n{LEGEND}\n\n`latent-tokens reproduce {experiment} --scale {scale}`{missing}\n"


def stand_in(line: Line) -> str:
    """What stands for the cell's task at this scale."""
    task = line.recipes[0].data.task
    return task if line.cell.problems is None else f"{task}, infilling puzzles"


def cells_of(line: Line) -> tuple[str, ...]:
    """One line of the table; where no seed was run it says so."""
    cell, shown = line.cell, printed(line.cell)
    about = (
        stand_in(line),
        cell.method,
        ORDER_NAMES[cell.order],
        str("" if cell.latents is None else cell.latents),
        cell.variant or "",
        "" if shown is None else cost(shown),
    )
    if not line.rows:
        return (*about, "not run", *("" for _ in HEADINGS[len(about) + 1 :]))
    interval = "" if line.interval is None else f"{line.interval[0]:.1f} - {line.interval[1]:.1f}"
    samples = f"{sum(row['num_samples'] for row in line.rows):,}"
    each = " ".join(f"{value:.1f}" for value in line.values)
    priced = ([row[name] for row in line.rows if row[name] is not None] for name in ("relative_cost", "paper_cost"))
    tokens = (f"{fmean(costs):.2f}x" if costs else "" for costs in priced)
    seconds = (f"{sum(row[name] for row in line.rows):,.0f}" for name in ("train_seconds", "evaluate_seconds"))
    seeds = "" if line.over_seeds is None else f"± {line.over_seeds:.1f}"
    commits = ", ".join(dict.fromkeys(str(row["made_with"]["commit"]) for row in line.rows))
    return (*about, f"{line.mean:.1f}", line.of, interval, samples, each, seeds, line.foreseen, *tokens, *seconds, commits)


def printed(cell: Cell) -> Printed | None:
    """What the paper prints in this cell, if it prints one."""
    if (cell.latents, cell.problems, cell.variant) != (None, None, None):
        return None
    found = (table.get(cell.task, {}).get((cell.method, cell.order)) for table in (TOP_PROB, UNIFORM, AR_MTP))
    return next((number for number in found if number is not None), None)


def cost(number: Printed) -> str:
    """A printed accuracy with its cost."""
    return f"{number.accuracy}" + (f" / {number.cost:.2f}x" if number.cost is not None else "")
