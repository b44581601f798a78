"""Boards, puzzles and the verifier, compared with an independent SAT solver."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from helpers.refusals import refused
from helpers.sat import SudokuClauses
from latent_tokens import TASKS, Examples
from latent_tokens.tasks.sudoku.boards import read_puzzle
from latent_tokens.tasks.sudoku.grid import SYMBOLS

NAMES = ["sudoku-4", "sudoku-6", "sudoku-9", "sudoku-16", "sudoku-36"]
EASY = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
BOARDS = {
    (name, source): replace(TASKS[name], source=source) for name in NAMES for source in ("solver", "pattern")
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("source", ["solver", "pattern"])
def test_generated_board_is_valid_and_a_changed_cell_is_noticed(name, source):
    task = BOARDS[name, source]
    boards = task.generate(8, seed=3).tokens
    assert task.score(boards)["valid"].all()
    assert (task.score(boards)["soft_loss"] == 0).all()
    rng = np.random.default_rng(0)
    for board in boards:
        cell = int(rng.integers(task.length))
        changed = board.copy()
        changed[cell] = (changed[cell] + 1 + rng.integers(task.side - 1)) % task.side
        assert not task.score(changed[None])["valid"][0]
        lacking = {f"{task.grid.unit_name(unit)} lacks a digit" for unit in task.grid.unit_of[cell]}
        assert set(task.verify(changed)) >= lacking
        assert task.verify(board) == []


@pytest.mark.parametrize("name", ["sudoku-4", "sudoku-6", "sudoku-9"])
def test_a_sat_solver_agrees_on_validity_and_uniqueness(name):
    task, rng = TASKS[name], np.random.default_rng(1)
    clauses = SudokuClauses(task.box_rows, task.box_columns)
    for number, board in enumerate(task.generate(8, seed=5).tokens):
        known = np.zeros(task.length, bool)
        known[rng.permutation(task.length)[: task.length * (2 + number) // 14]] = True
        wrong = board.copy()
        first = np.flatnonzero(known)[0]
        wrong[first] = (wrong[first] + 1) % task.side
        for cells in (board, wrong):
            solutions = clauses.solutions({int(cell): int(cells[cell]) for cell in np.flatnonzero(known)})
            assert task.count_solutions(Examples.of(cells[None], known[None])) == len(solutions)
            if solutions:
                assert task.score(np.array(solutions, np.uint8))["valid"].all()


def test_the_solver_reaches_every_4x4_board():
    assert len(np.unique(TASKS["sudoku-4"].generate(6_000, 0).tokens, axis=0)) == 288


def test_the_9x9_pattern_is_the_releases_144_boards_up_to_digits():
    boards = BOARDS["sudoku-9", "pattern"].generate(2_000, 0).tokens
    assert len({tuple(np.argsort(board[:9])[board]) for board in boards}) == 144


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(data=st.data())
def test_puzzles_round_trip_through_text(name, data):
    task = TASKS[name]
    board = task.generate(1, data.draw(st.integers(0, 999))).tokens[0]
    known = np.random.default_rng(data.draw(st.integers(0, 999))).random(task.length) < 0.5
    characters = "".join(SYMBOLS[digit] if shown else "." for digit, shown in zip(board, known, strict=True))
    lines = "\n".join(characters[row * task.side :][: task.side] for row in range(task.side))
    framed = task.decode(np.where(known, board, 255).astype(np.uint8))
    for text in (characters, characters.replace(".", "0"), lines, framed):
        read = task.encode(text)
        assert (read.known[0] == known).all()
        assert (read.tokens[0][known] == board[known]).all()
    assert read_puzzle(framed)[0] == read_puzzle(lines)[0] == task


def test_a_puzzle_that_cannot_be_read_says_why():
    for text, message in (
        ("1" * 17, "puzzle of 17 cells: must have 16"),
        ("", "puzzle of 0 cells"),
        (EASY[:80], "puzzle of 80 cells"),
        (EASY[:80] + "x", "'x' in row 9 column 9: must be 1-9, or 0 or . for an empty cell"),
        ("5" + "." * 15, "'5' in row 1 column 1: must be 1-4"),
        ("11" + "." * 14, "1 twice in row 1, at row 1 column 1 and row 1 column 2"),
        ("1..." * 2 + "." * 8, "1 twice in column 1"),
        ("1....1" + "." * 10, "1 twice in box 1"),
        ("²" + "." * 15, "must be 1-4"),
        ("٣" + "." * 15, "must be 1-4"),
        ("AB " + ". " * 255, "'AB' in row 1 column 1"),
    ):
        with refused(message):
            read_puzzle(text)


def test_soft_loss_has_the_papers_reference_values():
    task = TASKS["sudoku-36"]
    rng = np.random.default_rng(0)
    rows = np.array([np.concatenate([rng.permutation(36) for _ in range(36)]) for _ in range(300)])

    def soft_loss(boards):
        return task.score(boards.astype(np.uint8))["soft_loss"].mean()

    assert soft_loss(np.zeros((1, 1296))) == 105
    assert soft_loss(np.full((1, 1296), 38)) == 108
    assert soft_loss(rng.integers(0, 36, (300, 1296))) == pytest.approx(108 * (35 / 36) ** 36, abs=0.2)
    assert soft_loss(rows) == pytest.approx(36 * (35 / 36) ** 36 + 36 * (5 / 6) ** 6, abs=0.2)


def test_a_search_that_runs_long_gives_up(monkeypatch):
    monkeypatch.setattr("latent_tokens.tasks.sudoku.grid.MOST_NODES", 3)
    task = TASKS["sudoku-9"]
    assert task.count_solutions(task.encode(EASY)) is None
    with refused("too hard to search through (3 steps)"):
        task.example(task.grid.cells(EASY))


@pytest.mark.parametrize("place", [0, 82])
def test_a_wrong_frame_is_neither_valid_nor_exact(place):
    task = replace(TASKS["sudoku-9"], padding="paper")
    problem = task.example(task.grid.cells(EASY))
    tokens = problem.tokens.copy()
    tokens[0, place] = 3
    scores = task.score(tokens, problem)
    assert (scores["valid"], scores["exact"], scores["cells"], scores["soft_loss"]) == (0, 0, 1, 24)
    assert task.verify(tokens[0]) == ["the frame is not [BOS] digits [EOS]"]
