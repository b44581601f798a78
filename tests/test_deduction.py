"""Solving without guessing: never wrong, each strategy on its position, and at least as strong as singles."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from latent_tokens.tasks.sudoku import deduction, grid as solver
from latent_tokens.tasks.sudoku.deduction import (
    locked_candidates,
    naked_pairs,
    naked_triplets,
    unique_rectangles,
    xy_wings,
)

PUZZLES = Path(__file__).parents[2] / "shared" / "data" / "sudoku"
UNITS = {box: solver.units(*box) for box in ((2, 2), (2, 3), (3, 3), (6, 6))}
SMALL = st.sampled_from([(2, 3), (3, 3)])
SEEDS = st.integers(0, 2**32)


def strike(strategy, candidates, unit_of):
    """Return the result of the kernel, which removes candidates in place."""
    cells_of = deduction.cells_by_unit(unit_of)
    arguments = {naked_pairs: [cells_of], naked_triplets: [cells_of], xy_wings: [unit_of]}
    return strategy(candidates, *arguments.get(strategy, [unit_of, cells_of]))


def deduced(cells, unit_of):
    solution = np.empty_like(cells)
    return deduction.deduce(cells, unit_of, solution), solution


def filled(unit_of, seed):
    """Return a random board of a size."""
    boards = np.empty((1, len(unit_of)), np.int16)
    solver.fill_boards(boards, unit_of, seed, 0, 12 * len(unit_of))
    return boards[0]


def dug(board, unit_of, seed, tries):
    """The board without those of `tries` random cells that it can lose and still be the only solution."""
    cells, scratch = board.copy(), np.empty_like(board)
    for cell in np.random.default_rng(seed).permutation(len(board))[:tries]:
        cells[cell] = -1
        if solver.search(cells, unit_of, 2, 10**6, np.zeros(1, np.uint64), scratch) != (1, True):
            cells[cell] = board[cell]
    return cells


def answer(cells, unit_of):
    """Return the solution of the search."""
    solution = np.empty_like(cells)
    assert solver.search(cells, unit_of, 1, 10**6, np.zeros(1, np.uint64), solution) == (1, True)
    return solution


@given(SMALL, SEEDS, st.integers(0, 81))
def test_deduced_cells_equal_the_solution(box, seed, tries):
    unit_of = UNITS[box]
    board = filled(unit_of, seed)
    complete, solution = deduced(dug(board, unit_of, seed, tries), unit_of)
    found = solution >= 0
    assert (solution[found] == board[found]).all()
    assert complete == found.all()


@given(
    st.sampled_from([naked_pairs, naked_triplets, locked_candidates, xy_wings]),
    SMALL,
    SEEDS,
    st.floats(0.05, 0.5),
)
def test_strategies_never_strike_the_solution(strategy, box, seed, share):
    """From any candidates that include the solution. The unique rectangle needs those of a puzzle."""
    unit_of = UNITS[box]
    board = filled(unit_of, seed)
    side = box[0] * box[1]
    may = (np.random.default_rng(seed).random((len(board), side)) < share) | (
        board[:, None] == np.arange(side)
    )
    candidates = (may.astype(np.uint64) << np.arange(side, dtype=np.uint64)).sum(1, dtype=np.uint64)
    before = candidates.copy()
    removed = strike(strategy, candidates, unit_of)
    assert removed == (candidates != before).any()
    assert (candidates >> board.astype(np.uint64) & np.uint64(1)).all()


def block(rows, columns, but=""):
    """Return cells as "rc", counted from 1, of all named rows and columns, without those in `but`."""
    return {row + column for row, column in product(rows, columns)} - set(but.split())


ALL = "123456789"
# Cells have all nine candidates except those in a position. A position lists candidates, then removed digits.
POSITIONS = {
    "naked pair in a row": (naked_pairs, [("11 15", "12")], block("1", ALL, "11 15"), "12"),
    "naked pair in a column": (naked_pairs, [("11 91", "89")], block(ALL, "1", "11 91"), "89"),
    "naked pair in a box": (naked_pairs, [("55 66", "35")], block("456", "456", "55 66"), "35"),
    "naked pair in a row and a box": (
        naked_pairs,
        [("78 79", "35")],
        block("7", ALL, "78 79") | block("789", "789", "78 79"),
        "35",
    ),
    "no pair: apart": (naked_pairs, [("11 45", "12")], set(), ""),
    "no pair: three digits": (naked_pairs, [("11", "12"), ("15", "13"), ("19", "123")], set(), ""),
    "naked triplet in a row": (
        naked_triplets,
        [("11", "12"), ("14", "23"), ("17", "13")],
        block("1", ALL, "11 14 17"),
        "123",
    ),
    "naked triplet in a column": (naked_triplets, [("12 42 92", "789")], block(ALL, "2", "12 42 92"), "789"),
    "naked triplet in a box": (
        naked_triplets,
        [("99", "12"), ("88", "126"), ("77", "16")],
        block("789", "789", "99 88 77"),
        "126",
    ),
    "no triplet: apart": (naked_triplets, [("11 14 44", "123")], set(), ""),
    "no triplet: four digits": (naked_triplets, [("11", "12"), ("14", "23"), ("17", "34")], set(), ""),
    "pointing along a row": (
        locked_candidates,
        [(block("23", "123"), "12346789")],
        block("1", "456789"),
        "5",
    ),
    "pointing along a column": (
        locked_candidates,
        [(block("456", "46"), "12345678")],
        block("123789", "5"),
        "9",
    ),
    "claiming from a row": (locked_candidates, [(block("5", "123456"), "23456789")], block("46", "789"), "1"),
    "claiming from a column": (
        locked_candidates,
        [(block("456789", "9"), "13456789")],
        block("123", "78"),
        "2",
    ),
    "nothing locked": (locked_candidates, [(block("2", "123") | block("5", "123"), "12346789")], set(), ""),
    "wing along lines": (xy_wings, [("11", "12"), ("15", "13"), ("51", "23")], {"55"}, "3"),
    "wing in a box and a row": (
        xy_wings,
        [("11", "12"), ("15", "13"), ("22", "23")],
        {"12", "13", "24", "25", "26"},
        "3",
    ),
    "no wing: pivot apart": (xy_wings, [("44", "12"), ("15", "13"), ("51", "23")], set(), ""),
    "no wing: one end apart": (xy_wings, [("11", "12"), ("15", "13"), ("44", "23")], set(), ""),
    "no wing: no common digit": (xy_wings, [("11", "12"), ("15", "13"), ("51", "24")], set(), ""),
    "no wing: same ends": (xy_wings, [("11", "12"), ("15", "13"), ("51", "13")], set(), ""),
    "no wing: three in the pivot": (xy_wings, [("11", "123"), ("15", "13"), ("51", "23")], set(), ""),
    "rectangle over two boxes below each other": (unique_rectangles, [("11 12 41", "12")], {"42"}, "12"),
    "rectangle over two boxes side by side": (unique_rectangles, [("24 14 21", "79")], {"11"}, "79"),
    "rectangle whose fourth corner has one of the two": (
        unique_rectangles,
        [("99 79 96", "12"), ("76", "234")],
        {"76"},
        "2",
    ),
    "no rectangle: four boxes": (unique_rectangles, [("11 14 41", "12")], set(), ""),
    "no rectangle: one box": (unique_rectangles, [("11 12 21", "12")], set(), ""),
    "no rectangle: other digits": (unique_rectangles, [("11 12", "12"), ("41", "13")], set(), ""),
    "no rectangle: a third digit": (unique_rectangles, [("11 12", "12"), ("41", "123")], set(), ""),
    "no rectangle: a corner has its digit": (unique_rectangles, [("11 12", "12"), ("41", "")], set(), ""),
    "no rectangle: the fourth corner has its digit": (
        unique_rectangles,
        [("11 12 41", "12"), ("42", "")],
        set(),
        "",
    ),
}


@pytest.mark.parametrize(("strategy", "left", "losing", "digits"), POSITIONS.values(), ids=POSITIONS)
def test_strategy_strikes_what_its_position_implies_only(strategy, left, losing, digits):
    before = {cell: set(ALL) for cell in block(ALL, ALL)}
    for cells, candidates in left:
        before |= {cell: set(candidates) for cell in (cells.split() if isinstance(cells, str) else cells)}
    after = {cell: have - set(digits) if cell in losing else have for cell, have in before.items()}
    masks = np.array(
        [sum(1 << int(digit) - 1 for digit in before[cell]) for cell in sorted(before)], np.uint64
    )
    assert strike(strategy, masks, UNITS[3, 3]) == bool(losing)
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
    complete, solution = deduced(puzzle, UNITS[3, 3])
    assert complete
    assert (solution == answer(puzzle, UNITS[3, 3])).all()


def read(name):
    """Return the puzzles of a public collection, one per line."""
    if not (PUZZLES / name).exists():
        pytest.skip(f"{name} is not beside the repository, in shared/data/sudoku")
    return [parsed(line) for line in (PUZZLES / name).read_text().split()]


@pytest.mark.parametrize(
    ("name", "solved", "of"),
    [("norvig_easy50.txt", 49, 50), ("norvig_hardest11.txt", 3, 11), ("top95.txt", 20, 95)],
)
def test_easy_puzzles_yield_and_hard_ones_do_not(name, solved, of):
    unit_of = UNITS[3, 3]
    results = [(puzzle, *deduced(puzzle, unit_of)) for puzzle in read(name)]
    for puzzle, complete, solution in results:
        assert (solution == np.where(solution >= 0, answer(puzzle, unit_of), -1)).all()
        assert complete == (solution >= 0).all()
    assert (sum(complete for _, complete, _ in results), len(results)) == (solved, of)


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
    complete, solution = deduced(cells, UNITS[{4: (2, 2), 9: (3, 3)}[side]])
    assert not complete
    assert (solution >= 0).sum() == count
