"""Sudoku boards by shuffling one cyclic pattern, as in the paper's release (D-9, board sources)."""

from __future__ import annotations

import numba
import numpy as np

from latent_tokens.tasks.rng import next_random, shuffled, start_stream


@numba.njit(cache=True)
def line_order(groups, size, alike, state):  # type: ignore[no-untyped-def]
    """Return a random order of lines that keeps groups together, with one inner order if `alike`."""
    outer, inner = shuffled(groups, state), shuffled(size, state)
    order = np.empty(groups * size, np.int64)
    for g in range(groups):
        if g > 0 and not alike:
            inner = shuffled(size, state)
        for i in range(size):
            order[g * size + i] = outer[g] * size + inner[i]
    return order


@numba.njit(cache=True)
def pattern_boards(boards, box_rows, box_columns, alike, seed, first):  # type: ignore[no-untyped-def]
    """Write one shuffled cyclic pattern into each row of `boards`.

    Digits, rows, bands, columns and stacks are shuffled, and a board with square boxes may be transposed.
    """
    side = box_rows * box_columns
    state = np.zeros(1, np.uint64)
    for line in range(len(boards)):
        start_stream(state, seed, first + line)
        digits = shuffled(side, state)
        rows = line_order(box_columns, box_rows, alike, state)
        columns = line_order(box_rows, box_columns, alike, state)
        transpose = box_rows == box_columns and next_random(state) & np.uint64(1)
        for i in range(side):
            for j in range(side):
                r, c = rows[i], columns[j]
                cell = j * side + i if transpose else i * side + j
                boards[line, cell] = digits[(box_columns * (r % box_rows) + r // box_rows + c) % side]
