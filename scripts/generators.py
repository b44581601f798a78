"""Print what docs/decisions.md states of generated puzzles: python scripts/generators.py [COUNT]."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from latent_tokens.tasks import TASKS, Countdown, Sudoku, SudokuPuzzle
from latent_tokens.tasks.sudoku.deduction import deduce

SEED = 0
PAPER_LENGTH = 64  # tokens of a Countdown problem in the paper


def zebra_words(count: int) -> str:
    """Return the clues and tokens of Zebra puzzles, in words."""
    task = TASKS["zebra"]
    problems = task.generate(count, SEED)
    prompts = [task.prompt(problems.take(slice(i, i + 1))) for i in range(count)]
    clues = np.mean([prompt.count("CLUE_END") for prompt in prompts])
    between = np.mean([prompt.count("inbetween") for prompt in prompts])
    mean, most = problems.lengths.mean(), problems.lengths.max()
    return f"{clues:.1f} clues, {between:.2f} of them inbetween, {mean:.0f} tokens, at most {most}"


def share_without_guessing(count: int) -> float:
    """Return the share of minimal 9x9 puzzles that the strategies solve without guessing."""
    task = TASKS["sudoku-puzzle"]
    assert isinstance(task, SudokuPuzzle)
    board_task = TASKS["sudoku-9"]
    assert isinstance(board_task, Sudoku)
    every = replace(task, guessing="allowed")
    boards = every.to_infill(every.generate(count, SEED), board_task)
    cells = np.where(boards.known, boards.tokens.astype(np.int16), np.int16(-1))
    grid = task.grid
    return float(np.mean([deduce(row, grid.unit_of, grid.cells_of, np.empty_like(row)) for row in cells]))


def share_too_long(count: int) -> float:
    """Return the share of Countdown problems with five numbers that do not fit the paper's length."""
    task = Countdown("countdown", numbers=5)
    tokens = task.generate(count, SEED).tokens
    used = [np.flatnonzero(row != task.pad).max() + 1 for row in tokens]
    return float(np.mean(np.array(used) > PAPER_LENGTH))


if __name__ == "__main__":
    chosen = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000
    print(f"zebra, {chosen} puzzles: {zebra_words(chosen)}")
    print(f"sudoku-puzzle, {chosen} minimal puzzles: {share_without_guessing(chosen):.1%} without guessing")
    words = f"{share_too_long(chosen):.1%} over {PAPER_LENGTH} tokens"
    print(f"countdown, {chosen} problems of five numbers: {words}")
