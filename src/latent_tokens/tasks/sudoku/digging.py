"""Sudoku puzzles with one solution, dug out of random boards; numba kernels."""

from __future__ import annotations

import numba
import numpy as np

from latent_tokens.tasks.rng import shuffled, start_stream
from latent_tokens.tasks.sudoku.deduction import deduce
from latent_tokens.tasks.sudoku.solver import fill_board, search


@numba.njit(cache=True)
def has_other(cells, cell, digit, unit_of, state, board):  # type: ignore[no-untyped-def]
    """Whether some board agrees with the cells but holds another digit in this one; `cells` comes back as it was but for this cell."""
    taken = np.uint64(1) << np.uint64(digit)
    for peer in range(len(cells)):
        shares = (
            unit_of[peer, 0] == unit_of[cell, 0]
            or unit_of[peer, 1] == unit_of[cell, 1]
            or unit_of[peer, 2] == unit_of[cell, 2]
        )
        if shares and peer != cell and cells[peer] >= 0:
            taken |= np.uint64(1) << np.uint64(cells[peer])
    for other in range(unit_of[-1, 0] + 1):
        if not taken >> np.uint64(other) & np.uint64(1):
            cells[cell] = other
            found, _ = search(cells, unit_of, 1, np.iinfo(np.int64).max, state, board)
            if found:
                return True
    return False


@numba.njit(cache=True)
def dig(cells, unit_of, clues, state):  # type: ignore[no-untyped-def]
    """How many clues are left of a full board when cells were emptied in random order, each where the solution stays the only one.

    Stops at `clues`; with 0 the puzzle is minimal: none of its clues can go.
    """
    left = len(cells)
    board = np.empty_like(cells)
    for cell in shuffled(len(cells), state):
        if left == clues:
            break
        digit = cells[cell]
        if has_other(cells, cell, digit, unit_of, state, board):
            cells[cell] = digit
        else:
            cells[cell] = -1
            left -= 1
    return left


@numba.njit(cache=True)
def dig_puzzles(puzzles, boards, unit_of, clues, guessing, max_nodes, seed, first):  # type: ignore[no-untyped-def]
    """Writes puzzle number first + i of the seed into line i, cells -1 where empty, and its board.

    Of `clues` clues each, or minimal with 0; without `guessing` those that deduction solves. What is not so is drawn anew.
    """
    state, found = np.zeros(1, np.uint64), np.empty(boards.shape[1], np.int16)
    for line in range(len(boards)):
        start_stream(state, seed, first + line)
        puzzle, board = puzzles[line], boards[line]
        while True:
            fill_board(board, unit_of, max_nodes, state)
            puzzle[:] = board
            left = dig(puzzle, unit_of, clues, state)
            if clues in (0, left) and (guessing or deduce(puzzle, unit_of, found)):
                break
