"""How different boards are from each other, and how random they are as Latin squares."""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray


def share_of_distinct(boards: NDArray[np.integer]) -> float:
    """Return the share of boards, (N, cells), that differ from all others. There must be one at least."""
    _, counts = np.unique(boards, axis=0, return_counts=True)
    return float((counts == 1).sum() / len(boards))


def num_intercalates(boards: NDArray[np.integer], side: int) -> NDArray[np.int64]:
    """Return the number of intercalates of each board, (N,): of its 2x2 Latin subsquares.

    Two rows and two columns form one if their cells on each diagonal are equal. Renaming digits and moving
    rows or columns does not change the number.

    Args:
        boards: boards of side * side cells, row by row, (N, cells). No column has a digit twice.
        side: the number of digits.
    """
    squares = boards.reshape(-1, side, side)
    counts = np.zeros(len(squares), np.int64)
    for first, second in combinations(range(side), 2):
        equal = squares[:, first, :, None] == squares[:, second, None, :]  # (N, columns, columns)
        is_intercalate = equal & equal.transpose(0, 2, 1)
        counts += is_intercalate.sum((1, 2)) // 2  # each pair of columns, in both orders
    return counts
