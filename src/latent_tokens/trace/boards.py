"""How a puzzle is drawn: which positions of its sequence are cells, what each token is for people, and where an answer breaks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from latent_tokens.storage import sha256_of
from latent_tokens.tasks import Countdown, Examples, Solvable, Sudoku, SudokuPuzzle, Zebra
from latent_tokens.tasks.base import Tokens
from latent_tokens.tasks.countdown import puzzles as countdown
from latent_tokens.tasks.sudoku.grid import Cells, Grid
from latent_tokens.tasks.zebra import clues, puzzles as zebra

Kind = Literal["sudoku", "zebra", "countdown"]

Comparison = Literal["gained", "lost", "both", "neither"]

EXAMPLES = {4: (".2.3....23.4413.", ".2.3....2..4..3.")}  # by side; those of MEASURED come first
MEASURED = Path(__file__).parents[1] / "shipped" / "examples.json"  # written by scripts/examples.py
COMPARISONS: dict[Comparison, str] = {
    "gained": "solved with all latent tokens, wrong with none",
    "lost": "solved with no latent tokens, wrong with all",
    "both": "solved with and without latent tokens",
    "neither": "wrong with and without latent tokens",
}
NO_SIGN = "?"  # of a token that stands in no right answer
GIVEN = 0.5  # of the cells, in an example of another size


@dataclass(frozen=True)
class View:
    """A puzzle to draw. A cell is a position of the sequence that is drawn; cells are numbered from 0 in drawing order."""

    kind: Kind
    positions: tuple[int, ...]  # of the cells
    columns: int  # cells in a line
    signs: tuple[str, ...]  # what each token is, in the order of the vocabulary
    broken: Callable[[Tokens], list[int]]  # the cells of an answered sequence (L,) that make it wrong
    words: tuple[str, ...] = ()  # what is given beside the cells
    heads: tuple[str, ...] = ()  # of the lines
    box: tuple[int, int] | None = None  # rows and columns of a Sudoku's box


def view(task: Solvable, problem: Examples) -> View:
    """How a problem of one example is drawn. Raises ValueError for a task that is none of ours."""
    if isinstance(task, Sudoku):
        positions = task.boards(np.arange(task.length)[None])[0].tolist()
        return sudoku_view(
            task.grid, positions, [str(digit + 1) for digit in range(task.side)], 0, task.vocab_size
        )
    if isinstance(task, SudokuPuzzle):
        positions = range(task.start, task.start + task.side**2)
        givens = task.givens(problem.tokens)[0]
        rows = task.grid.draw(givens).splitlines()
        return sudoku_view(
            task.grid,
            positions,
            [NO_SIGN, *(str(digit + 1) for digit in range(task.side))],
            1,
            task.vocab_size,
            tuple(rows),
            givens,
        )
    if isinstance(task, Zebra):
        return zebra_view(problem)
    if isinstance(task, Countdown):
        return countdown_view(problem)
    raise ValueError(f"{task.name}: no way to draw it; Sudoku, Zebra and Countdown are drawn")


def sudoku_view(
    grid: Grid,
    positions: Sequence[int],
    signs: list[str],
    lowest: int,
    vocab_size: int,
    words: tuple[str, ...] = (),
    givens: Cells | None = None,
) -> View:
    """A board; the token of digit 1 is `lowest`. `givens` are what its cells must be where these are not clamped."""
    places = np.array(positions)

    def broken(tokens: Tokens) -> list[int]:
        cells = tokens[places].astype(np.int64) - lowest
        changed = False if givens is None else (givens >= 0) & (cells != givens)
        return np.flatnonzero(grid.clashing(cells) | changed).tolist()

    signs = signs + [NO_SIGN] * (vocab_size - len(signs))
    return View(
        "sudoku",
        tuple(positions),
        grid.side,
        tuple(signs),
        broken,
        words,
        box=(grid.box_rows, grid.box_columns),
    )


def zebra_view(problem: Examples) -> View:
    """The table, a line an attribute, and the clues in words."""
    puzzle, houses, attributes = zebra.read_prompt(problem.tokens[0])
    start = int(problem.known[0].sum())

    def broken(tokens: Tokens) -> list[int]:
        table = zebra.answer(tokens, houses, attributes)
        wrong = np.array(
            [[np.sum(row == value) != 1 or not 0 <= value < houses for value in row] for row in table]
        )
        for clue in puzzle[~zebra.true_clues(puzzle, table)]:
            for reference in clue[1:][clue[1:] < clues.HOUSE].tolist():
                attribute, value = divmod(reference, clues.MOST)
                wrong[attribute] |= table[attribute] == value
        return np.flatnonzero(wrong).tolist()

    signs = tuple(str(int(word) + 1) if word.isdigit() else NO_SIGN for word in zebra.WORDS)
    words = tuple(zebra.in_words(clue) for clue in puzzle)
    heads = tuple(zebra.letter(attribute) for attribute in range(attributes))
    return View(
        "zebra", tuple(range(start, start + houses * attributes)), houses, signs, broken, words, heads
    )


def countdown_view(problem: Examples) -> View:
    """The answer's characters in one line; given are the numbers and, last, the target."""
    numbers = tuple(countdown.texts(problem.tokens[0])[0].split(","))
    positions = tuple(range(int(problem.known[0].sum()), int(problem.lengths[0])))
    signs = ("", NO_SIGN, ".", NO_SIGN, *countdown.CHARACTERS)
    return View(
        "countdown", positions, len(positions), signs, partial(broken_equations, numbers[-1]), numbers
    )


def broken_equations(target: str, tokens: Tokens) -> list[int]:
    """The cells of the equations that are none or not true, and of a last result that is not the target."""
    equations, found, start = countdown.texts(tokens)[1].split(","), list[int](), 0
    for equation in equations:
        parts = countdown.parts_of(equation)
        if parts is None or not countdown.holds(*parts):
            found += range(start, start + max(len(equation), 1))
        start += len(equation) + 1
    result = equations[-1].rsplit("=", 1)[-1]
    if result != target:
        found += range(start - 1 - max(len(result), 1), start - 1)
    return sorted(set(found))


def check(task: Solvable, text: str) -> tuple[Examples, list[int]]:
    """(a problem as it is written, its cells that contradict each other, which a board of Sudoku may have). Raises ValueError as `task.encode`."""
    if not isinstance(task, Sudoku):
        return task.encode(text), []
    givens = task.grid.read(text)
    problem = task.infilling(givens.clip(0).astype(np.uint8)[None], givens[None] >= 0)
    return problem, np.flatnonzero(task.grid.clashing(givens) & (givens >= 0)).tolist()


def examples(task: Solvable) -> list[str]:
    """A few puzzles to begin with, as `task.encode` reads them."""
    if isinstance(task, Sudoku | SudokuPuzzle):
        records = measured().get(f"sudoku-{task.side}", {}).get("examples", [])
        ready = [example["puzzle"] for example in records] or EXAMPLES.get(task.side)
        return [*(ready or [thinned(task)]), *["." * task.side**2] * isinstance(task, Sudoku)]
    problems = task.generate(3, seed=0)
    prompts = [
        row[:given].tolist() for row, given in zip(problems.tokens, problems.known.sum(1), strict=True)
    ]
    if isinstance(task, Zebra):
        return [" ".join(zebra.WORDS[token] for token in prompt[1:-1]) for prompt in prompts]
    return [countdown.texts(np.array(prompt, np.uint8))[0] for prompt in prompts]


@cache
def measured() -> dict[str, Any]:
    """The examples that were selected by decoding a set of generated puzzles, by task: docs/watching.md describes the file."""
    found: dict[str, Any] = json.loads(MEASURED.read_text())
    return found


def measured_for(task: Solvable, weights: Path) -> dict[str, Any] | None:
    """The record of `measured` for these weights (model.safetensors) on this task, or None."""
    record: dict[str, Any] | None = measured().get(task.name)
    return record if record is not None and record["sha256"] == sha256_of(weights) else None


def chosen(kind: Comparison, counts: Mapping[str, Any]) -> str:
    """A caption for a puzzle of that kind: how it was chosen, and how many of the generated puzzles are like it and the reverse."""
    setting = (
        f"{counts['givens']} givens, k = {counts['candidates']}, top-prob decoding, seed {counts['seed']}"
    )
    like = f"Chosen example: {COMPARISONS[kind]}, like {counts[kind]} of {counts['puzzles']} generated puzzles ({setting})."
    reverse: dict[str, Comparison] = {"gained": "lost", "lost": "gained"}
    return f"{like} The reverse: {counts[reverse[kind]]}." if kind in reverse else like


def thinned(task: Sudoku | SudokuPuzzle) -> str:
    """A board of which half of the cells are left, as numbers set apart by blanks."""
    board = (
        Sudoku("", task.grid.box_rows, task.grid.box_columns, source="pattern").generate(1, seed=0).tokens[0]
    )
    left = np.random.default_rng(0).random(len(board)) < GIVEN
    return " ".join(
        str(digit + 1) if kept else "." for digit, kept in zip(board.tolist(), left.tolist(), strict=True)
    )
