"""Sudoku by depth-first search, fewest candidates first, with hidden singles. Numba kernels.

A board is int16[N*N] of digits 0..N-1, or -1 where empty. A set of digits is the bits of a uint64.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from latent_tokens.tasks.rng import count_bits, pick_bit, shuffled, start_stream


def units(box_rows: int, box_columns: int) -> NDArray[np.int64]:
    """Return the row, column and box of each cell as unit numbers in 0..3N-1, int64[N*N, 3]."""
    side = box_rows * box_columns
    row, column = np.divmod(np.arange(side * side), side)
    box = row // box_rows * box_rows + column // box_columns
    return np.stack([row, side + column, 2 * side + box], axis=1)


@numba.njit(cache=True)
def choose_cell(empty, num_empty, unit_of, used, full, masks, once, twice):  # type: ignore[no-untyped-def]
    """Return (index into empty, its candidates): a naked single, else a hidden one, else the fewest.

    If a cell has no candidate, there are none.
    """
    for i in range(num_empty):
        cell = empty[i]
        mask = full & ~(used[unit_of[cell, 0]] | used[unit_of[cell, 1]] | used[unit_of[cell, 2]])
        if mask & (mask - np.uint64(1)) == 0:
            return i, mask
        masks[i] = mask
    once[:] = 0
    twice[:] = 0
    for i in range(num_empty):
        cell, mask = empty[i], masks[i]
        for j in range(3):
            u = unit_of[cell, j]
            twice[u] |= once[u] & mask
            once[u] |= mask
    for u in range(len(used)):
        if once[u] | used[u] != full:
            return 0, np.uint64(0)
        once[u] &= ~twice[u]
    best, fewest = 0, 65
    for i in range(num_empty):
        cell, mask = empty[i], masks[i]
        hidden = mask & (once[unit_of[cell, 0]] | once[unit_of[cell, 1]] | once[unit_of[cell, 2]])
        if hidden:
            return i, hidden & (~hidden + np.uint64(1))
        size = count_bits(mask)
        if size < fewest:
            best, fewest = i, size
    return best, masks[best]


@numba.njit(cache=True, nogil=True)
def search(cells, unit_of, most, max_nodes, state, solution):  # type: ignore[no-untyped-def]
    """Return (the number of solutions, at most `most`, whether the search was completed).

    Digits are tried in random order. `solution` receives the last solution if there are `most`. It is
    overwritten by a search that continues after the first.
    """
    side = unit_of[-1, 0] + 1
    full = (np.uint64(1) << np.uint64(side)) - np.uint64(1)
    used = np.zeros(3 * side, np.uint64)
    once, twice, masks = (
        np.zeros(3 * side, np.uint64),
        np.zeros(3 * side, np.uint64),
        np.zeros(len(cells), np.uint64),
    )
    empty = np.zeros(len(cells), np.int64)
    num_empty = 0
    solution[:] = cells
    for cell in range(len(cells)):
        if cells[cell] < 0:
            empty[num_empty] = cell
            num_empty += 1
        else:
            bit = np.uint64(1) << np.uint64(cells[cell])
            for u in unit_of[cell]:
                if used[u] & bit:
                    return 0, True
                used[u] |= bit
    stack_cell = np.zeros(num_empty + 1, np.int64)
    stack_left = np.zeros(num_empty + 1, np.uint64)
    total, depth, num_solutions, nodes = num_empty, 0, 0, 0
    descending = True
    while True:
        if descending:
            if depth == total:
                num_solutions += 1
                if num_solutions == most:
                    return num_solutions, True
                descending = False
                depth -= 1
                if depth < 0:
                    return num_solutions, True
                continue
            nodes += 1
            if nodes > max_nodes:
                return num_solutions, False
            i, mask = choose_cell(empty, total - depth, unit_of, used, full, masks, once, twice)
            last = total - depth - 1
            empty[i], empty[last] = empty[last], empty[i]
            stack_cell[depth], stack_left[depth] = empty[last], mask
        else:
            cell = stack_cell[depth]
            bit = np.uint64(1) << np.uint64(solution[cell])
            for u in unit_of[cell]:
                used[u] &= ~bit
        mask = stack_left[depth]
        if mask == 0:
            descending = False
            depth -= 1
            if depth < 0:
                return num_solutions, True
            continue
        cell = stack_cell[depth]
        bit = pick_bit(mask, state)
        stack_left[depth] = mask & ~bit
        digit = count_bits(bit - np.uint64(1))
        solution[cell] = digit
        for u in unit_of[cell]:
            used[u] |= bit
        depth += 1
        descending = True


@numba.njit(cache=True)
def fill_board(board, unit_of, max_nodes, state):  # type: ignore[no-untyped-def]
    """Write a random valid board. The first row is random. A search that takes too long starts again."""
    side = unit_of[-1, 0] + 1
    cells = np.empty(len(board), np.int16)
    while True:
        cells[:] = -1
        cells[:side] = shuffled(side, state)
        num_solutions, _ = search(cells, unit_of, 1, max_nodes, state, board)
        if num_solutions:
            return


@numba.njit(cache=True)
def fill_boards(boards, unit_of, seed, first, max_nodes):  # type: ignore[no-untyped-def]
    """Write random valid boards into the rows of `boards`. Row i is board number first + i of the seed."""
    state, board = np.zeros(1, np.uint64), np.empty(boards.shape[1], np.int16)
    for line in range(len(boards)):
        start_stream(state, seed, first + line)
        fill_board(board, unit_of, max_nodes, state)
        boards[line] = board
