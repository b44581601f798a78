"""The diversity of valid boards: a rise in valid boards may come from a few easy ones."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from latent_tokens.core.decoding import Step
from latent_tokens.evaluation.rows import Row, Watched
from latent_tokens.tasks import Sudoku, Task
from latent_tokens.tasks.examples import Tokens
from latent_tokens.tasks.sudoku.boards import num_intercalates, share_of_distinct

NUM_REFERENCE = 1_000  # boards of the task, whose intercalates are the reference
REFERENCE_SEED = 0


class Diversity:
    """A watcher of `evaluate` that adds the diversity of the valid boards to its row.

    `distinct_share` is the share of the valid boards that differ from all others, and `intercalates` is their
    mean number of 2x2 Latin subsquares. Both are missing if no board is valid. `reference_intercalates` is
    their mean number in boards that the task generates.
    """

    def __init__(self, task: Task) -> None:
        if not isinstance(task, Sudoku):
            raise ValueError(f"task={task.name}: has no boards to compare. Use a task of Sudoku boards.")
        self.task = task
        self.valid: list[Tokens] = []  # of each batch

    def begin(self, rows: int, length: int) -> None:
        """Prepare for a batch, which takes nothing."""

    def __call__(self, step: Step) -> None:
        """Ignore a step: the samples are enough."""

    def end(self, tokens: Tokens, right: NDArray[np.bool_]) -> None:
        """Keep the valid boards of a batch."""
        self.valid.append(self.task.boards(tokens[right]))

    def measured(self) -> Watched:
        """Return the entries that are added to the row."""
        reference = self.task.boards(self.task.generate(NUM_REFERENCE, REFERENCE_SEED).tokens)
        watched: Watched = {"reference_intercalates": self._mean_intercalates(reference)}
        boards = np.concatenate(self.valid)
        if len(boards):
            watched["distinct_share"] = round(share_of_distinct(boards), 4)
            watched["intercalates"] = self._mean_intercalates(boards)
        return watched

    def _mean_intercalates(self, boards: Tokens) -> float:
        return round(float(num_intercalates(boards, self.task.side).mean()), 4)


def columns_of(rows: Sequence[Row]) -> tuple[str, str]:
    """Return the distinct boards in percent, and the intercalates with their reference, as means over seeds.

    Both are empty if no row has them.
    """
    with_boards = [row for row in rows if "intercalates" in row]
    if not with_boards:
        return "", ""
    distinct = fmean(row["distinct_share"] for row in with_boards)
    intercalates = fmean(row["intercalates"] for row in with_boards)
    reference = fmean(row["reference_intercalates"] for row in with_boards)
    return f"{distinct:.1f}", f"{intercalates:.2f} ({reference:.2f})"
