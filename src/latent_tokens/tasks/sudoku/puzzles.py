"""Sudoku as a text of two boards: the puzzle and its only solution (Shah et al., 2024; appendix G.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numba
import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import check_choice, is_whole
from latent_tokens.tasks.base import PAD, Keys, Scores, hash_rows, split_by_key
from latent_tokens.tasks.examples import Examples, Tokens, TokensLike, as_array, one_sequence
from latent_tokens.tasks.rng import shuffled, start_stream
from latent_tokens.tasks.sudoku.boards import NODES_PER_CELL, Sudoku
from latent_tokens.tasks.sudoku.deduction import deduce, sees
from latent_tokens.tasks.sudoku.grid import SYMBOLS, Cells, Grid, cells_in_words, fill_board, search


@numba.njit(cache=True)
def has_other(cells, cell, digit, unit_of, state, board):  # type: ignore[no-untyped-def]
    """Return whether a board with another digit in one cell agrees with the others.

    Only that cell of `cells` changes.
    """
    taken = np.uint64(1) << np.uint64(digit)
    for peer in range(len(cells)):
        if cells[peer] >= 0 and sees(peer, cell, unit_of):
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

    It stops at `clues`. With 0 the puzzle is minimal: without any of its clues, it has several
    solutions.
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
def dig_puzzles(puzzles, boards, unit_of, cells_of, clues, guessing, max_nodes, seed, first):  # type: ignore[no-untyped-def]
    """Write puzzle number first + i of the seed into line i, cells -1 where empty, and its board.

    Puzzles have `clues` clues, or a minimal set with 0. Without `guessing`, deduction solves them.
    Others are drawn again.
    """
    state, deduced = np.zeros(1, np.uint64), np.empty(boards.shape[1], np.int16)
    for line in range(len(boards)):
        start_stream(state, seed, first + line)
        puzzle, board = puzzles[line], boards[line]
        while True:
            fill_board(board, unit_of, max_nodes, state)
            puzzle[:] = board
            left = dig(puzzle, unit_of, clues, state)
            if clues in (0, left) and (guessing or deduce(puzzle, unit_of, cells_of, deduced)):
                break


LEAST_CLUES = {4: 4, 6: 8, 9: 21}  # by side. Digging a 9x9 board ends below 21 once in ten thousand


@dataclass(frozen=True)
class SudokuPuzzle:
    """[BOS] puzzle [SEP] solution, with digits 1..side and a token for an empty cell.

    With padding = "paper", [EOS] and PAD follow and are predicted too.

    Example:
        >>> TASKS["sudoku-6-puzzle"].generate(2, seed=0).tokens.shape
        (2, 74)
    """

    name: str
    box_rows: int
    box_columns: int
    num_train: int = 1_800_000
    clues: int | Literal["minimal"] = "minimal"  # the number of given cells
    guessing: Literal["never", "allowed"] = "never"  # deduction solves them, as in the original
    padding: Literal["none", "paper"] = "none"

    metric = "exact"

    def __post_init__(self) -> None:
        check_choice("guessing", self.guessing, ("never", "allowed"))
        check_choice("padding", self.padding, ("none", "paper"))
        check_choice("side", self.side, tuple(LEAST_CLUES))
        least, most = LEAST_CLUES[self.side], self.side**2 - 1
        if self.clues != "minimal" and not (is_whole(self.clues) and least <= self.clues <= most):
            raise ValueError(f"clues={self.clues}: must be 'minimal' or {least} to {most}")

    @cached_property
    def grid(self) -> Grid:
        """The geometry, and all that needs no tokens."""
        return Grid(self.box_rows, self.box_columns)

    @property
    def side(self) -> int:
        return self.grid.side

    @property
    def start(self) -> int:
        """Where the answer begins."""
        return self.side**2 + 2

    @property
    def length(self) -> int:
        end = 2 * self.side**2 + 2
        return end if self.padding == "none" else math.ceil((end + 1) / 64) * 64

    @property
    def vocab_size(self) -> int:
        return self.side + 5

    @property
    def symbols(self) -> tuple[str, ...]:
        return ("[PAD]", *SYMBOLS[: self.side], ".", "[SEP]", "[BOS]", "[EOS]")

    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Generate puzzles dug out of random boards."""
        puzzles, boards = np.empty((2, count, self.side**2), np.int16)
        clues = 0 if self.clues == "minimal" else self.clues
        dig_puzzles(
            puzzles, boards, self.grid.unit_of, self.grid.cells_of, clues, self.guessing == "allowed",
            NODES_PER_CELL * self.side**2, seed, first,
        )  # fmt: skip
        return self._examples(puzzles, boards)

    def _examples(self, puzzles: NDArray[np.int16], boards: NDArray[np.int16]) -> Examples:
        """Return examples from cells (N, cells), digits 0..side-1 or -1. An empty board becomes PAD."""
        empty, sep, bos, eos = (self.side + offset for offset in (1, 2, 3, 4))
        tokens = np.full((len(boards), self.length), PAD, np.uint8)
        tokens[:, 0], tokens[:, self.start - 1] = bos, sep
        tokens[:, 1 : self.start - 1] = np.where(puzzles < 0, empty, puzzles + 1)
        tokens[:, self.start : self.start + self.side**2] = boards + 1
        tokens[:, self.start + self.side**2 :][:, :1] = eos
        return Examples.of(tokens, known=self.start)

    def example(self, givens: Cells, solution: Cells | None = None) -> Examples:
        """Return one example from cells, digits 0..side-1 or -1. Raise ValueError as `Grid.solution` does."""
        return self._examples(givens[None], self.grid.solution(givens, solution)[None])

    def givens(self, tokens: Tokens) -> NDArray[np.int16]:
        """Return the prompt's cells (N, cells): digits 0..side-1, or -1 if empty."""
        cells = tokens[:, 1 : self.start - 1].astype(np.int16)
        return np.where((cells >= 1) & (cells <= self.side), cells - 1, np.int16(-1))

    def answers(self, tokens: Tokens) -> Tokens:
        """Return the answer's cells (N, cells): digits 0..side-1, or 255 if empty."""
        cells = tokens[:, self.start : self.start + self.side**2]
        return np.where((cells >= 1) & (cells <= self.side), cells - 1, 255).astype(np.uint8)

    def to_infill(self, examples: Examples, boards: Sudoku) -> Examples:
        """Return the puzzles as boards of a task whose givens are known."""
        return boards.infilling(self.answers(examples.tokens), self.givens(examples.tokens) >= 0)

    def keys(self, examples: Examples) -> Keys:
        """Return a key per board, so that puzzles of one board are in one split."""
        return np.asarray(hash_rows(self.answers(examples.tokens)))

    def splits(self, examples: Examples) -> NDArray[np.int8]:
        """Return the split of each example by its key."""
        return split_by_key(self.keys(examples))

    def encode(self, text: str) -> Examples:
        """Return a puzzle. `Grid.cells` reads the text."""
        givens = self.grid.cells(text)[None]
        return self._examples(givens, np.full_like(givens, -1))

    def count_solutions(self, problem: Examples, most: int = 2) -> int | None:
        """Return how many boards (at most `most`) agree with the puzzle, None if it takes too long."""
        return self.grid.count_solutions(self.givens(problem.tokens)[0], most)

    @property
    def answer_format(self) -> str:
        """The form of an answer in words."""
        return cells_in_words(self.side)

    def prompt(self, problem: Examples) -> str:
        """Return the puzzle row by row, which `encode` reads. An empty cell is a dot."""
        return self.grid.line(self.givens(problem.tokens)[0])

    def answered(self, problem: Examples, text: str) -> Examples:
        """Return a puzzle with a board. Raise ValueError if a cell has no digit."""
        return self._examples(self.givens(problem.tokens), self.grid.answer(text)[None])

    def decode(self, tokens: TokensLike) -> str:
        """Return the puzzle and its answer side by side, as framed grids."""
        tokens = one_sequence(tokens)
        puzzle = self.grid.draw(self.givens(tokens[None])[0]).splitlines()
        answer = self.grid.draw(self.answers(tokens[None])[0]).splitlines()
        return "\n".join(f"{left}     {right}" for left, right in zip(puzzle, answer, strict=True))

    def verify(self, tokens: TokensLike) -> list[str]:
        """Return the units of the answer that lack a digit, the changed givens, and a missing end."""
        tokens = one_sequence(tokens)
        givens, filled = self.givens(tokens[None])[0], self.answers(tokens[None])[0]
        changed = np.flatnonzero((givens >= 0) & (filled != givens)).tolist()
        errors = self.grid.incomplete(filled)
        errors += [
            f"{self.grid.cell_name(cell)} is given as {givens[cell] + 1}" for cell in changed
        ]
        if not self._ended(tokens[None])[0]:
            errors.append("the answer does not end after its last cell")
        return errors

    def score(self, tokens: TokensLike, truth: Examples | None = None) -> Scores:
        """Score samples: valid, and with stored solutions exact and cells (the share of empty cells)."""
        tokens = as_array(tokens)
        givens, filled = self.givens(tokens), self.answers(tokens)
        framed = self._ended(tokens)
        complete = (self.grid.distinct(filled) == self.side).all(1)
        valid = complete & ((givens < 0) | (filled == givens)).all(1) & framed
        figures = {"valid": valid.astype(np.float64)}
        if truth is not None:
            same = filled == self.answers(truth.tokens)
            figures["exact"] = (same.all(1) & framed).astype(np.float64)
            figures["cells"] = (same & (givens < 0)).sum(1) / (givens < 0).sum(1)
        return figures

    def _ended(self, tokens: Tokens) -> NDArray[np.bool_]:
        """Return which of N answers end at the right place, for a padding that predicts the end."""
        end = tokens[:, self.start + self.side**2 :][:, :1]
        return np.asarray(((end == self.side + 4) | (end == PAD)).all(1))
