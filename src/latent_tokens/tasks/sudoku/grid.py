"""A Sudoku grid: its units and names, boards and puzzles as text, and how many solutions a puzzle has."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np
from numpy.typing import NDArray

from latent_tokens.tasks.rng import count_bits, next_random, pick_bit, shuffled, start_stream

SYMBOLS = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ@"  # one character a digit, up to 36
MOST_NODES = 1_000_000  # a puzzle that needs more is given up

# Digits 0..side-1, or -1 where empty; what is out of range counts as empty
Cells = NDArray[np.int16]


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
        row, column = np.divmod(np.arange(self.num_cells), self.side)
        box = row // self.box_rows * self.box_rows + column // self.box_columns
        return np.stack([row, self.side + column, 2 * self.side + box], axis=1)

    @cached_property
    def cells_of(self) -> NDArray[np.int64]:
        """The cells of each unit: (3 * side, side)."""
        cells = self.unit_of.T.reshape(-1).argsort(kind="stable") % self.num_cells
        return cells.reshape(3 * self.side, self.side)

    def distinct(self, boards: NDArray[np.generic]) -> NDArray[np.int64]:
        """Return the number of different digits in each unit of each board, (N, 3 * side)."""
        digits = boards.astype(np.int64)
        bits = np.where(
            (digits >= 0) & (digits < self.side), np.int64(1) << digits.clip(0, self.side - 1), 0
        )
        return np.asarray(
            np.bitwise_count(np.bitwise_or.reduce(bits[:, self.cells_of], axis=2)), np.int64
        )

    def incomplete(self, cells: NDArray[np.generic]) -> list[str]:
        """Return the units of one board that lack a digit, in words."""
        lacking = np.flatnonzero(self.distinct(cells[None])[0] < self.side).tolist()
        return [f"{self.unit_name(unit)} lacks a digit" for unit in lacking]

    def cells(self, text: str) -> Cells:
        """Return the cells of a puzzle, -1 if empty.

        The text has characters (1-9, then A-Z and @, 0 or . for an empty cell) or numbers separated
        by spaces, row by row. Frames of |, - and + are skipped.

        Raises:
            ValueError: the length or a symbol is wrong, or a unit has equal digits.
        """
        digits = self._digits(text)
        conflict = self.conflict(digits)
        if conflict:
            raise ValueError(f"puzzle contradicts itself: {conflict}")
        return digits

    def answer(self, text: str) -> Cells:
        """Return the cells of a filled board, which may be wrong. Raise ValueError if one is empty."""
        digits = self._digits(text)
        if (digits < 0).any():
            raise ValueError(f"{self.cell_name(int((digits < 0).argmax()))} is empty")
        return digits

    def line(self, cells: NDArray[np.generic]) -> str:
        """Return a board as one line, which `cells` reads. A cell without a digit is a dot."""
        digits = cells.astype(np.int64).tolist()
        return "".join(SYMBOLS[digit] if 0 <= digit < self.side else "." for digit in digits)

    def clashing(self, cells: NDArray[np.generic]) -> NDArray[np.bool_]:
        """Return which cells have no digit, or one that a unit of theirs has twice."""
        digits = cells.astype(np.int64)
        clashing = (digits < 0) | (digits >= self.side)
        in_units = digits[self.cells_of]  # (units, side)
        repeated = (in_units[:, :, None] == in_units[:, None, :]).sum(2) > 1
        clashing[self.cells_of[repeated]] = True
        return clashing

    def _digits(self, text: str) -> Cells:
        """Return the digit of each cell of a text, which may contradict each other, -1 if empty."""
        symbols = enumerate(symbols_of(text, {self.num_cells}))
        return np.array([self._digit(symbol, cell) for cell, symbol in symbols], np.int16)

    def _digit(self, symbol: str, cell: int) -> int:
        """Return the digit 0..side-1 of a symbol, or -1 for an empty cell."""
        if symbol in (".", "0"):
            return -1
        letter = SYMBOLS.find(symbol.upper()) if len(symbol) == 1 else -1
        digit = int(symbol) - 1 if symbol.isascii() and symbol.isdigit() else letter
        if not 0 <= digit < self.side:
            letters = (
                f", A-{SYMBOLS[self.side - 1]} or numbers to {self.side}" if self.side > 9 else ""
            )
            allowed = f"1-{min(self.side, 9)}{letters}, or 0 or . for an empty cell"
            raise ValueError(f"{symbol!r} in {self.cell_name(cell)}: must be {allowed}")
        return digit

    def conflict(self, cells: Cells) -> str | None:
        """Return the first pair of cells of a unit with the same digit in words, or None."""
        for unit, members in enumerate(self.cells_of):
            seen: dict[int, int] = {}
            for cell in members[cells[members] >= 0].tolist():
                digit = int(cells[cell])
                if digit in seen:
                    pair = f"{self.cell_name(seen[digit])} and {self.cell_name(cell)}"
                    return f"{digit + 1} twice in {self.unit_name(unit)}, at {pair}"
                seen[digit] = cell
        return None

    def count_solutions(self, givens: Cells, most: int = 2) -> int | None:
        """Return how many boards (at most `most`) agree with the givens, None if it takes too long."""
        return self._search(givens, most)[0]

    def solution(self, givens: Cells, stored: Cells | None = None) -> Cells:
        """Return the only board that agrees with the givens.

        Raises:
            ValueError: There is none, or more than one, or it is not the stored one.
        """
        if (givens >= 0).all():
            raise ValueError("puzzle has nothing to solve: every cell is given")
        count = self._search(givens, 2)[0]
        if count is None:
            raise ValueError(f"puzzle is too hard to search through ({MOST_NODES:,} steps)")
        if count != 1:
            raise ValueError(f"puzzle has {'several solutions' if count else 'no solution'}")
        board = self._search(givens, 1)[1]
        if stored is not None and (board != stored).any():
            wrong = self.cell_name(int((board != stored).argmax()))
            raise ValueError(f"the solution given is wrong in {wrong}")
        return board

    def _search(self, cells: Cells, most: int) -> tuple[int | None, Cells]:
        """Return the number of solutions, None if the search took too long, and the last of `most`."""
        board = np.empty_like(cells)
        state = np.zeros(1, np.uint64)
        count, completed = search(cells, self.unit_of, most, MOST_NODES, state, board)
        return int(count) if completed else None, board

    def draw(self, cells: NDArray[np.generic]) -> str:
        """Return the board as a framed grid. A cell without a digit is a dot."""
        width = len(str(self.side))
        digits = cells.astype(np.int64).reshape(self.side, -1, self.box_columns).tolist()
        rule = "+".join(["-" * ((width + 1) * self.box_columns + 1)] * self.box_rows)[1:-1]
        lines = []
        for row, boxes in enumerate(digits):
            if row and row % self.box_rows == 0:
                lines.append(rule)
            texts = [
                " ".join(
                    (str(digit + 1) if 0 <= digit < self.side else ".").rjust(width)
                    for digit in box
                )
                for box in boxes
            ]
            lines.append(" | ".join(texts))
        return "\n".join(lines)

    def unit_name(self, unit: int) -> str:
        """Return row, column or box and its number, from 1."""
        return f"{('row', 'column', 'box')[unit // self.side]} {unit % self.side + 1}"

    def cell_name(self, cell: int) -> str:
        """Return the cell's row and column, from 1."""
        return f"row {cell // self.side + 1} column {cell % self.side + 1}"


def cells_in_words(side: int) -> str:
    """Return the form of an answer with every cell, in words."""
    symbols = f"1-{side}" if side <= 9 else "1-9, then A-Z"
    return f"the {side**2} cells row by row, as {symbols}"


def symbols_of(text: str, lengths: set[int]) -> list[str]:
    """Return the symbols of a puzzle without frames. Raise ValueError if their number is not in `lengths`."""
    lines = [line for line in text.strip().splitlines() if not re.fullmatch(r"[-+|=\s]*", line)]
    words = " ".join(lines).replace("|", " ").split()
    # Longer words are rows of characters
    numbers = words if all(len(word) <= 2 for word in words) else []
    for symbols in (numbers, list("".join(words))):
        if len(symbols) in lengths:
            return symbols
    sizes = [f"{length} ({math.isqrt(length)}x{math.isqrt(length)})" for length in sorted(lengths)]
    problem = f"puzzle of {len(''.join(words))} cells: must have {' or '.join(sizes)}"
    raise ValueError(f"{problem}, row by row, 0 or . for an empty cell")


@numba.njit(cache=True)
def in_units(cell, sets, unit_of):  # type: ignore[no-untyped-def]
    """Return the digits that the sets of a cell's three units have together."""
    return sets[unit_of[cell, 0]] | sets[unit_of[cell, 1]] | sets[unit_of[cell, 2]]


@numba.njit(cache=True)
def choose_cell(empty, num_empty, unit_of, used, full, masks, once, twice):  # type: ignore[no-untyped-def]
    """Return (index into empty, its candidates): a naked single, else a hidden one, else the fewest.

    If a cell has no candidate, there are none.
    """
    for i in range(num_empty):
        cell = empty[i]
        mask = full & ~in_units(cell, used, unit_of)
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
        hidden = mask & in_units(cell, once, unit_of)
        if hidden:
            return i, hidden & (~hidden + np.uint64(1))
        size = count_bits(mask)
        if size < fewest:
            best, fewest = i, size
    return best, masks[best]


@numba.njit(cache=True, nogil=True)
def search(cells, unit_of, most, max_nodes, state, solution):  # type: ignore[no-untyped-def]
    """Return (the number of solutions, at most `most`, whether the search was completed).

    Digits are tried in random order. `solution` receives the last solution if there are `most`. It
    is overwritten by a search that continues after the first.
    """
    side = unit_of[-1, 0] + 1
    full = (np.uint64(1) << np.uint64(side)) - np.uint64(1)
    used = np.zeros(3 * side, np.uint64)
    once = np.zeros(3 * side, np.uint64)
    twice = np.zeros(3 * side, np.uint64)
    masks = np.zeros(len(cells), np.uint64)
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
    left = np.zeros(num_empty + 1, np.uint64)  # by depth, the digits still to try
    depth = num_solutions = nodes = 0
    descending = True
    while depth >= 0:
        if descending and depth == num_empty:
            num_solutions += 1
            if num_solutions == most:
                return num_solutions, True
            descending = False
            depth -= 1
            continue

        # Choose a cell, or take the digit of the last one back.
        last = num_empty - depth - 1
        if descending:
            nodes += 1
            if nodes > max_nodes:
                return num_solutions, False
            i, left[depth] = choose_cell(empty, last + 1, unit_of, used, full, masks, once, twice)
            empty[i], empty[last] = empty[last], empty[i]
        cell = empty[last]
        if not descending:
            for u in unit_of[cell]:
                used[u] &= ~(np.uint64(1) << np.uint64(solution[cell]))

        # Write the next digit, if one is left.
        descending = left[depth] != 0
        if descending:
            bit = pick_bit(left[depth], state)
            left[depth] &= ~bit
            solution[cell] = count_bits(bit - np.uint64(1))
            for u in unit_of[cell]:
                used[u] |= bit
        depth += 1 if descending else -1
    return num_solutions, True


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

    Digits, rows, bands, columns and stacks are shuffled, and a board with square boxes may be
    transposed.
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
                boards[line, cell] = digits[
                    (box_columns * (r % box_rows) + r // box_rows + c) % side
                ]
