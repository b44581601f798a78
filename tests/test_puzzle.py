"""Sudoku puzzles: their tokens, their only solution, and the verifier."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from helpers.refusals import refused
from helpers.sat import SudokuClauses
from latent_tokens import TASKS
from latent_tokens.tasks import configured
from latent_tokens.tasks.readers import read_source
from latent_tokens.tasks.sudoku.deduction import deduce

OTHERS = Path(__file__).parents[2] / "shared" / "data" / "sudoku"
FILES = {
    "norvig_easy50.txt": 50,
    "norvig_hardest11.txt": 11,
    "top95.txt": 95,
    "ye2025_sudoku_test_first500.csv": 500,
}
TASK, SMALL = TASKS["sudoku-puzzle"], TASKS["sudoku-6-puzzle"]

QUIZ = "080050060460907108005000029970006500000872031300049000004025003010000480603100007"
SOLUTION = "789251364462937158135468729978316542546872931321549876894725613217693485653184297"
IDS = (
    "12 10 8 10 10 5 10 10 6 10 4 6 10 9 10 7 1 10 8 10 10 5 10 10 10 10 2 9 9 7 10 10 10 6 5 10 10 10 10 "
    "10 8 7 2 10 3 1 3 "
    "10 10 10 4 9 10 10 10 10 10 4 10 2 5 10 10 3 10 1 10 10 10 10 4 8 10 6 10 3 1 10 10 10 10 7 11 7 8 9 "
    "2 5 1 3 6 4 4 6 2 9 "
    "3 7 1 5 8 1 3 5 4 6 8 7 2 9 9 7 8 3 1 6 5 4 2 5 4 6 8 7 2 9 3 1 3 2 1 5 4 9 8 7 6 8 9 4 7 2 5 6 1 3 2 "
    "1 7 6 9 3 4 8 5 6 "
    "5 3 1 8 4 2 9 7 13"
)


def cells(text):
    return np.array([int(digit) - 1 for digit in text], np.int16)


def test_ids_are_the_papers():
    """The first record of Ye et al.'s test set, by hand."""
    wanted = [int(word) for word in IDS.split()]
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


def test_an_answer_that_does_not_end_is_not_exact():
    task = replace(SMALL, padding="paper")
    examples = task.generate(1, seed=0)
    tokens = examples.tokens.copy()
    tokens[0, task.start + 36] = 3
    scores = task.score(tokens, examples)
    assert (scores["exact"], scores["valid"], scores["cells"]) == (0, 0, 1)
    assert task.verify(tokens[0]) == ["the answer does not end after its last cell"]


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
    ("file", "count"), [*FILES.items(), pytest.param("magictour_top1465.txt", 1465, marks=pytest.mark.slow)]
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
