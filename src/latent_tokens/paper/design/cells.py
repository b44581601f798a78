"""Cells: the numbers of tables and figures. Experiments list cells, claims compare two of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from latent_tokens.configs import OrderName
from latent_tokens.paper.design.scales import Latents, Scale

OURS = "ours"
PUZZLES = ("sudoku-puzzle", "zebra", "countdown")  # tasks whose problems are the same for every seed
ORDERS: tuple[OrderName, ...] = ("uniform", "top_prob")
MODELS: tuple[tuple[str, Latents], ...] = (("scdm", 0), ("scdm", "all"), ("sidm", None), ("mdm", None))
WITH_LATENTS: tuple[tuple[str, Latents], ...] = (("scdm", "all"), ("mdm", None))

TokenAxis = Literal["trained", "decoded"]
"""A number of tokens: those that training has processed, or those of one sample."""


@dataclass(frozen=True)
class Cell:
    """One number of a table or figure: a method on a task of the paper, decoded in an order.

    `latents` is their number (None: the method's own).

    `problems` names another task, whose puzzles a model of boards infills. A `variant` (VARIANTS) changes
    one thing, and is measured on more samples, except for puzzles at the paper scale.
    """

    task: str
    method: str
    order: OrderName
    latents: Latents = None
    problems: str | None = None
    variant: str | None = None


@dataclass(frozen=True)
class Experiment:
    """The title of a figure, the cells at a scale, and a note under the table.

    `over` are the numbers of tokens on the horizontal axes. Without them the cells decide on the axis.
    An experiment `of_likelihood` compares the exact likelihood of held-out text, or of boards `in_nats`.
    """

    title: str
    cells: Callable[[Scale], list[Cell]]
    note: str = ""
    over: tuple[TokenAxis, ...] = ()
    of_likelihood: bool = False
    in_nats: bool = False


@dataclass(frozen=True)
class Claim:
    """A claim that one cell is better than another, or worse by less than a margin in its unit.

    `source` is the place in the paper that prints it, with its words, or OURS.
    """

    text: str
    better: Cell
    worse: Cell
    source: str = OURS
    margin: float = 0


def boards(method: str, order: OrderName, latents: Latents, variant: str) -> Cell:
    """Return a cell of an ablation: generated boards."""
    return Cell("sudoku-gen", method, order, latents, variant=variant)
