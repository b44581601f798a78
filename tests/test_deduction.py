"""Solving without guessing: never wrong, each strategy on its position, and at least as strong as singles."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from latent_tokens.tasks.sudoku import grid as solver
from latent_tokens.tasks.sudoku.deduction import (
    deduce,
    locked_candidates,
    naked_pairs,
    naked_triplets,
    unique_rectangles,
    xy_wings,
)

GRIDS = {box: solver.Grid(*box) for box in ((2, 2), (2, 3), (3, 3))}
SMALL = st.sampled_from([(2, 3), (3, 3)])
SEEDS = st.integers(0, 2**32)


def strike(strategy, candidates, grid):
    """Return the result of the kernel, which removes candidates in place."""
    arguments = {naked_pairs: [grid.cells_of], naked_triplets: [grid.cells_of], xy_wings: [grid.unit_of]}
    return strategy(candidates, *arguments.get(strategy, [grid.unit_of, grid.cells_of]))


def deduced(cells, grid):
    solution = np.empty_like(cells)
    return deduce(cells, grid.unit_of, grid.cells_of, solution), solution


def filled(grid, seed):
    """Return a random board of a size."""
    boards = np.empty((1, grid.num_cells), np.int16)
    solver.fill_boards(boards, grid.unit_of, seed, 0, 12 * grid.num_cells)
    return boards[0]


def dug(board, grid, seed, tries):
    """The board without those of `tries` random cells that it can lose and still be the only solution."""
    cells = board.copy()
    for cell in np.random.default_rng(seed).permutation(len(board))[:tries]:
        cells[cell] = -1
        if grid.count_solutions(cells) != 1:
            cells[cell] = board[cell]
    return cells


@given(SMALL, SEEDS, st.integers(0, 81))
@settings(max_examples=25)
def test_deduced_cells_equal_the_solution(box, seed, tries):
    grid = GRIDS[box]
    board = filled(grid, seed)
    complete, solution = deduced(dug(board, grid, seed, tries), grid)
    found = solution >= 0
    assert (solution[found] == board[found]).all()
    assert complete == found.all()


ANY_CANDIDATES = st.sampled_from([naked_pairs, naked_triplets, locked_candidates, xy_wings])


@given(ANY_CANDIDATES, SMALL, SEEDS, st.floats(0.05, 0.5))
def test_strategies_never_strike_the_solution(strategy, box, seed, share):
    """From any candidates that include the solution. The unique rectangle needs those of a puzzle."""
    grid = GRIDS[box]
    board = filled(grid, seed)
    digits = np.arange(grid.side, dtype=np.uint64)
    is_candidate = np.random.default_rng(seed).random((len(board), grid.side)) < share
    is_candidate |= board[:, None] == digits
    candidates = (is_candidate.astype(np.uint64) << digits).sum(1, dtype=np.uint64)
    before = candidates.copy()
    removed = strike(strategy, candidates, grid)
    assert removed == (candidates != before).any()
    assert (candidates >> board.astype(np.uint64) & np.uint64(1)).all()


def block(rows, columns, but=""):
    """Return cells as "rc", counted from 1, of all named rows and columns, without those in `but`."""
    return {row + column for row, column in product(rows, columns)} - set(but.split())


ALL = "123456789"
# Cells have all nine candidates except those in a position. A position lists candidates, then removed digits.
POSITIONS = {
    naked_pairs: {
        "in a row": ([("11 15", "12")], block("1", ALL, "11 15"), "12"),
        "in a column": ([("11 91", "89")], block(ALL, "1", "11 91"), "89"),
        "in a box": ([("55 66", "35")], block("456", "456", "55 66"), "35"),
        "in both": ([("78 79", "35")], block("7", ALL, "78 79") | block("789", "789", "78 79"), "35"),
        "none: apart": ([("11 45", "12")], set(), ""),
        "none: three digits": ([("11", "12"), ("15", "13"), ("19", "123")], set(), ""),
    },
    naked_triplets: {
        "in a row": ([("11", "12"), ("14", "23"), ("17", "13")], block("1", ALL, "11 14 17"), "123"),
        "in a column": ([("12 42 92", "789")], block(ALL, "2", "12 42 92"), "789"),
        "in a box": ([("99", "12"), ("88", "126"), ("77", "16")], block("789", "789", "99 88 77"), "126"),
        "none: apart": ([("11 14 44", "123")], set(), ""),
        "none: four digits": ([("11", "12"), ("14", "23"), ("17", "34")], set(), ""),
    },
    locked_candidates: {
        "pointing along a row": ([(block("23", "123"), "12346789")], block("1", "456789"), "5"),
        "pointing along a column": ([(block("456", "46"), "12345678")], block("123789", "5"), "9"),
        "claiming from a row": ([(block("5", "123456"), "23456789")], block("46", "789"), "1"),
        "claiming from a column": ([(block("456789", "9"), "13456789")], block("123", "78"), "2"),
        "none": ([(block("2", "123") | block("5", "123"), "12346789")], set(), ""),
    },
    xy_wings: {
        "along lines": ([("11", "12"), ("15", "13"), ("51", "23")], {"55"}, "3"),
        "box and row": (
            [("11", "12"), ("15", "13"), ("22", "23")],
            block("1", "23") | block("2", "456"),
            "3",
        ),
        "none: pivot apart": ([("44", "12"), ("15", "13"), ("51", "23")], set(), ""),
        "none: one end apart": ([("11", "12"), ("15", "13"), ("44", "23")], set(), ""),
        "none: no common digit": ([("11", "12"), ("15", "13"), ("51", "24")], set(), ""),
        "none: same ends": ([("11", "12"), ("15", "13"), ("51", "13")], set(), ""),
        "none: three in the pivot": ([("11", "123"), ("15", "13"), ("51", "23")], set(), ""),
    },
    unique_rectangles: {
        "over two boxes below each other": ([("11 12 41", "12")], {"42"}, "12"),
        "over two boxes side by side": ([("24 14 21", "79")], {"11"}, "79"),
        "whose fourth corner has one of the two": ([("99 79 96", "12"), ("76", "234")], {"76"}, "2"),
        "none: four boxes": ([("11 14 41", "12")], set(), ""),
        "none: one box": ([("11 12 21", "12")], set(), ""),
        "none: other digits": ([("11 12", "12"), ("41", "13")], set(), ""),
        "none: a third digit": ([("11 12", "12"), ("41", "123")], set(), ""),
        "none: a corner has its digit": ([("11 12", "12"), ("41", "")], set(), ""),
        "none: the fourth corner has its digit": ([("11 12 41", "12"), ("42", "")], set(), ""),
    },
}
CASES = {
    f"{strategy.__name__}, {name}": (strategy, *position)
    for strategy, positions in POSITIONS.items()
    for name, position in positions.items()
}


@pytest.mark.parametrize(("strategy", "left", "losing", "digits"), CASES.values(), ids=CASES)
def test_strategy_strikes_what_its_position_implies_only(strategy, left, losing, digits):
    before = {cell: set(ALL) for cell in block(ALL, ALL)}
    for cells, candidates in left:
        before |= {cell: set(candidates) for cell in (cells.split() if isinstance(cells, str) else cells)}
    after = {cell: have - set(digits) if cell in losing else have for cell, have in before.items()}
    masks = np.array(
        [sum(1 << int(digit) - 1 for digit in before[cell]) for cell in sorted(before)], np.uint64
    )
    assert strike(strategy, masks, GRIDS[3, 3]) == bool(losing)
    got = {
        cell: {digit for digit in ALL if int(mask) >> int(digit) - 1 & 1}
        for cell, mask in zip(sorted(before), masks, strict=True)
    }
    assert got == after


def parsed(line):
    """Return the cells of a puzzle whose empty cells are dots or zeros."""
    return np.array([ALL.find(symbol) for symbol in line], np.int16)


# Each stays unsolved without this strategy.
NEEDING = {
    "naked pair": ".51..37.2..4..7.9....9....4.....14.9...6....5..54....6.8.1.......7.......2...6.8.",
    "naked triplet": ".672..........6......31..8..1....59..9....3.7..8.5..6.....689..9..7......45....2.",
    "locked candidate": "...7....3.....91..4.75.......3..14...4....65886........76......9.2.6..8.......39.",
    "XY-wing": ".398.6......79....6....1....8.........1.3..29967.....4..82....6.....4.....2..3.95",
    "unique rectangle": "6..97.5...236.....7......9........51..8.3.4.....7..6..8.6.........24.13.3..5.....",
}


@pytest.mark.parametrize("line", NEEDING.values(), ids=NEEDING)
def test_a_puzzle_that_needs_the_strategy_is_solved(line):
    puzzle = parsed(line)
    complete, solution = deduced(puzzle, GRIDS[3, 3])
    assert complete
    assert (solution == GRIDS[3, 3].solution(puzzle)).all()


CONTRADICTIONS = {
    "twice in a row": (["1..1"], 1),
    "no digit left for a cell": ([".12.", "3...", "4..."], 4),
    "one place for two digits": (["....12...", ".......12", "34......."], 6),
    "two places in a box": ([".23...456", "4.5...789", "....1...."], 12),
}


@pytest.mark.parametrize(("rows", "count"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_contradiction_ends_it_and_nothing_wrong_is_written(rows, count):
    side = len(rows[0])
    cells = parsed("".join(rows).ljust(side**2, "."))
    complete, solution = deduced(cells, GRIDS[{4: (2, 2), 9: (3, 3)}[side]])
    assert not complete
    assert (solution >= 0).sum() == count
