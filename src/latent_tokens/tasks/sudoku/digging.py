"""Sudoku puzzles with one solution, dug out of random boards; numba kernels."""

from __future__ import annotations

import numba
import numpy as np

from latent_tokens.tasks.rng import shuffled, start_stream
from latent_tokens.tasks.sudoku.deduction import deduce
from latent_tokens.tasks.sudoku.solver import fill_board, search


@numba.njit(cache=True)
def has_other(cells, cell, digit, unit_of, state, board):  # type: ignore[no-untyped-def]
    """Return whether a board with another digit in one cell agrees with the others.

    Only that cell of `cells` changes.
    """
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
            num_solutions, _ = search(cells, unit_of, 1, np.iinfo(np.int64).max, state, board)
            if num_solutions:
                return True
    return False


@numba.njit(cache=True)
def dig(cells, unit_of, clues, state):  # type: ignore[no-untyped-def]
    """Empty cells of a full board in random order while its solution stays unique.

    It stops at `clues`. With 0 the puzzle is minimal: without any of its clues, it has several solutions.
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
    """Write puzzle number first + i of the seed into line i, cells -1 where empty, and its board.

    Puzzles have `clues` clues, or a minimal set with 0. Without `guessing`, deduction solves them. Others
    are drawn again.
    """
    state, deduced = np.zeros(1, np.uint64), np.empty(boards.shape[1], np.int16)
    for line in range(len(boards)):
        start_stream(state, seed, first + line)
        puzzle, board = puzzles[line], boards[line]
        while True:
            fill_board(board, unit_of, max_nodes, state)
            puzzle[:] = board
            left = dig(puzzle, unit_of, clues, state)
            if clues in (0, left) and (guessing or deduce(puzzle, unit_of, deduced)):
                break
