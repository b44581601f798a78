"""The geometry of a puzzle: its cells, their characters, the wrong ones, and example puzzles."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np

from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.storage import sha256_of
from latent_tokens.tasks import (
    CompactZebra,
    Countdown,
    Examples,
    Solvable,
    Sudoku,
    SudokuPuzzle,
    TaskBase,
    Zebra,
    countdown,
)
from latent_tokens.tasks.base import generate_checked
from latent_tokens.tasks.countdown import CHARACTERS, texts
from latent_tokens.tasks.examples import Tokens
from latent_tokens.tasks.sudoku.grid import Cells, Grid
from latent_tokens.tasks.zebra import clues, puzzles as zebra


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
        broken |= set(range(start - 1 - max(len(result), 1), start - 1))
    return sorted(broken)


Kind = Literal["sudoku", "zebra", "countdown", "sequence"]


Comparison = Literal["gained", "lost", "both", "neither"]


EXAMPLES = {4: (".2.3....23.4413.", ".2.3....2..4..3.")}  # by side; those in MEASURED come first


MEASURED = BUNDLED / "examples.json"  # written by scripts/page_examples.py


COMPARISONS: dict[Comparison, str] = {
    "gained": "solved with all latent tokens, wrong with none",
    "lost": "solved with no latent tokens, wrong with all",
    "both": "solved with and without latent tokens",
    "neither": "wrong with and without latent tokens",
}


UNKNOWN = "?"  # the character of a token that no valid answer contains


GIVEN_RATE = 0.5  # rate of given cells in an example of another size


class MeasuredExample(TypedDict):
    """An example puzzle, and whether it was solved at each number of latent tokens."""

    puzzle: str
    kind: Comparison
    solved: dict[str, bool]


class ExampleSet(TypedDict):
    """The generated puzzles that were decoded to select examples, and their counts by comparison."""

    model: str
    sha256: str
    puzzles: int
    givens: int
    candidates: int
    seed: int
    solved: dict[str, int]
    gained: int
    lost: int
    both: int
    neither: int
    examples: list[MeasuredExample]


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


def view(task: Solvable, problem: Examples) -> View:
    """Return how a problem with one sample is drawn. Raise ValueError for a task of another package."""
    if isinstance(task, Sudoku):
        return board_view(task)
    if isinstance(task, SudokuPuzzle):
        return puzzle_view(task, problem)
    if isinstance(task, Zebra):
        return zebra_view(problem)
    if isinstance(task, Countdown):
        return countdown_view(problem)
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
        table = zebra.answer(tokens, houses, attributes)
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
    words = tuple(zebra.in_words(clue) for clue in puzzle)
    heads = tuple(zebra.letter(attribute) for attribute in range(attributes))
    positions = range(start, start + houses * attributes)
    return View("zebra", tuple(positions), houses, signs, broken, words, heads)


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


def examples(task: Solvable) -> list[str]:
    """Return example puzzles, as `task.encode` reads them."""
    if isinstance(task, Sudoku | SudokuPuzzle):
        return sudoku_examples(task)
    if isinstance(task, CompactZebra):
        return examples(task.zebra)
    problems = generate_checked(task, 3, seed=0)
    if isinstance(task, TaskBase):
        shown = np.where(problems.known, problems.tokens.astype(np.int64), task.vocab_size)
        return [
            task.decode(row[:length]) for row, length in zip(shown, problems.lengths, strict=True)
        ]
    num_given = problems.known.sum(1)
    prompts = [row[:count].tolist() for row, count in zip(problems.tokens, num_given, strict=True)]
    if isinstance(task, Zebra):
        return [" ".join(zebra.WORDS[token] for token in prompt[1:-1]) for prompt in prompts]
    return [texts(np.array(prompt, np.uint8))[0] for prompt in prompts]


def sudoku_examples(task: Sudoku | SudokuPuzzle) -> list[str]:
    """Return the measured examples of a side, or the default ones. For boards, the last example is empty."""
    record = measured().get(f"sudoku-{task.side}")
    if record is not None:
        puzzles = [example["puzzle"] for example in record["examples"]]
    else:
        puzzles = [*EXAMPLES.get(task.side, (generated_example(task),))]
    if isinstance(task, Sudoku):
        puzzles.append("." * task.side**2)
    return puzzles


def generated_example(task: Sudoku | SudokuPuzzle) -> str:
    """Return a board with about half of its cells given, as numbers separated by spaces."""
    pattern = Sudoku("", task.grid.box_rows, task.grid.box_columns, source="pattern")
    board = pattern.generate(1, seed=0).tokens[0]
    is_given = np.random.default_rng(0).random(len(board)) < GIVEN_RATE
    return " ".join(
        str(digit + 1) if given else "." for digit, given in zip(board, is_given, strict=True)
    )


@cache
def measured() -> dict[str, ExampleSet]:
    """Return the examples that were selected by decoding generated puzzles, by task."""
    records: dict[str, ExampleSet] = json.loads(MEASURED.read_text())
    return records


def measured_for(task: Solvable, weights: Path) -> ExampleSet | None:
    """Return the examples of a task if they were measured with these weights, otherwise None."""
    record = measured().get(task.name)
    return record if record is not None and record["sha256"] == sha256_of(weights) else None


def chosen(kind: Comparison, counts: Mapping[str, object]) -> str:
    """Return a caption: how a puzzle was chosen, and how many puzzles are like it and the reverse."""
    givens, k = counts["givens"], counts["candidates"]
    setting = f"{givens} givens, k = {k}, top-prob decoding, seed {counts['seed']}"
    caption = (
        f"Chosen example: {COMPARISONS[kind]}, like {counts[kind]} of {counts['puzzles']} "
        f"generated puzzles ({setting})."
    )
    reverse = {"gained": "lost", "lost": "gained"}.get(kind)
    return caption if reverse is None else f"{caption} The reverse: {counts[reverse]}."
