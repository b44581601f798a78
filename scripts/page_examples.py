"""Select the example puzzles of the page, and count how often latent tokens matter.

    python scripts/page_examples.py
    python scripts/page_examples.py --scale smoke      # few puzzles, to see that it runs

writes examples.json (puzzles solved with and without latent tokens) and page.json (the first tab and
the race) into src/latent_tokens/bundled, and prints the counts. It takes 5 minutes on 2 vCPUs. Run it again
after the bundled models change: a test compares the hash of their weights with the files.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checkpoints.directory import from_pretrained
from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.configs import SamplingConfig
from latent_tokens.progress import progress
from latent_tokens.storage import json_bytes, sha256_of, write_atomic
from latent_tokens.tasks import TASKS, Examples, Sudoku
from latent_tokens.trace.boards import COMPARISONS, MEASURED, Comparison, measured
from latent_tokens.trace.frozen import (
    PAGE_RECORD,
    FrozenBoards,
    PageRecord,
    board_text,
    compared,
    measure,
    puzzles,
    solved,
)
from latent_tokens.trace.record import LoadedModel

LATENTS: tuple[int | Literal["all"], ...] = (0, 4, "all")
SEED = 0  # of the puzzles, the cells and every decode
KEPT: dict[Comparison, int] = {"gained": 3, "lost": 1, "both": 1}
NUM_RACES = 100  # puzzles of the race, and of the tab Curve


class PuzzleSet(NamedTuple):
    """Generated puzzles with one solution each, and the candidate set size k to decode them with."""

    task: str
    num_puzzles: int
    num_givens: int
    candidates: int


SETS = {
    "full": (PuzzleSet("sudoku-6", 400, 14, 4), PuzzleSet("sudoku-9", 150, 36, 8)),
    "smoke": (PuzzleSet("sudoku-6", 2, 24, 4), PuzzleSet("sudoku-9", 1, 60, 8)),
}
ON_PAGE = {"full": PuzzleSet("sudoku-6", 400, 14, 1), "smoke": PuzzleSet("sudoku-6", 4, 14, 1)}


def loaded(task: str) -> LoadedModel:
    """Return the bundled scdm of a task."""
    return LoadedModel(f"{task}-scdm", from_pretrained(f"{task}-scdm"), TASKS[task])


def drawn(puzzle_set: PuzzleSet) -> Examples:
    """Return the puzzles of a set."""
    task = TASKS[puzzle_set.task]
    assert isinstance(task, Sudoku)
    return puzzles(task, puzzle_set.num_puzzles, puzzle_set.num_givens, SEED)


def solved_by_latents(
    model: LoadedModel, problems: Examples, numbers: Sequence[int | Literal["all"]], *settings: Any
) -> dict[str, NDArray[np.bool_]]:
    """Return which problems a model solves with each number of latent tokens."""
    results = {}
    for latents in numbers:
        with progress(f"{model.name}, n = {latents}", len(problems.tokens)) as advance:
            sampling = SamplingConfig(latents, *settings, seed=SEED)
            results[str(latents)] = solved(model, problems, sampling, advance)
    return results


def example_record(puzzle_set: PuzzleSet) -> dict[str, Any]:
    """Return the record of one task: the counts over the set, and the first puzzles of each kind in KEPT."""
    model = loaded(puzzle_set.task)
    problems = drawn(puzzle_set)
    results = solved_by_latents(model, problems, LATENTS, puzzle_set.candidates)
    with_all = np.where(results["0"], "both", "gained")
    kinds = np.where(results["all"], with_all, np.where(results["0"], "lost", "neither"))
    chosen = [(kind, int(i)) for kind, count in KEPT.items() for i in np.flatnonzero(kinds == kind)[:count]]
    texts = texts_of(problems)
    return {
        "model": model.name,
        "sha256": sha256_of(BUNDLED / model.name / "model.safetensors"),
        "puzzles": puzzle_set.num_puzzles,
        "givens": puzzle_set.num_givens,
        "candidates": puzzle_set.candidates,
        "seed": SEED,
        "solved": {latents: int(is_solved.sum()) for latents, is_solved in results.items()},
        **compared(results["0"], results["all"]),
        "examples": [
            {
                "puzzle": texts[index],
                "kind": kind,
                "solved": {latents: bool(is_solved[index]) for latents, is_solved in results.items()},
            }
            for kind, index in chosen
        ],
    }


def page_record(puzzle_set: PuzzleSet) -> PageRecord:
    """Return what the page shows of the bundled model, measured on this many puzzles."""
    model = loaded(puzzle_set.task)
    problems = drawn(puzzle_set)
    counts, cell = measure(model.net, FrozenBoards.draw(problems, SEED), model.task)
    raced = problems.take(slice(NUM_RACES))
    results = solved_by_latents(model, raced, (0, "all"), puzzle_set.candidates, "uniform")
    first_of_sets = {
        task: texts_of(drawn(PuzzleSet(task, record["puzzles"], record["givens"], 0)))[:NUM_RACES]
        for task, record in measured().items()
    }
    return {
        "model": model.name,
        "sha256": sha256_of(BUNDLED / model.name / "model.safetensors"),
        "givens": puzzle_set.num_givens,
        "seed": SEED,
        "counts": counts,
        "cell": cell,
        "race": {
            "puzzles": texts_of(raced),
            "solved": {latents: is_solved.tolist() for latents, is_solved in results.items()},
        },
        "puzzles": first_of_sets,
    }


def texts_of(problems: Examples) -> list[str]:
    """Return each puzzle as one line of digits, with a dot for each empty cell."""
    boards = zip(problems.tokens.tolist(), problems.known.tolist(), strict=True)
    return [board_text(*board) for board in boards]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the bundled models, write the records and print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", choices=tuple(SETS), default="full")
    scale = parser.parse_args(arguments).scale
    records = {puzzle_set.task: example_record(puzzle_set) for puzzle_set in SETS[scale]}
    write_atomic({MEASURED: json_bytes(records)})
    for task, record in records.items():
        rates = ", ".join(f"n = {latents}: {count}" for latents, count in record["solved"].items())
        kinds = ", ".join(f"{words}: {record[kind]}" for kind, words in COMPARISONS.items())
        print(f"{task}, {record['puzzles']} puzzles, solved at {rates}. {kinds}.")

    page = page_record(ON_PAGE[scale])
    write_atomic({PAGE_RECORD: json_bytes(page)})
    print(f"Cells predicted without and with latent tokens: {page['counts']}")
    for latents, results in page["race"]["solved"].items():
        print(f"n = {latents}: {sum(results)} of {len(results)} puzzles solved in uniform order")


if __name__ == "__main__":
    main()
