"""The geometry of a puzzle: its cells, their characters, and the wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from latent_tokens.tasks import (
    CompactZebra,
    Countdown,
    Examples,
    Solvable,
    Sudoku,
    SudokuPuzzle,
    TaskBase,
    Text,
    Zebra,
    countdown,
)
from latent_tokens.tasks.countdown import CHARACTERS, texts
from latent_tokens.tasks.examples import Tokens
from latent_tokens.tasks.sudoku.grid import Cells, Grid
from latent_tokens.tasks.zebra import clues, puzzles as zebra

Kind = Literal["sudoku", "zebra", "countdown", "text", "sequence"]
UNKNOWN = "?"  # the character of a token that no valid answer contains


@dataclass(frozen=True)
class View:
    """The geometry of a puzzle.

    A cell is a drawn position of the sequence. Cells are numbered in drawing order.
    """

    kind: Kind
    positions: tuple[int, ...]  # of the cells
    columns: int  # cells per line
    signs: tuple[str, ...]  # the character of each token of the vocabulary
    broken: Callable[[Tokens], list[int]]  # the wrong cells of an answered sequence (L,)
    words: tuple[str, ...] = ()  # given information besides the cells
    heads: tuple[str, ...] = ()  # labels of the lines
    box: tuple[int, int] | None = None  # rows and columns of a Sudoku's box


def view(task: Solvable | Text, problem: Examples) -> View:
    """Return how a problem with one sample is drawn. Raise ValueError for a task of another package."""
    if isinstance(task, Sudoku):
        return board_view(task)
    if isinstance(task, SudokuPuzzle):
        return puzzle_view(task, problem)
    if isinstance(task, Zebra):
        return zebra_view(problem)
    if isinstance(task, Countdown):
        return countdown_view(problem)
    if isinstance(task, Text):
        return text_view(task, problem)
    if isinstance(task, TaskBase | CompactZebra):
        return sequence_view(task, problem)
    raise ValueError(f"{task.name}: cannot be drawn. Inherit from latent_tokens.TaskBase.")


def board_view(task: Sudoku) -> View:
    """Return the geometry of a board, whose given cells are clamped."""
    positions = task.boards(np.arange(task.length)[None])[0].tolist()
    return sudoku_view(
        task.grid, positions, [str(digit + 1) for digit in range(task.side)], 0, task.vocab_size
    )


def puzzle_view(task: SudokuPuzzle, problem: Examples) -> View:
    """Return the geometry of the answer to a puzzle. The puzzle itself is its `words`."""
    positions = range(task.start, task.start + task.side**2)
    givens = task.givens(problem.tokens)[0]
    signs = [UNKNOWN, *(str(digit + 1) for digit in range(task.side))]
    rows = tuple(task.grid.draw(givens).splitlines())
    return sudoku_view(task.grid, positions, signs, 1, task.vocab_size, rows, givens)


def sudoku_view(
    grid: Grid,
    positions: Sequence[int],  # of the cells
    signs: list[str],  # the characters of the first tokens
    first_digit: int,  # the token of digit 1
    vocab_size: int,
    words: tuple[str, ...] = (),
    givens: Cells | None = None,  # the required digits, or -1, if given cells are not clamped
) -> View:
    """Return the geometry of a Sudoku."""
    cell_positions = np.array(positions)

    def broken(tokens: Tokens) -> list[int]:
        cells = tokens[cell_positions].astype(np.int64) - first_digit
        wrong = grid.clashing(cells)
        if givens is not None:
            wrong = wrong | ((givens >= 0) & (cells != givens))
        return np.flatnonzero(wrong).tolist()

    signs = signs + [UNKNOWN] * (vocab_size - len(signs))
    box = (grid.box_rows, grid.box_columns)
    return View("sudoku", tuple(positions), grid.side, tuple(signs), broken, words, box=box)


def zebra_view(problem: Examples) -> View:
    """Return the geometry of the table, one line per attribute, with the clues in words."""
    puzzle, houses, attributes = zebra.read_prompt(problem.tokens[0])
    start = int(problem.known[0].sum())

    def broken(tokens: Tokens) -> list[int]:
        table = zebra.answered_table(tokens, houses, attributes)
        wrong = np.array(
            [
                [np.sum(row == value) != 1 or not 0 <= value < houses for value in row]
                for row in table
            ]
        )
        for clue in puzzle[~zebra.true_clues(puzzle, table)]:
            for reference in clue[1:][clue[1:] < clues.HOUSE].tolist():
                attribute, value = divmod(reference, clues.MOST)
                wrong[attribute] |= table[attribute] == value
        return np.flatnonzero(wrong).tolist()

    signs = tuple(str(int(word) + 1) if word.isdigit() else UNKNOWN for word in zebra.WORDS)
    words = tuple(zebra.clue_in_words(clue) for clue in puzzle)
    heads = tuple(zebra.letter(attribute) for attribute in range(attributes))
    positions = range(start, start + houses * attributes)
    return View("zebra", tuple(positions), houses, signs, broken, words, heads)


def broken_equations(target: str, tokens: Tokens) -> list[int]:
    """Return the cells of malformed or false equations, and of a last result that is not the target."""
    equations = countdown.texts(tokens)[1].split(",")
    broken = set[int]()
    start = 0
    for equation in equations:
        parts = countdown.parts_of(equation)
        if parts is None or not countdown.holds(*parts):
            broken |= set(range(start, start + max(len(equation), 1)))
        start += len(equation) + 1
    result = equations[-1].rsplit("=", 1)[-1]
    if result != target:
        broken |= set(range(max(0, start - 1 - max(len(result), 1)), start - 1))
    return sorted(broken)


def countdown_view(problem: Examples) -> View:
    """Return the geometry of the answer: its characters in one line.

    The `words` are the numbers and the target.
    """
    numbers = tuple(texts(problem.tokens[0])[0].split(","))
    positions = tuple(range(int(problem.known[0].sum()), int(problem.lengths[0])))
    signs = ("", UNKNOWN, ".", UNKNOWN, *CHARACTERS)
    broken = partial(broken_equations, numbers[-1])
    return View("countdown", positions, len(positions), signs, broken, numbers)


def sequence_view(task: TaskBase | CompactZebra, problem: Examples) -> View:
    """Return the geometry of any other sequence: its tokens in one line. No cell is marked."""
    length = int(problem.lengths[0])
    return View("sequence", tuple(range(length)), length, task.symbols, lambda tokens: [])


def text_view(task: Text, problem: Examples) -> View:
    """Return the geometry of a text: its tokens in lines, without the end of document before them."""
    length = int(problem.lengths[0])
    signs = tuple(task.inside([token]) for token in range(task.vocab_size))
    return View("text", tuple(range(1, length)), length - 1, signs, lambda tokens: [])
