"""Select the page's example puzzles: decode generated puzzles and count what latent tokens change.

    python scripts/examples.py
    python scripts/examples.py --scale smoke      # few puzzles, to see that it runs

writes src/latent_tokens/shipped/examples.json and prints the counts. It takes 4 minutes on 2 vCPUs.
Run it again after the bundled models change: a test compares the hash of their weights with the file.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from latent_tokens.checkpoints.directory import from_pretrained
from latent_tokens.checkpoints.files import SHIPPED
from latent_tokens.configs import SamplingConfig
from latent_tokens.progress import progress
from latent_tokens.storage import json_bytes, sha256_of, write_atomic
from latent_tokens.tasks import TASKS, Examples
from latent_tokens.trace.boards import COMPARISONS, MEASURED, Comparison
from latent_tokens.trace.frozen import compared, puzzles, solved
from latent_tokens.trace.record import LoadedModel

LATENTS: tuple[int | Literal["all"], ...] = (0, 4, "all")
SEED = 0  # of the puzzles, and of every decode
KEPT: dict[Comparison, int] = {"gained": 3, "lost": 1, "both": 1}


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


def measure(puzzle_set: PuzzleSet) -> dict[str, Any]:
    """Return the record of one task: the counts over the set, and the first puzzles of each kind in KEPT."""
    name = f"{puzzle_set.task}-scdm"
    model = LoadedModel(name, from_pretrained(name), TASKS[puzzle_set.task])
    problems = puzzles(model.task, puzzle_set.num_puzzles, puzzle_set.num_givens, SEED)
    results = {}
    for latents in LATENTS:
        with progress(f"{name}, n = {latents}", puzzle_set.num_puzzles) as advance:
            results[str(latents)] = solved(
                model, problems, SamplingConfig(latents, puzzle_set.candidates, seed=SEED), advance
            )
    kinds = np.where(
        results["all"], np.where(results["0"], "both", "gained"), np.where(results["0"], "lost", "neither")
    )
    chosen = [
        (kind, int(index)) for kind, count in KEPT.items() for index in np.flatnonzero(kinds == kind)[:count]
    ]
    return {
        "model": name,
        "sha256": sha256_of(SHIPPED / name / "model.safetensors"),
        "puzzles": puzzle_set.num_puzzles,
        "givens": puzzle_set.num_givens,
        "candidates": puzzle_set.candidates,
        "seed": SEED,
        "solved": {latents: int(solved_mask.sum()) for latents, solved_mask in results.items()},
        **compared(results["0"], results["all"]),
        "examples": [
            {
                "puzzle": as_text(problems, index),
                "kind": kind,
                "solved": {latents: bool(solved_mask[index]) for latents, solved_mask in results.items()},
            }
            for kind, index in chosen
        ],
    }


def as_text(problems: Examples, index: int) -> str:
    """Return a puzzle as one line of digits, with a dot for each empty cell."""
    tokens = problems.tokens[index].tolist()
    known = problems.known[index].tolist()
    return "".join(str(token + 1) if given else "." for token, given in zip(tokens, known, strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each set, write the records and print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", choices=tuple(SETS), default="full")
    sets = SETS[parser.parse_args(arguments).scale]
    records = {puzzle_set.task: measure(puzzle_set) for puzzle_set in sets}
    write_atomic({MEASURED: json_bytes(records)})
    for task, record in records.items():
        rates = ", ".join(
            f"n = {latents}: {count} ({100 * count / record['puzzles']:.1f}%)"
            for latents, count in record["solved"].items()
        )
        print(
            f"{task}, {record['puzzles']} puzzles, {record['givens']} givens, "
            f"k = {record['candidates']}. Solved at {rates}."
        )
        for kind, words in COMPARISONS.items():
            print(f"  {words}: {record[kind]}")


if __name__ == "__main__":
    main()
