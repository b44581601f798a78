"""Example puzzles of the page and of the demo, and how latent tokens change which ones are solved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray

from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.configs import SamplingConfig
from latent_tokens.data.splits import dataset
from latent_tokens.evaluation.problems import batches, decode_batch, device_of
from latent_tokens.progress import Advance
from latent_tokens.storage import sha256_of
from latent_tokens.tasks import Examples, Solvable, Sudoku, SudokuPuzzle
from latent_tokens.trace.record import DecodeRequest, LoadedModel

Comparison = Literal["gained", "lost", "both", "neither"]

MEASURED = BUNDLED / "examples.json"  # written by scripts/page_examples.py
PAGE_RECORD = BUNDLED / "page.json"  # likewise: what the page shows of a bundled model
SENTENCES = BUNDLED / "sentences.json"  # written by scripts/page_sentences.py
COMPARISONS: dict[Comparison, str] = {
    "gained": "solved with all latent tokens, wrong with none",
    "lost": "solved with no latent tokens, wrong with all",
    "both": "solved with and without latent tokens",
    "neither": "wrong with and without latent tokens",
}
# By side; those in MEASURED come first
EXAMPLES: dict[int, tuple[str, ...]] = {4: (".2.3....23.4413.", ".2.3....2..4..3.")}
GIVEN_RATE = 0.5  # rate of given cells in an example of another size
FEW_LATENTS = 4  # latent tokens of the example from left to right
TOGETHER = 25  # puzzles per batch


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


def examples(task: Sudoku) -> list[str]:
    """Return the measured examples of a side, or the default ones, and an empty board."""
    record = measured().get(f"sudoku-{task.side}")
    if record is None:
        puzzles = EXAMPLES.get(task.side) or (generated_example(task),)
    else:
        puzzles = tuple(example["puzzle"] for example in record["examples"])
    return [*puzzles, "." * task.side**2]


def generated_example(task: Sudoku) -> str:
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


def left_to_right_example(task: Sudoku, weights: Path) -> dict[str, Any] | None:
    """Return the first board of PAGE_RECORD that FEW_LATENTS latent tokens solve and none do not.

    Args:
        task: of the model that decodes it. Without a board of its size None is returned.
        weights: of this model. Without those of the record there is no caption.
    """
    if task.name != "sudoku-6":
        return None
    record = json.loads(PAGE_RECORD.read_text())
    hundred = record["hundred"]
    pairs = list(zip(hundred["solved"][0], hundred["solved"][FEW_LATENTS], strict=True))
    gained, lost = pairs.count(("0", "1")), pairs.count(("1", "0"))
    caption = (
        f"Chosen example: solved with {FEW_LATENTS} latent tokens, wrong with none, like {gained} of "
        f"{len(pairs)} generated boards ({hundred['givens']} givens, left to right). The reverse: {lost}."
    )
    return {
        "puzzle": hundred["puzzles"][pairs.index(("0", "1"))],
        "label": f"left to right: solved with {FEW_LATENTS} latent tokens, wrong with none",
        "caption": caption if record["sha256"] == sha256_of(weights) else "",
        "settings": {
            "n": f"0,{FEW_LATENTS}",
            "k": str(hundred["candidates"]),
            "order": hundred["order"],
        },
    }


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


def puzzles(task: Sudoku, count: int, givens: int, seed: int) -> Examples:
    """Return puzzles of the test split with one solution each, as boards with `givens` given cells.

    No model was trained on the boards that solve them.
    """
    generator = SudokuPuzzle(
        f"{task.name}-puzzle",
        task.grid.box_rows,
        task.grid.box_columns,
        clues=givens,
        guessing="allowed",
    )
    return generator.to_infill(dataset(generator, "test", count, seed), task)


def solved(
    model: LoadedModel, problems: Examples, setting: SamplingConfig, advance: Advance
) -> NDArray[np.bool_]:
    """Return which of N problems (N,) the model solves: by any solution, if there are several.

    Each is decoded with the random numbers of a problem that is decoded alone.
    """
    task = model.task
    assert isinstance(task, Solvable)
    decoding = DecodeRequest(model, problems.take(slice(1)), setting).decoding
    solved_in_batches = []
    for batch in batches(problems, TOGETHER, device_of(model.net)):
        first_stream = replace(batch, rows=torch.zeros_like(batch.rows))
        decoded = decode_batch(model.net, first_stream, decoding, setting.seed)
        solved_in_batches.append(task.score(decoded.samples, batch.examples)["valid"] == 1)
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
