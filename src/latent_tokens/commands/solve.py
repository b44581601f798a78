"""latent-tokens solve."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from latent_tokens.checks import check_int
from latent_tokens.commands.shared import check_counts, latents_in_words, sampling_of, task_of
from latent_tokens.configs import NumCandidates, NumLatents


@dataclass(frozen=True)
class Solve:
    """Solve a puzzle with a model and verify the answer. Exit code 1 if it is not solved."""

    puzzle: Positional[str]
    """Puzzle to solve, or a file with one. Sudoku: the cells row by row, 0 or . for an empty one. Countdown:
    numbers and target, 86,28,13,31,96. Zebra: clue tokens."""
    run: str | None = None
    """Model that solves it. A run directory, a bundled model, or a name on the Hugging Face Hub. Default: the
    bundled model of the Sudoku's size."""
    latents: NumLatents | None = None
    """Number of latent tokens (n) in the input. A number or all. With n = 0 the input still has the other k -
    1 candidates. Default: all that are not candidates, which is none unless --candidates is below all."""
    candidates: NumCandidates | None = None
    """Number of candidates (k): the most confident of the next k masked tokens is decoded. A number, all, or
    growing (clean tokens + 1). Default: all, which leaves no latent tokens, 8 with --latents, 1 from left to
    right."""
    temperature: float = 0.0
    """Sampling temperature. 0 takes the most likely token."""
    attempts: int = 1
    """Number of answers to try. The first valid one is shown."""
    seed: int = 0
    """Random seed. Attempt i depends on (seed, i) only."""


def run_solve(command: Solve) -> int:
    """Run `latent-tokens solve`. Print the answer, the verdict and the cost. Return 1 if it is not solved."""
    from latent_tokens.checkpoints.pretrained import find, from_pretrained, shipped_names
    from latent_tokens.evaluation.settings import (
        decoding_for,
        for_puzzles,
        order_for,
        shown_candidates,
        shown_latents,
    )
    from latent_tokens.evaluation.solve import solve
    from latent_tokens.tasks import Solvable
    from latent_tokens.tasks.sudoku.boards import read_puzzle

    # Read the model and the puzzle.
    check_int("attempts", command.attempts, 1)
    text = puzzle_text(command.puzzle)
    if command.run is None:
        if "," in text or "CLUE_END" in text:
            raise ValueError(
                "a Zebra or Countdown puzzle: there is no bundled model for it. "
                "Train one and name it with --run."
            )
        task, problem = read_puzzle(text)
        name = f"{task.name}-scdm"
        if name not in shipped_names():
            raise ValueError(
                f"there is no bundled model for {task.side}x{task.side}. "
                f"Train one (latent-tokens train {task.name} scdm) and name it with --run."
            )
        net = from_pretrained(name)
    else:
        name = command.run
        net = from_pretrained(name)
        task = task_of(find(name))
        if not isinstance(task, Solvable):
            raise ValueError(
                f"run={name}: learned {task.name}, which has no puzzles. Use latent-tokens sample."
            )
        problem = task.encode(text)

    # Decode.
    sampling = sampling_of(command)
    order = order_for(net.method, task, sampling)
    check_counts(net.method, order, [sampling.latents], sampling.candidates)
    decoding = decoding_for(net.method, task, for_puzzles(net.method, sampling))
    attempt = solve(net, task, problem, decoding, command.seed, command.attempts)

    # Print the answer.
    verdict = "\n  ".join(["not solved:", *attempt.wrong]) if attempt.wrong else "solved"
    tried = f"attempt {attempt.number + 1} of {command.attempts}; " if command.attempts > 1 else ""
    cost = f"{tried}{attempt.processed:,} tokens processed by {name}"
    num_latents = latents_in_words(shown_latents(net.method, decoding), shown_candidates(decoding))
    print(task.decode(attempt.tokens), verdict, cost, num_latents, sep="\n")
    return 1 if attempt.wrong else 0


def puzzle_text(puzzle: str) -> str:
    """Return the puzzle, or the text of the file of that name."""
    try:
        path = Path(puzzle)
        return path.read_text() if path.is_file() else puzzle
    except UnicodeDecodeError:
        raise ValueError(f"{puzzle}: is not a text file. Name a text file, or type the puzzle.") from None
    except OSError:
        return puzzle
