"""The entropy of Sudoku boards from the solver: the fewest nats per cell that a model of them can have."""

from __future__ import annotations

import math

import numpy as np

from latent_tokens.tasks import Sudoku
from latent_tokens.tasks.base import hash_rows

NATS_PER_CELL = {"sudoku-6": 0.4691}
"""The entropy of boards, by task: `entropy_per_cell` of 2,000,000 boards of seed 5.

Equally likely boards would have ln(28,200,960) / 36 = 0.4765. The solver draws some boards more often.
"""


def entropy_per_cell(task: Sudoku, count: int, seed: int) -> float:
    """Return the estimated entropy of the boards that a task generates, in nats per cell.

    The first row is random, so that a board with its digits renamed is as likely. The estimate is ln(side!)
    and the entropy of boards with the first row 0, 1, 2, ..., with the correction of Miller and Madow.

    Args:
        task: the task of boards, without padding.
        count: the number of boards, many for each of those that are different.
        seed: of the boards.
    """
    boards = task.generate(count, seed).tokens.astype(np.int64)
    new_digit = boards[:, : task.side].argsort(1)
    renamed = np.take_along_axis(new_digit, boards, 1).astype(np.uint8)
    counts = np.unique(hash_rows(renamed), return_counts=True)[1]
    shares = counts / count
    entropy = float(-(shares * np.log(shares)).sum()) + (len(counts) - 1) / (2 * count)
    return (math.lgamma(task.side + 1) + entropy) / task.num_cells
