"""Sudoku of any box: boards to learn, puzzles to infill, and the verifier."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from latent_tokens.tasks import solver
from latent_tokens.tasks.base import Examples, Known, Tokens

SYMBOLS = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ@"  # one character a digit, up to 36
NODES_PER_CELL = 12  # a search for a board that needs more begins anew
MOST_NODES = 1_000_000  # a puzzle that needs more is given up


@dataclass(frozen=True)
class Sudoku:
    """Boards of side box_rows * box_columns as row-major cells 0..side-1; meets the Task protocol (appendix F.2)."""

    name: str
    box_rows: int
    box_columns: int
    source: Literal["solver", "pattern"] = "solver"  # decision 9: numbers from the two are not comparable

    @property
    def side(self) -> int:
        return self.box_rows * self.box_columns

    @property
    def length(self) -> int:
        return self.side**2

    @property
    def vocab_size(self) -> int:
        return self.side

    @property
    def metric(self) -> str:
        return "valid"

    @cached_property
    def unit_of(self) -> NDArray[np.int64]:
        """The row, column and box of each cell: (L, 3), numbered 0..3*side-1."""
        return solver.units(self.box_rows, self.box_columns)

    @cached_property
    def cells_of(self) -> NDArray[np.int64]:
        """The cells of each unit: (3 * side, side)."""
        return self.unit_of.T.reshape(-1).argsort(kind="stable").reshape(3 * self.side, self.side) % self.length

    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Valid boards, nothing known. The pattern of 9x9 shuffles all bands alike, as the paper's release does (52.3 M boards)."""
        boards = np.empty((count, self.length), np.uint8)
        if self.source == "solver":
            solver.fill_boards(boards, self.unit_of, seed, first, NODES_PER_CELL * self.length)
        else:
            solver.pattern_boards(boards, self.box_rows, self.box_columns, self.side == 9, seed, first)
        return Examples(boards, np.zeros(boards.shape, np.bool_))

    def score(self, tokens: Tokens) -> dict[str, NDArray[np.float64]]:
        """valid: whether all 3 * side units are complete. soft_loss: the sum over units of 1 - (distinct digits) / side (appendix F.5)."""
        complete = self._distinct(tokens) / self.side
        return {"valid": (complete == 1).all(1).astype(np.float64), "soft_loss": (1 - complete).sum(1)}

    def verify(self, tokens: Tokens) -> list[str]:
        """The units of one board (L,) that lack a digit, by name; none where it is valid."""
        return [self.unit_name(unit) for unit in np.flatnonzero(self._distinct(tokens[None])[0] < self.side).tolist()]

    def _distinct(self, tokens: Tokens) -> NDArray[np.int64]:
        """How many different digits each unit of each board holds: (N, 3 * side)."""
        digits = tokens.astype(np.int64)
        bits = np.where((digits >= 0) & (digits < self.side), np.int64(1) << digits.clip(0, self.side - 1), 0)
        return np.asarray(np.bitwise_count(np.bitwise_or.reduce(bits[:, self.cells_of], axis=2)), np.int64)

    def encode(self, text: str) -> tuple[Tokens, Known]:
        """A puzzle from characters (1-9, then A-Z and @; 0 or . is empty) or from numbers set apart by blanks; row by row.

        Frames of |, - and + are passed over. Raises ValueError for a wrong length, a wrong symbol or two equal digits in a unit.
        """
        symbols = symbols_of(text, {self.length})
        digits = np.array([self._digit(symbol, cell) for cell, symbol in enumerate(symbols)])
        tokens, known = digits.clip(0).astype(np.uint8), digits >= 0
        conflicts = self.conflicts(tokens, known)
        if conflicts:
            raise ValueError(f"puzzle contradicts itself: {'; '.join(conflicts)}")
        return tokens, known

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

    def conflicts(self, tokens: Tokens, known: Known) -> list[str]:
        """Each pair of known cells of a unit that hold the same digit, in words."""
        found = []
        for unit, cells in enumerate(self.cells_of):
            seen: dict[int, int] = {}
            for cell in cells[known[cells]].tolist():
                digit = int(tokens[cell])
                if digit in seen:
                    pair = f"{self.cell_name(seen[digit])} and {self.cell_name(cell)}"
                    found.append(f"{digit + 1} twice in {self.unit_name(unit)}, at {pair}")
                seen[digit] = cell
        return found

    def count_solutions(self, tokens: Tokens, known: Known, most: int = 2) -> int | None:
        """How many boards (at most `most`) agree with the known cells; None where the search ran too long to tell."""
        cells = np.where(known, tokens.astype(np.int16), np.int16(-1))
        found, completed = solver.search(cells, self.unit_of, most, MOST_NODES, np.zeros(1, np.uint64), np.empty_like(cells))
        return int(found) if completed else None

    def decode(self, tokens: Tokens) -> str:
        """The board as a framed grid; a cell that holds no digit shows as a dot."""
        width = len(str(self.side))
        cells = [(str(t + 1) if t < self.side else ".").rjust(width) for t in tokens.tolist()]
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


def read_puzzle(text: str) -> tuple[Sudoku, Tokens, Known]:
    """The Sudoku whose size the text's length says, and the puzzle as `Sudoku.encode` reads it."""
    by_length = {task.length: task for task in SIZES}
    task = by_length[len(symbols_of(text, set(by_length)))]
    return task, *task.encode(text)


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
