"""Cells: the numbers of tables and figures. Experiments list cells, claims compare two of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from latent_tokens.configs import OrderName
from latent_tokens.paper.design.scales import Candidates, Latents, Scale

PUZZLES = ("sudoku-puzzle", "zebra", "countdown")  # tasks whose problems are the same for every seed
MODELS: tuple[tuple[str, Latents], ...] = (("scdm", 0), ("scdm", "all"), ("sidm", None), ("mdm", None))


@dataclass(frozen=True)
class Cell:
    """One number of a table or figure: a method on a task of the paper, decoded in an order.

    `latents` is their number (None: the method's own). `problems` names another task, whose puzzles a model
    of boards infills. `k` is the number of candidates (None: the task's own). A cell with a k of its own is
    measured on more samples.
    """

    task: str
    method: str
    order: OrderName
    latents: Latents = None
    problems: str | None = None
    k: Candidates | None = None

    @property
    def legacy_name(self) -> str | None:
        """The name of its k in rows and tables of every version."""
        return None if self.k is None else f"k={self.k}"

    @property
    def entries(self) -> dict[str, object]:
        """The cell as rows have it."""
        return {
            "task": self.task,
            "method": self.method,
            "order": self.order,
            "latents": self.latents,
            "problems": self.problems,
            "variant": self.legacy_name,
        }


@dataclass(frozen=True)
class Experiment:
    """The title of a figure, the cells at a scale, and a note under the table."""

    title: str
    cells: Callable[[Scale], list[Cell]]
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """A claim that one cell is better than another. `source` is the place in the paper that states it."""

    text: str
    better: Cell
    worse: Cell
    source: str
