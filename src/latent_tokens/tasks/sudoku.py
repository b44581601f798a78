"""Sudoku of any box: boards to learn, puzzles to infill, and the verifier."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from latent_tokens.tasks import pattern, solver
from latent_tokens.tasks.base import Examples, Keys, Known, Scores, Tokens, hash_rows, split_by_key

T = TypeVar("T", bound=np.generic)

SYMBOLS = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ@"  # one character a digit, up to 36
NODES_PER_CELL = 12  # a search for a board that needs more begins anew
MOST_NODES = 1_000_000  # a puzzle that needs more is given up
PAPER_LENGTHS = {9: 128, 36: 1536}  # by side (table of datasets); others to the next 64


@dataclass(frozen=True)
class Sudoku:
    """Boards of side box_rows * box_columns as row-major cells 0..side-1; meets the Task protocol (appendix F.2).

    With padding = "paper", [BOS] cells [EOS] and more EOS up to the paper's length, all of them predicted.
    """

    name: str
    box_rows: int
    box_columns: int
    num_train: int = 100_000
    source: Literal["solver", "pattern"] = "solver"  # decision 9: numbers from the two are not comparable
    padding: Literal["none", "paper"] = "none"

    @property
    def side(self) -> int:
        return self.box_rows * self.box_columns

    @property
    def num_cells(self) -> int:
        return self.side**2

    @property
    def length(self) -> int:
        if self.padding == "none":
            return self.num_cells
        return PAPER_LENGTHS.get(self.side, math.ceil((self.num_cells + 2) / 64) * 64)

    @property
    def vocab_size(self) -> int:
        return self.side if self.padding == "none" else self.side + 2

    @property
    def note(self) -> str | None:
        """What a user of the boards should know."""
        if self.source == "pattern":
            return "all pattern boards are one board up to symmetry: splits share no board, but test transformations, not boards"
        return "there are 288 boards of 4x4 in all" if self.side == 4 else None

    @property
    def metric(self) -> str:
        return "valid"

    @cached_property
    def unit_of(self) -> NDArray[np.int64]:
        """The row, column and box of each cell: (cells, 3), numbered 0..3*side-1."""
        return solver.units(self.box_rows, self.box_columns)

    @cached_property
    def cells_of(self) -> NDArray[np.int64]:
        """The cells of each unit: (3 * side, side)."""
        return self.unit_of.T.reshape(-1).argsort(kind="stable").reshape(3 * self.side, self.side) % self.num_cells

    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Valid boards, nothing known. The pattern of 9x9 shuffles all bands alike, as the paper's release does (52.3 M boards)."""
        boards = np.empty((count, self.num_cells), np.uint8)
        if self.source == "solver":
            solver.fill_boards(boards, self.unit_of, seed, first, NODES_PER_CELL * self.num_cells)
        else:
            pattern.pattern_boards(boards, self.box_rows, self.box_columns, self.side == 9, seed, first)
        return Examples.of(self._framed(boards), known=0)

    def example(self, givens: NDArray[np.int16], solution: NDArray[np.int16] | None = None) -> Examples:
        """A puzzle as a board to infill: the solution, its givens known. Cells are digits 0..side-1, or -1 where empty.

        Raises ValueError where the puzzle has not exactly one solution, or it is not the one that is handed in.
        """
        board = self.solution(givens, solution).astype(np.uint8)[None]
        return Examples.of(self._framed(board), self._frame_known(givens >= 0))

    def _framed(self, boards: Tokens) -> Tokens:
        """Boards (N, cells) as sequences (N, L)."""
        if self.padding == "none":
            return boards
        tokens = np.full((len(boards), self.length), self.side + 1, np.uint8)
        tokens[:, 0] = self.side
        tokens[:, 1 : self.num_cells + 1] = boards
        return tokens

    def _frame_known(self, known: Known) -> Known:
        """(1, L): the known cells in their places; the frame is not known."""
        start = 0 if self.padding == "none" else 1
        return np.pad(known[None], ((0, 0), (start, self.length - self.num_cells - start)))

    def boards(self, tokens: NDArray[T]) -> NDArray[T]:
        """The cells (N, cells) of sequences (N, L), or what stands for them."""
        return tokens if self.padding == "none" else tokens[:, 1 : self.num_cells + 1]

    def well_framed(self, tokens: Tokens) -> NDArray[np.bool_]:
        """Which of N sequences are [BOS] digits [EOS] with padding = "paper"; all of them without."""
        if self.padding == "none":
            return np.ones(len(tokens), np.bool_)
        framed: NDArray[np.bool_] = (tokens[:, 0] == self.side) & (tokens[:, self.num_cells + 1] == self.side + 1)
        return framed & (self.boards(tokens) < self.side).all(1)

    def keys(self, examples: Examples) -> Keys:
        """By board."""
        return np.asarray(hash_rows(np.ascontiguousarray(self.boards(examples.tokens))))

    def splits(self, examples: Examples) -> NDArray[np.int8]:
        """By key."""
        return split_by_key(self.keys(examples))

    def score(self, tokens: Tokens, truth: Examples | None = None) -> Scores:
        """valid: whether all 3 * side units are complete. soft_loss: the sum over units of 1 - (distinct digits) / side (appendix F.5), 3 (side - 1)
        for a wrong frame. exact, cells: where truth has known cells, the agreement of the others with it."""
        framed = self.well_framed(tokens)
        complete = self._distinct(self.boards(tokens)) / self.side
        soft_loss = np.where(framed, (1 - complete).sum(1), 3 * (self.side - 1))
        figures = {"valid": (framed & (complete == 1).all(1)).astype(np.float64), "soft_loss": soft_loss}
        if truth is not None and truth.known.any():
            same, asked = self.boards(tokens) == self.boards(truth.tokens), ~self.boards(truth.known)
            figures |= {"exact": (same | ~asked).all(1).astype(np.float64), "cells": (same & asked).sum(1) / asked.sum(1)}
        return figures

    def verify(self, tokens: Tokens) -> list[str]:
        """The units of one board that lack a digit, by name; none where it is valid."""
        broken = np.flatnonzero(self._distinct(self.boards(tokens[None]))[0] < self.side)
        frame = [] if self.well_framed(tokens[None])[0] else ["the frame is not [BOS] digits [EOS]"]
        return frame + [f"{self.unit_name(unit)} lacks a digit" for unit in broken.tolist()]

    def _distinct(self, tokens: Tokens) -> NDArray[np.int64]:
        """How many different digits each unit of each board holds: (N, 3 * side)."""
        digits = tokens.astype(np.int64)
        bits = np.where((digits >= 0) & (digits < self.side), np.int64(1) << digits.clip(0, self.side - 1), 0)
        return np.asarray(np.bitwise_count(np.bitwise_or.reduce(bits[:, self.cells_of], axis=2)), np.int64)

    def encode(self, text: str) -> Examples:
        """A puzzle to infill, as `cells` reads it."""
        givens = self.cells(text)
        return Examples.of(self._framed(givens.clip(0).astype(np.uint8)[None]), self._frame_known(givens >= 0))

    def cells(self, text: str) -> NDArray[np.int16]:
        """The cells of a puzzle, -1 where empty, from characters (1-9, then A-Z and @; 0 or . is empty) or from numbers set apart by blanks.

        Row by row; frames of |, - and + are passed over. Raises ValueError for a wrong length, a wrong symbol or two equal digits in a unit.
        """
        symbols = symbols_of(text, {self.num_cells})
        digits = np.array([self._digit(symbol, cell) for cell, symbol in enumerate(symbols)], np.int16)
        conflicts = self.conflicts(digits)
        if conflicts:
            raise ValueError(f"puzzle contradicts itself: {'; '.join(conflicts)}")
        return digits

    def _digit(self, symbol: str, cell: int) -> int:
        """The digit 0..side-1 that a symbol means, or -1 for an empty cell."""
        if symbol in (".", "0"):
            return -1
        letter = SYMBOLS.find(symbol.upper()) if len(symbol) == 1 else -1
        digit = int(symbol) - 1 if symbol.isascii() and symbol.isdigit() else letter
        if not 0 <= digit < self.side:
            allowed = f"1-{min(self.side, 9)}" + (f", A-{SYMBOLS[self.side - 1]} or numbers to {self.side}" if self.side > 9 else "")
            raise ValueError(f"{symbol!r} in {self.cell_name(cell)}: must be {allowed}, or 0 or . for an empty cell")
        return digit

    def conflicts(self, cells: NDArray[np.int16]) -> list[str]:
        """Each pair of cells of a unit that hold the same digit, in words."""
        found = []
        for unit, members in enumerate(self.cells_of):
            seen: dict[int, int] = {}
            for cell in members[cells[members] >= 0].tolist():
                digit = int(cells[cell])
                if digit in seen:
                    pair = f"{self.cell_name(seen[digit])} and {self.cell_name(cell)}"
                    found.append(f"{digit + 1} twice in {self.unit_name(unit)}, at {pair}")
                seen[digit] = cell
        return found

    def count_solutions(self, problem: Examples, most: int = 2) -> int | None:
        """How many boards (at most `most`) agree with the known cells; None where the search ran too long to tell."""
        tokens, known = self.boards(problem.tokens)[0], self.boards(problem.known)[0]
        found, completed, _ = self._search(np.where(known, tokens.astype(np.int16), np.int16(-1)), most)
        return found if completed else None

    def solution(self, givens: NDArray[np.int16], stored: NDArray[np.int16] | None = None) -> NDArray[np.int16]:
        """The only board that agrees with the givens. Raises ValueError where there is none or more, or it is not the stored one."""
        found, completed, _ = self._search(givens, 2)
        if not completed:
            raise ValueError(f"puzzle is too hard to search through ({MOST_NODES:,} steps)")
        if not found:
            raise ValueError("; ".join(["puzzle has no solution", *self.conflicts(givens)[:1]]))
        if found > 1:
            raise ValueError("puzzle has several solutions")
        board = self._search(givens, 1)[2]
        if stored is not None and (board != stored).any():
            raise ValueError(f"the solution given is wrong in {self.cell_name(int((board != stored).argmax()))}")
        return board

    def _search(self, cells: NDArray[np.int16], most: int) -> tuple[int, bool, NDArray[np.int16]]:
        """(boards found, whether the search was completed, the board where one was looked for and found)."""
        board = np.empty_like(cells)
        found, completed = solver.search(cells, self.unit_of, most, MOST_NODES, np.zeros(1, np.uint64), board)
        return int(found), bool(completed), board

    def decode(self, tokens: Tokens) -> str:
        """The board as a framed grid; a cell that holds no digit shows as a dot."""
        width = len(str(self.side))
        cells = [(str(t + 1) if t < self.side else ".").rjust(width) for t in self.boards(tokens[None])[0].tolist()]
        rule = "+".join("-" * ((width + 1) * self.box_columns + 1) for _ in range(self.box_rows))
        lines = []
        for row in range(self.side):
            if row and row % self.box_rows == 0:
                lines.append(rule[1:-1])
            parts = [cells[row * self.side + start :][: self.box_columns] for start in range(0, self.side, self.box_columns)]
            lines.append(" | ".join(" ".join(part) for part in parts))
        return "\n".join(lines)

    def unit_name(self, unit: int) -> str:
        """row, column or box and its number, from 1."""
        return f"{('row', 'column', 'box')[unit // self.side]} {unit % self.side + 1}"

    def cell_name(self, cell: int) -> str:
        """The cell's row and column, from 1."""
        return f"row {cell // self.side + 1} column {cell % self.side + 1}"


SIZES = (
    Sudoku("sudoku-4", 2, 2),
    Sudoku("sudoku-6", 2, 3),
    Sudoku("sudoku-9", 3, 3),
    Sudoku("sudoku-16", 4, 4),
    Sudoku("sudoku-36", 6, 6, source="pattern"),
)


def read_puzzle(text: str) -> tuple[Sudoku, Examples]:
    """The Sudoku whose size the text's length says, and the puzzle as `Sudoku.encode` reads it."""
    by_length = {task.length: task for task in SIZES}
    task = by_length[len(symbols_of(text, set(by_length)))]
    return task, task.encode(text)


def symbols_of(text: str, lengths: set[int]) -> list[str]:
    """The cells of a puzzle as it is written, frames left out. Raises ValueError where their number is none of `lengths`."""
    lines = [line for line in text.strip().splitlines() if not re.fullmatch(r"[-+|=\s]*", line)]
    words = " ".join(lines).replace("|", " ").split()
    numbers = words if all(len(word) <= 2 for word in words) else []  # longer words are rows of characters
    for symbols in (numbers, list("".join(words))):
        if len(symbols) in lengths:
            return symbols
    allowed = " or ".join(f"{length} ({round(length**0.5)}x{round(length**0.5)})" for length in sorted(lengths))
    raise ValueError(f"puzzle of {len(''.join(words))} cells: must have {allowed}, row by row, 0 or . for an empty cell")
