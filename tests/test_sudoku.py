"""Sudoku boards and puzzles, compared with an independent SAT solver, and their verifiers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from helpers.refusals import refused
from helpers.sat import SudokuClauses
from latent_tokens import TASKS, Examples
from latent_tokens.tasks import configured
from latent_tokens.tasks.readers import read_source
from latent_tokens.tasks.sudoku.boards import read_puzzle
from latent_tokens.tasks.sudoku.deduction import deduce
from latent_tokens.tasks.sudoku.grid import SYMBOLS

NAMES = ["sudoku-4", "sudoku-6", "sudoku-9", "sudoku-16", "sudoku-36"]
EASY = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("source", ["solver", "pattern"])
def test_generated_board_is_valid_and_a_changed_cell_is_noticed(name, source):
    task = configured(name, {"source": source})
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
    boards = configured("sudoku-9", {"source": "pattern"}).generate(2_000, 0).tokens
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
        (EASY[:80] + "x", "'x' in row 9 column 9: must be 1-9, or 0 or . for an empty cell"),
        ("5" + "." * 15, "'5' in row 1 column 1: must be 1-4"),
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
    framed = configured("sudoku-36", {"padding": "paper"})
    board = framed.generate(1, 0).tokens
    board[0, 7] = 37  # [EOS] in a cell: no digit in three units
    assert framed.score(board)["soft_loss"] == pytest.approx(3 / 36)
    board[0, 0] = 7
    assert framed.score(board)["soft_loss"] == 105


def test_a_search_that_runs_long_gives_up(monkeypatch):
    monkeypatch.setattr("latent_tokens.tasks.sudoku.grid.MOST_NODES", 3)
    task = TASKS["sudoku-9"]
    assert task.count_solutions(task.encode(EASY)) is None
    with refused("too hard to search through (3 steps)"):
        task.example(task.grid.cells(EASY))


# Puzzles: a text of two boards, with their only solution.

OTHERS = Path(__file__).parents[2] / "shared" / "data" / "sudoku"
TASK, SMALL = TASKS["sudoku-puzzle"], TASKS["sudoku-6-puzzle"]

QUIZ = "080050060460907108005000029970006500000872031300049000004025003010000480603100007"
SOLUTION = "789251364462937158135468729978316542546872931321549876894725613217693485653184297"


def cells(text):
    return np.array([int(digit) - 1 for digit in text], np.int16)


def test_ids_are_the_papers():
    """Of the first record of Ye et al.'s test set: 12 begins, 10 is an empty cell, 11 is SEP, and 13 ends."""
    wanted = [12, *(int(digit) or 10 for digit in QUIZ), 11, *map(int, SOLUTION), 13]
    paper = configured("sudoku-puzzle", {"padding": "paper"}).example(cells(QUIZ), cells(SOLUTION))
    assert paper.tokens[0].tolist() == wanted + [0] * 27
    assert paper.lengths.tolist() == [192]
    none = TASK.example(cells(QUIZ))
    assert none.tokens[0].tolist() == wanted[:-1]
    assert none.known[0].tolist() == paper.known[0][:164].tolist() == [True] * 83 + [False] * 81


@pytest.mark.parametrize(
    ("name", "changes"),
    [("sudoku-puzzle", {}), ("sudoku-puzzle", {"guessing": "allowed"}), ("sudoku-6-puzzle", {})],
)
def test_minimal_puzzles_have_one_solution_until_a_clue_goes(name, changes):
    task = configured(name, changes)
    examples = task.generate(8, seed=6)
    clauses = SudokuClauses(task.box_rows, task.box_columns)
    for givens, board in zip(task.givens(examples.tokens), task.answers(examples.tokens), strict=True):
        facts = {cell: int(givens[cell]) for cell in np.flatnonzero(givens >= 0).tolist()}
        assert clauses.solutions(facts) == [board.tolist()]
        for cell in facts:
            others = {other: digit for other, digit in facts.items() if other != cell}
            assert len(clauses.solutions(others)) == 2
        if task.guessing == "never":
            assert deduce(givens, task.grid.unit_of, task.grid.cells_of, np.empty_like(givens))


@pytest.mark.parametrize(("name", "clues"), [("sudoku-puzzle", 30), ("sudoku-6-puzzle", 12)])
def test_a_number_of_clues_is_met_exactly(name, clues):
    task = configured(name, {"clues": clues, "guessing": "allowed"})
    examples = task.generate(10, seed=1)
    assert ((task.givens(examples.tokens) >= 0).sum(1) == clues).all()
    assert all(task.count_solutions(examples.take(slice(i, i + 1))) == 1 for i in range(10))


@pytest.mark.parametrize("padding", ["none", "paper"])
@given(seed=st.integers(0, 999), place=st.integers(0, 35), step=st.integers(1, 5))
@settings(max_examples=20)
def test_one_changed_cell_of_the_answer_is_always_caught(padding, seed, place, step):
    task = replace(SMALL, padding=padding)
    examples = task.generate(1, seed)
    tokens = examples.tokens.copy()
    answer = tokens[0, task.start : task.start + 36]
    answer[place] = (answer[place] - 1 + step) % 6 + 1
    assert task.verify(tokens[0])
    scores = task.score(tokens, examples)
    assert scores["exact"] == scores["valid"] == 0
    empty = (task.givens(tokens) < 0)[0]
    assert scores["cells"] == pytest.approx(1 - empty[place] / empty.sum())


@pytest.mark.parametrize("task", [TASK, TASKS["sudoku-9"]], ids=lambda task: task.name)
def test_a_puzzle_without_one_solution_is_refused(task):
    for givens, solution, message in (
        ("1" + "0" * 80, None, "puzzle has several solutions"),
        (SOLUTION, None, "nothing to solve: every cell is given"),
        ("11" + "0" * 79, None, "puzzle has no solution"),
        ("12345678" + "0" * 9 + "9" + "0" * 63, None, "puzzle has no solution"),
        (QUIZ, "8" + SOLUTION[1:], "the solution given is wrong in row 1 column 1"),
    ):
        with refused(message):
            task.example(cells(givens), None if solution is None else cells(solution))


@pytest.mark.parametrize(
    ("file", "count"),
    [
        ("norvig_easy50.txt", 50),
        ("norvig_hardest11.txt", 11),
        ("top95.txt", 95),
        ("ye2025_sudoku_test_first500.csv", 500),
        pytest.param("magictour_top1465.txt", 1465, marks=pytest.mark.slow),
    ],
)
def test_a_sat_solver_agrees_on_all_puzzles_of_others(file, count):
    if not OTHERS.is_dir():
        pytest.skip("the puzzles that others made are missing")
    clauses = SudokuClauses(3, 3)
    for task in (TASK, TASKS["sudoku-9"]):
        examples, bad = read_source(task, OTHERS / file, skip_bad=False)
        assert bad == []
        assert len(examples.tokens) == count
    for board, known in zip(examples.tokens, examples.known, strict=True):
        assert TASKS["sudoku-9"].verify(board) == []
        facts = {cell: int(board[cell]) for cell in np.flatnonzero(known).tolist()}
        assert clauses.solutions(facts) == [board.tolist()]


def test_a_puzzle_is_a_board_to_infill():
    task, boards = TASKS["sudoku-6-puzzle"], TASKS["sudoku-6"]
    examples = task.generate(5, seed=0)
    infilled = task.to_infill(examples, boards)
    assert boards.score(infilled.tokens)["valid"].all()
    givens = task.givens(examples.tokens)
    assert infilled.known.sum() == (givens >= 0).sum() > 0
    assert (infilled.tokens[infilled.known] == givens[givens >= 0]).all()
    assert (infilled.lengths == boards.length).all()
