"""latent-tokens solve."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from latent_tokens.checks import whole
from latent_tokens.commands.shared import task_of
from latent_tokens.configs import DEFAULT_CANDIDATES


@dataclass(frozen=True)
class Solve:
    """Answer a puzzle with a model and say whether it is solved. Exit code 1 where it is not."""

    puzzle: Positional[str]
    """Sudoku: its cells row by row, 0 or . for an empty one. Countdown: numbers and target, 86,28,13,31,96. Zebra: clue tokens. Or a file."""
    run: str | None = None
    """A run folder, or the name of a model that comes along. Default: the one that comes along for the Sudoku's size."""
    latents: int | Literal["all"] | None = None
    """Latent tokens to show. Default: as many as the method can use."""
    candidates: int | Literal["all", "growing"] | None = None
    """Of how many next cells the most confident is decoded (k): a number, all, or growing with the clean ones. Default: all, with --latents 8,
    1 from left to right."""
    temperature: float = 0.0
    """0 takes the likeliest token."""
    attempts: int = 1
    """Answers to try; the first right one is shown."""
    seed: int = 0
    """Attempt i draws from the stream (seed, i)."""


def run_solve(command: Solve) -> int:
    """latent-tokens solve: the answer and the verdict; 1 where it is not solved."""
    from latent_tokens.decoding import Decoding
    from latent_tokens.evaluation import named_candidates
    from latent_tokens.methods import most_latents
    from latent_tokens.order import left_to_right
    from latent_tokens.pretrained import find, from_pretrained, shipped_names
    from latent_tokens.solving import solve
    from latent_tokens.tasks import Solvable
    from latent_tokens.tasks.sudoku import read_puzzle

    whole("attempts", command.attempts, 1)
    text = puzzle_text(command.puzzle)
    if command.run is None:
        if "," in text or "CLUE_END" in text:
            raise ValueError("a puzzle of Zebra or Countdown: no model of these comes along; train one and name it with --run")
        task, problem = read_puzzle(text)
        name = f"{task.name}-scdm"
        if name not in shipped_names():
            raise ValueError(
                f"no model for {task.side}x{task.side} comes along; train one (latent-tokens train {task.name} scdm) and name it with --run"
            )
        net = from_pretrained(name)
    else:
        name, net = command.run, from_pretrained(command.run)
        task = task_of(find(name))
        if not isinstance(task, Solvable):
            raise ValueError(f"run={name}: a model of {task.name}, which has no puzzles; use latent-tokens sample")
        problem = task.encode(text)
    free: int | Literal["all"] = "all" if command.latents is None else DEFAULT_CANDIDATES  # where all are candidates there are no latents
    candidates = command.candidates or (1 if net.method.order is left_to_right else free)
    latents = most_latents(net.method) if command.latents is None else command.latents
    decoding = Decoding(named_candidates(candidates), latents, temperature=command.temperature)
    attempt = solve(net, task, problem, decoding, command.seed, command.attempts)
    verdict = "\n  ".join(["not solved:", *attempt.wrong]) if attempt.wrong else "solved"
    tried = f"attempt {attempt.number + 1} of {command.attempts}; " if command.attempts > 1 else ""
    print(task.decode(attempt.tokens), verdict, f"{tried}{attempt.processed:,} tokens processed by {name}", sep="\n")
    return 1 if attempt.wrong else 0


def puzzle_text(puzzle: str) -> str:
    """The puzzle itself, or what the file of that name holds."""
    try:
        path = Path(puzzle)
        return path.read_text() if path.is_file() else puzzle
    except UnicodeDecodeError:
        raise ValueError(f"{puzzle}: holds no text") from None
    except OSError:
        return puzzle
