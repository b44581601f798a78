"""latent-tokens solve."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from latent_tokens.checks import check_int
from latent_tokens.commands.options import Settings
from latent_tokens.commands.shared import OwnCode, latents_in_words
from latent_tokens.configs import SamplingConfig

PUZZLE_DEFAULTS = {
    "latents": "all that are not candidates",
    "temperature": "0",
}
"""The defaults of `evaluation.settings.for_puzzles`, in words."""


@dataclass(frozen=True)
class Solve:
    """Solve a puzzle with a model and verify the answer. Exit code 1 if it is not solved."""

    puzzle: Positional[str]
    """Puzzle to solve, or a file with one. Sudoku: the cells row by row, 0 or . for an empty one. Countdown:
    numbers and target, 86,28,13,31,96. Zebra: clue tokens."""
    run: str | None = None
    """Model that solves it. A run directory, a bundled model, or a name on the Hugging Face Hub. Default: the
    bundled model of the Sudoku's size."""
    sampling: Annotated[
        SamplingConfig,
        Settings(
            ("latents", "candidates", "temperature", "seed", "off_distribution"),
            defaults=PUZZLE_DEFAULTS,
            helps={"seed": "Random seed. Attempt i depends on (seed, i) only."},
        ),
    ] = field(default_factory=SamplingConfig)
    own: Annotated[OwnCode, Settings(("task", "method"))] = field(default_factory=OwnCode)
    attempts: int = 1
    """Number of answers to try. The first valid one is shown."""


def run_solve(command: Solve) -> int:
    """Run `latent-tokens solve`. Print the answer, the verdict and the cost. Return 1 if it is not solved."""
    from latent_tokens.checkpoints.directory import from_pretrained, learned_task, opened
    from latent_tokens.checkpoints.files import bundled_names, find
    from latent_tokens.core.decoding import is_off_distribution
    from latent_tokens.evaluation.problems import solve
    from latent_tokens.evaluation.settings import (
        decoding_for,
        for_puzzles,
        shown_candidates,
        shown_latents,
    )
    from latent_tokens.tasks import Solvable, Text
    from latent_tokens.tasks.sudoku.boards import read_puzzle

    # Read the model and the puzzle.
    check_int("attempts", command.attempts, 1)
    check_own(command)
    text = puzzle_text(command.puzzle)
    if command.run is None:
        if "," in text or "CLUE_END" in text:
            raise ValueError(
                "a Zebra or Countdown puzzle: there is no bundled model for it. "
                "Train one and name it with --run."
            )
        sudoku, problem = read_puzzle(text)
        name = f"{sudoku.name}-scdm"
        if name not in bundled_names():
            raise ValueError(
                f"there is no bundled model for {sudoku.side}x{sudoku.side}. "
                f"Train one (latent-tokens train {sudoku.name} scdm) and name it with --run."
            )
        net = from_pretrained(name)
        task: Solvable = sudoku
    else:
        name = command.run
        net = opened(name, command.own.method)
        learned = learned_task(find(name), command.own.task)
        if isinstance(learned, Text):
            raise ValueError(
                f"run={name}: learned {learned.name}, which has no puzzles. Use latent-tokens sample."
            )
        task = learned
        problem = task.encode(text)

    # Decode.
    sampling = command.sampling
    decoding = decoding_for(net.method, task, for_puzzles(net.method, sampling))
    attempt = solve(net, task, problem, decoding, sampling.seed, command.attempts)

    # Print the answer.
    verdict = "\n  ".join(["not solved:", *attempt.wrong]) if attempt.wrong else "solved"
    tried = f"attempt {attempt.number + 1} of {command.attempts}, " if command.attempts > 1 else ""
    cost = f"{tried}{attempt.processed:,} tokens processed by {name}"
    num_latents = latents_in_words(
        shown_latents(net.method, decoding),
        shown_candidates(net.method, decoding),
        is_off_distribution(net.method, decoding.latents),
    )
    print(task.decode(attempt.tokens[: problem.lengths[0]]), verdict, cost, num_latents, sep="\n")
    return 1 if attempt.wrong else 0


def check_own(command: Solve) -> None:
    """Raise ValueError for a task or method of a bundled model, which has its own."""
    for name in ("task", "method"):
        value = getattr(command.own, name)
        if command.run is None and value is not None:
            raise ValueError(f"{name}={value}: is for a model that --run names. Add --run RUN.")


def puzzle_text(puzzle: str) -> str:
    """Return the puzzle, or the text of the file of that name."""
    try:
        path = Path(puzzle)
        return path.read_text() if path.is_file() else puzzle
    except UnicodeDecodeError:
        raise ValueError(f"{puzzle}: is not a text file. Name a text file, or type the puzzle.") from None
    except OSError:
        return puzzle
