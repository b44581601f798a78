"""A Sudoku grid: its units and names, boards and puzzles as text, and how many solutions a puzzle has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from latent_tokens.tasks.sudoku import solver

SYMBOLS = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ@"  # one character a digit, up to 36
MOST_NODES = 1_000_000  # a puzzle that needs more is given up

Cells = NDArray[np.int16]  # digits 0..side-1, or -1 where empty; what is out of range counts as empty


@dataclass(frozen=True)
class Grid:
    """Boxes of box_rows * box_columns; side * side cells, row by row."""

    box_rows: int
    box_columns: int

    @property
    def side(self) -> int:
        return self.box_rows * self.box_columns

    @property
    def num_cells(self) -> int:
        return self.side**2

    @cached_property
    def unit_of(self) -> NDArray[np.int64]:
        """The row, column and box of each cell: (cells, 3), numbered 0..3*side-1."""
        return solver.units(self.box_rows, self.box_columns)

    @cached_property
    def cells_of(self) -> NDArray[np.int64]:
        """The cells of each unit: (3 * side, side)."""
        return (
            self.unit_of.T.reshape(-1).argsort(kind="stable").reshape(3 * self.side, self.side)
            % self.num_cells
        )

    def distinct(self, boards: NDArray[np.generic]) -> NDArray[np.int64]:
        """Return the number of different digits in each unit of each board, (N, 3 * side)."""
        digits = boards.astype(np.int64)
        bits = np.where((digits >= 0) & (digits < self.side), np.int64(1) << digits.clip(0, self.side - 1), 0)
        return np.asarray(np.bitwise_count(np.bitwise_or.reduce(bits[:, self.cells_of], axis=2)), np.int64)

    def incomplete(self, cells: NDArray[np.generic]) -> list[str]:
        """Return the units of one board that lack a digit, by name."""
        return [
            self.unit_name(unit)
            for unit in np.flatnonzero(self.distinct(cells[None])[0] < self.side).tolist()
        ]

    def cells(self, text: str) -> Cells:
        """Return the cells of a puzzle, -1 if empty.

        The text has characters (1-9, then A-Z and @, 0 or . for an empty cell) or numbers separated by
        spaces, row by row. Frames of |, - and + are skipped.

        Raises:
            ValueError: the length or a symbol is wrong, or a unit has equal digits.
        """
        digits = self.read(text)
        conflicts = self.conflicts(digits)
        if conflicts:
            raise ValueError(f"puzzle contradicts itself: {'; '.join(conflicts)}")
        return digits

    def read(self, text: str) -> Cells:
        """Return the same for a puzzle that may contradict itself."""
        symbols = symbols_of(text, {self.num_cells})
        return np.array([self._digit(symbol, cell) for cell, symbol in enumerate(symbols)], np.int16)

    def clashing(self, cells: NDArray[np.generic]) -> NDArray[np.bool_]:
        """Return which cells have no digit, or one that a unit of theirs has twice."""
        digits = cells.astype(np.int64)
        empty = (digits < 0) | (digits >= self.side)
        alike = (digits[self.cells_of][:, :, None] == digits[self.cells_of][:, None, :]).sum(
            2
        ) > 1  # (units, side)
        clashing = empty.copy()
        clashing[self.cells_of[alike]] = True
        return clashing

    def _digit(self, symbol: str, cell: int) -> int:
        """Return the digit 0..side-1 of a symbol, or -1 for an empty cell."""
        if symbol in (".", "0"):
            return -1
        letter = SYMBOLS.find(symbol.upper()) if len(symbol) == 1 else -1
        digit = int(symbol) - 1 if symbol.isascii() and symbol.isdigit() else letter
        if not 0 <= digit < self.side:
            allowed = f"1-{min(self.side, 9)}" + (
                f", A-{SYMBOLS[self.side - 1]} or numbers to {self.side}" if self.side > 9 else ""
            )
            raise ValueError(
                f"{symbol!r} in {self.cell_name(cell)}: must be {allowed}, or 0 or . for an empty cell"
            )
        return digit

    def conflicts(self, cells: Cells) -> list[str]:
        """Return each pair of cells of a unit with the same digit, in words."""
        conflicts = []
        for unit, members in enumerate(self.cells_of):
            seen: dict[int, int] = {}
            for cell in members[cells[members] >= 0].tolist():
                digit = int(cells[cell])
                if digit in seen:
                    pair = f"{self.cell_name(seen[digit])} and {self.cell_name(cell)}"
                    conflicts.append(f"{digit + 1} twice in {self.unit_name(unit)}, at {pair}")
                seen[digit] = cell
        return conflicts

    def count_solutions(self, givens: Cells, most: int = 2) -> int | None:
        """Return how many boards (at most `most`) agree with the givens, None if it takes too long."""
        num_solutions, completed, _ = self._search(givens, most)
        return num_solutions if completed else None

    def solution(self, givens: Cells, stored: Cells | None = None) -> Cells:
        """Return the only board that agrees with the givens.

        Raises:
            ValueError: There is none, or more than one, or it is not the stored one.
        """
        if (givens >= 0).all():
            raise ValueError("puzzle has nothing to solve: every cell is given")
        num_solutions, completed, _ = self._search(givens, 2)
        if not completed:
            raise ValueError(f"puzzle is too hard to search through ({MOST_NODES:,} steps)")
        if not num_solutions:
            raise ValueError(", ".join(["puzzle has no solution", *self.conflicts(givens)[:1]]))
        if num_solutions > 1:
            raise ValueError("puzzle has several solutions")
        board = self._search(givens, 1)[2]
        if stored is not None and (board != stored).any():
            raise ValueError(
                f"the solution given is wrong in {self.cell_name(int((board != stored).argmax()))}"
            )
        return board

    def _search(self, cells: Cells, most: int) -> tuple[int, bool, Cells]:
        """Return (number of solutions, whether the search was completed, a solution if one was asked for)."""
        board = np.empty_like(cells)
        num_solutions, completed = solver.search(
            cells, self.unit_of, most, MOST_NODES, np.zeros(1, np.uint64), board
        )
        return int(num_solutions), bool(completed), board

    def draw(self, cells: NDArray[np.generic]) -> str:
        """Return the board as a framed grid. A cell without a digit is a dot."""
        width = len(str(self.side))
        symbols = [
            (str(digit + 1) if 0 <= digit < self.side else ".").rjust(width)
            for digit in cells.astype(np.int64).tolist()
        ]
        rule = "+".join("-" * ((width + 1) * self.box_columns + 1) for _ in range(self.box_rows))
        lines = []
        for row in range(self.side):
            if row and row % self.box_rows == 0:
                lines.append(rule[1:-1])
            parts = [
                symbols[row * self.side + start :][: self.box_columns]
                for start in range(0, self.side, self.box_columns)
            ]
            lines.append(" | ".join(" ".join(part) for part in parts))
        return "\n".join(lines)

    def unit_name(self, unit: int) -> str:
        """Return row, column or box and its number, from 1."""
        return f"{('row', 'column', 'box')[unit // self.side]} {unit % self.side + 1}"

    def cell_name(self, cell: int) -> str:
        """Return the cell's row and column, from 1."""
        return f"row {cell // self.side + 1} column {cell % self.side + 1}"


def symbols_of(text: str, lengths: set[int]) -> list[str]:
    """Return the symbols of a puzzle without frames. Raise ValueError if their number is not in `lengths`."""
    lines = [line for line in text.strip().splitlines() if not re.fullmatch(r"[-+|=\s]*", line)]
    words = " ".join(lines).replace("|", " ").split()
    numbers = words if all(len(word) <= 2 for word in words) else []  # longer words are rows of characters
    for symbols in (numbers, list("".join(words))):
        if len(symbols) in lengths:
            return symbols
    allowed = " or ".join(
        f"{length} ({round(length**0.5)}x{round(length**0.5)})" for length in sorted(lengths)
    )
    raise ValueError(
        f"puzzle of {len(''.join(words))} cells: must have {allowed}, row by row, 0 or . for an empty cell"
    )
