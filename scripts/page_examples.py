"""Select what the first tab and the race of the page show, and count how often latent tokens matter.

    python scripts/page_examples.py
    python scripts/page_examples.py --scale smoke      # few puzzles, to see that it runs

writes src/latent_tokens/shipped/page.json and prints the counts. It takes a minute on 2 vCPUs.
Run it after scripts/examples.py when the bundled models change: a test compares the hash of their weights
with the file.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from latent_tokens.checkpoints.directory import from_pretrained
from latent_tokens.checkpoints.files import SHIPPED
from latent_tokens.configs import SamplingConfig
from latent_tokens.progress import progress
from latent_tokens.storage import json_bytes, sha256_of, write_atomic
from latent_tokens.tasks import TASKS, Sudoku
from latent_tokens.trace.boards import measured
from latent_tokens.trace.frozen import (
    PAGE_RECORD,
    FrozenBoards,
    PageRecord,
    board_text,
    measure,
    puzzles,
    solved,
)
from latent_tokens.trace.record import LoadedModel

TASK = "sudoku-6"
GIVENS = 14
SEED = 0  # of the puzzles, the cells and every decode
NUM_RACES = 100  # puzzles of the race, and of the tab Curve
NUM_STATES = {"full": 400, "smoke": 4}


def page_record(num_states: int) -> PageRecord:
    """Return what the page shows of the bundled model, measured on this many puzzles."""
    name = f"{TASK}-scdm"
    task = TASKS[TASK]
    assert isinstance(task, Sudoku)
    net = from_pretrained(name)
    problems = puzzles(task, num_states, GIVENS, SEED)
    counts, cell = measure(net, FrozenBoards.draw(problems, SEED), task)
    raced = problems.take(slice(NUM_RACES))
    boards = zip(raced.tokens.tolist(), raced.known.tolist(), strict=True)
    model = LoadedModel(name, net, task)
    results = {}
    for latents in (0, "all"):
        with progress(f"{name}, n = {latents}", len(raced.tokens)) as advance:
            results[str(latents)] = solved(
                model, raced, SamplingConfig(latents, 1, "uniform", seed=SEED), advance
            ).tolist()
    return {
        "model": name,
        "sha256": sha256_of(SHIPPED / name / "model.safetensors"),
        "givens": GIVENS,
        "seed": SEED,
        "counts": counts,
        "cell": cell,
        "race": {"puzzles": [board_text(*board) for board in boards], "solved": results},
        "puzzles": {task: puzzle_texts(task) for task in measured()},
    }


def puzzle_texts(name: str) -> list[str]:
    """Return the first of the puzzles that scripts/examples.py counts."""
    task = TASKS[name]
    assert isinstance(task, Sudoku)
    record = measured()[name]
    drawn = puzzles(task, record["puzzles"], record["givens"], record["seed"]).take(slice(NUM_RACES))
    boards = zip(drawn.tokens.tolist(), drawn.known.tolist(), strict=True)
    return [board_text(*board) for board in boards]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the bundled model, write the record and print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", choices=tuple(NUM_STATES), default="full")
    num_states = NUM_STATES[parser.parse_args(arguments).scale]
    record = page_record(num_states)
    write_atomic({PAGE_RECORD: json_bytes(record)})
    counts = record["counts"]
    print(
        f"{counts['states']} states: {counts['wrong']} wrong without latent tokens; all latent tokens mend "
        f"{counts['mended']} (one suffices for {counts['mended_by_one']}) and spoil {counts['spoiled']}."
    )
    for latents, results in record["race"]["solved"].items():
        print(f"n = {latents}: {sum(results)} of {len(results)} puzzles solved in uniform order")


if __name__ == "__main__":
    main()
