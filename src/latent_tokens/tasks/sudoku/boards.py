"""Sudoku of any box: boards to learn, puzzles to infill, and the verifier."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import check_choice
from latent_tokens.tasks.base import Keys, Scores, hash_rows, split_by_key
from latent_tokens.tasks.examples import Examples, Known, Tokens, TokensLike, as_array, one_sequence
from latent_tokens.tasks.sudoku.grid import (
    SYMBOLS,
    Cells,
    Grid,
    cells_in_words,
    fill_boards,
    pattern_boards,
    symbols_of,
)

T = TypeVar("T", bound=np.generic)

NODES_PER_CELL = 12  # a search that needs more starts again
PAPER_LENGTHS = {9: 128, 36: 1536}  # by side (table of datasets); others to the next 64


@dataclass(frozen=True)
class Sudoku:
    """Boards of side box_rows * box_columns, as cells 0..side-1 row by row (appendix G.2).

    With padding = "paper", [BOS] cells [EOS] and more EOS up to the paper's length, all of them
    predicted.
    """

    name: str
    box_rows: int
    box_columns: int
    num_train: int = 100_000
    # D-9, board sources: their results do not compare
    source: Literal["solver", "pattern"] = "solver"
    padding: Literal["none", "paper"] = "none"

    metric = "valid"

    def __post_init__(self) -> None:
        check_choice("source", self.source, ("solver", "pattern"))
        check_choice("padding", self.padding, ("none", "paper"))

    @cached_property
    def grid(self) -> Grid:
        """The geometry, and all that needs no tokens."""
        return Grid(self.box_rows, self.box_columns)

    @property
    def side(self) -> int:
        return self.grid.side

    @property
    def num_cells(self) -> int:
        return self.grid.num_cells

    @property
    def length(self) -> int:
        if self.padding == "none":
            return self.num_cells
        return PAPER_LENGTHS.get(self.side, math.ceil((self.num_cells + 2) / 64) * 64)

    @property
    def vocab_size(self) -> int:
        return self.side if self.padding == "none" else self.side + 2

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*SYMBOLS[: self.side], "[BOS]", "[EOS]")[: self.vocab_size]

    @property
    def note(self) -> str | None:
        """A note on the boards for manifests."""
        if self.source == "pattern":
            symmetric = "all pattern boards are one board up to symmetry"
            return f"{symmetric}: splits share no board, but test transformations, not boards"
        return "there are 288 boards of 4x4 in all" if self.side == 4 else None

    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Generate valid boards with nothing given.

        The pattern of 9x9 shuffles all bands alike, as the paper's release does (52.3 M boards).
        """
        boards = np.empty((count, self.num_cells), np.uint8)
        if self.source == "solver":
            fill_boards(boards, self.grid.unit_of, seed, first, NODES_PER_CELL * self.num_cells)
        else:
            pattern_boards(boards, self.box_rows, self.box_columns, self.side == 9, seed, first)
        return Examples.of(self._framed(boards), known=0)

    def example(self, givens: Cells, solution: Cells | None = None) -> Examples:
        """Return a puzzle as a board to infill. Cells are digits 0..side-1, or -1 if empty.

        Raise ValueError as `Grid.solution` does.
        """
        board = self.grid.solution(givens, solution).astype(np.uint8)[None]
        return self.infilling(board, givens[None] >= 0)

    def infilling(self, boards: Tokens, known: Known) -> Examples:
        """Return boards (N, cells) as examples with some known cells (N, cells). The frame is masked."""
        start = 0 if self.padding == "none" else 1
        frame = (start, self.length - self.num_cells - start)
        return Examples.of(self._framed(boards), np.pad(known, ((0, 0), frame)))

    def _framed(self, boards: Tokens) -> Tokens:
        """Return boards (N, cells) as sequences (N, L)."""
        if self.padding == "none":
            return boards
        tokens = np.full((len(boards), self.length), self.side + 1, np.uint8)
        tokens[:, 0] = self.side
        tokens[:, 1 : self.num_cells + 1] = boards
        return tokens

    def boards(self, tokens: NDArray[T]) -> NDArray[T]:
        """Return the cells (N, cells) of sequences (N, L), or of other values in their place."""
        return tokens if self.padding == "none" else tokens[:, 1 : self.num_cells + 1]

    def well_framed(self, tokens: Tokens) -> NDArray[np.bool_]:
        """Return which of N sequences have [BOS] and [EOS] around the cells, or all without padding."""
        if self.padding == "none":
            return np.ones(len(tokens), np.bool_)
        is_framed = (tokens[:, 0] == self.side) & (tokens[:, self.num_cells + 1] == self.side + 1)
        return np.asarray(is_framed)

    def keys(self, examples: Examples) -> Keys:
        """Return a key per board."""
        return np.asarray(hash_rows(np.ascontiguousarray(self.boards(examples.tokens))))

    def splits(self, examples: Examples) -> NDArray[np.int8]:
        """Return the split of each example by its key."""
        return split_by_key(self.keys(examples))

    def score(self, tokens: TokensLike, truth: Examples | None = None) -> Scores:
        """Score samples: valid (all 3 * side units are complete), soft_loss, exact and cells.

        soft_loss is the sum over units of 1 - (distinct digits) / side (appendix G.5), or 3 (side - 1)
        for a wrong frame, as in the release. exact, cells: where truth has known cells, the agreement of the
        others with it.
        """
        tokens = as_array(tokens)
        framed = self.well_framed(tokens)
        complete = self.grid.distinct(self.boards(tokens)) / self.side
        soft_loss = np.where(framed, (1 - complete).sum(1), 3 * (self.side - 1))
        figures = {
            "valid": (framed & (complete == 1).all(1)).astype(np.float64),
            "soft_loss": soft_loss,
        }
        if truth is not None and truth.known.any():
            same = self.boards(tokens) == self.boards(truth.tokens)
            unknown = ~self.boards(truth.known)
            figures["exact"] = (framed & (same | ~unknown).all(1)).astype(np.float64)
            figures["cells"] = (same & unknown).sum(1) / unknown.sum(1)
        return figures

    def verify(self, tokens: TokensLike) -> list[str]:
        """Return the units of one board that lack a digit, by name. A valid board has none."""
        tokens = one_sequence(tokens)
        is_framed = self.well_framed(tokens[None])[0]
        frame = [] if is_framed else ["the cells are not between [BOS] and [EOS]"]
        return frame + self.grid.incomplete(self.boards(tokens[None])[0])

    def encode(self, text: str) -> Examples:
        """Return a puzzle to infill. `Grid.cells` reads the text."""
        givens = self.grid.cells(text)
        return self.infilling(givens.clip(0).astype(np.uint8)[None], givens[None] >= 0)

    def count_solutions(self, problem: Examples, most: int = 2) -> int | None:
        """Return how many boards (at most `most`) agree with the given cells, None if it takes too long."""
        tokens, known = self.boards(problem.tokens)[0], self.boards(problem.known)[0]
        return self.grid.count_solutions(
            np.where(known, tokens.astype(np.int16), np.int16(-1)), most
        )

    @property
    def answer_format(self) -> str:
        """The form of an answer in words."""
        return cells_in_words(self.side)

    def prompt(self, problem: Examples) -> str:
        """Return the given cells row by row, which `encode` reads. An empty cell is a dot."""
        cells = self.boards(np.where(problem.known, problem.tokens, 255))
        return self.grid.line(cells[0])

    def answered(self, problem: Examples, text: str) -> Examples:
        """Return a filled board. Raise ValueError if a cell has no digit."""
        return Examples.of(
            self._framed(self.grid.answer(text)[None].astype(np.uint8)), problem.known
        )

    def decode(self, tokens: TokensLike) -> str:
        """Return the board as a framed grid. A cell without a digit is a dot."""
        tokens = one_sequence(tokens)
        return self.grid.draw(self.boards(tokens[None])[0])


BOARD_SIZES = (
    Sudoku("sudoku-4", 2, 2),
    Sudoku("sudoku-6", 2, 3),
    Sudoku("sudoku-9", 3, 3),
    Sudoku("sudoku-16", 4, 4),
    Sudoku("sudoku-36", 6, 6, source="pattern"),
)
# The paper's large boards, made small
PATTERN_9 = Sudoku("sudoku-9-pattern", 3, 3, source="pattern")


def read_puzzle(text: str) -> tuple[Sudoku, Examples]:
    """Return the Sudoku of the size that a text has, and its puzzle as `Sudoku.encode` returns it."""
    by_size = {task.num_cells: task for task in BOARD_SIZES}
    task = by_size[len(symbols_of(text, set(by_size)))]
    return task, task.encode(text)
