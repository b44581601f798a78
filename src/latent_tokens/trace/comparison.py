"""Puzzles solved with different numbers of latent tokens: which, and how many with one and not the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from latent_tokens.configs import SamplingConfig
from latent_tokens.evaluation.problems import batches, decode_batch, device_of
from latent_tokens.progress import Advance
from latent_tokens.tasks import Examples, Sudoku, SudokuPuzzle
from latent_tokens.trace.boards import COMPARISONS, Comparison
from latent_tokens.trace.record import DecodeRequest, LoadedModel

TOGETHER = 25  # puzzles per batch


def puzzles(task: Sudoku, count: int, givens: int, seed: int) -> Examples:
    """Return generated puzzles with one solution each, as boards of the task with `givens` given cells."""
    generator = SudokuPuzzle(
        f"{task.name}-puzzle", task.grid.box_rows, task.grid.box_columns, clues=givens, guessing="allowed"
    )
    return generator.to_infill(generator.generate(count, seed), task)


def solved(
    model: LoadedModel, problems: Examples, setting: SamplingConfig, advance: Advance
) -> NDArray[np.bool_]:
    """Return which of N problems (N,) the model solves exactly.

    Each is decoded with the random numbers of a problem that is decoded alone.
    """
    decoding = DecodeRequest(model, problems.take(slice(1)), setting).decoding
    solved_in_batches = []
    for batch in batches(problems, TOGETHER, device_of(model.net)):
        first_stream = replace(batch, rows=torch.zeros_like(batch.rows))
        decoded = decode_batch(model.net, first_stream, decoding, setting.seed)
        solved_in_batches.append(model.task.score(decoded.samples, batch.examples)["exact"] == 1)
        advance(len(decoded.samples), "")
    return np.concatenate(solved_in_batches)


def compared(without: NDArray[np.bool_], with_all: NDArray[np.bool_]) -> dict[str, int]:
    """Return the numbers of puzzles solved with all latent tokens only, none only, both and neither."""
    pairs: dict[Comparison, NDArray[np.bool_]] = {
        "gained": with_all & ~without,
        "lost": without & ~with_all,
        "both": with_all & without,
        "neither": ~with_all & ~without,
    }
    return {kind: int(pairs[kind].sum()) for kind in COMPARISONS}
