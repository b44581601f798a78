"""latent-tokens solve."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from latent_tokens.commands.shared import Command, OwnCode, latents_in_words
from latent_tokens.configs import DecodeConfig, SamplingConfig

if TYPE_CHECKING:
    from latent_tokens.network.transformer import Transformer
    from latent_tokens.tasks import Examples, Solvable


@dataclass(frozen=True, kw_only=True)
class Solve(Command, DecodeConfig, OwnCode):
    """Solve a puzzle with a model and verify the answer. The exit code is 1 if it is not solved.

    Examples:
        latent-tokens solve 1.....3............2................ --latents all
        latent-tokens solve 1.....3............2................ --latents 4 --candidates 4
    """

    puzzle: Annotated[str, arg(metavar="PUZZLE")]
    """Puzzle to solve, or a file with one. Sudoku: the cells row by row, 0 or . for an empty one.
    Countdown: numbers and target, 86,28,13,31,96. Zebra: clue tokens."""
    run: Annotated[str | None, arg(metavar="RUN")] = None
    """Model that solves it. A run directory, a bundled model, or a name on the Hugging Face Hub.
    Default: the bundled model of the Sudoku's size."""
    attempts: int = 1
    """Number of answers to try. The first valid one is shown."""


def run_solve(command: Solve) -> int:
    """Run `latent-tokens solve`. Print the answer, the verdict and the cost. Return 1 if not solved."""
    from latent_tokens.core.decoding import is_off_distribution
    from latent_tokens.evaluation.problems import solve
    from latent_tokens.evaluation.settings import (
        decoding_for,
        for_puzzles,
        shown_candidates,
        shown_latents,
    )

    # Read the model and the puzzle, and decode.
    name, net, task, problem = model_and_problem(command, puzzle_text(command.puzzle))
    sampling = command.config(SamplingConfig)
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
    print_answer(task, problem, task.decode(attempt.tokens[: problem.lengths[0]]))
    print(verdict, cost, num_latents, sep="\n")
    return 1 if attempt.wrong else 0


def print_answer(task: Solvable, problem: Examples, text: str) -> None:
    """Print an answer. In a terminal the given digits of a board are bold, the decoded ones green."""
    from rich.console import Console
    from rich.text import Text as Styled

    from latent_tokens.tasks import Sudoku
    from latent_tokens.trace.terminal import TERMINAL_STYLES

    if not isinstance(task, Sudoku) or not sys.stdout.isatty():
        print(text)
        return
    (known,) = task.boards(problem.known)
    styled = Styled(text)
    for cell, match in enumerate(re.finditer(r"\d+|\.", text)):
        styled.stylize(TERMINAL_STYLES["known" if known[cell] else "decoded"], *match.span())
    styled.append("\n\n")
    for kind, style in (("given", "known"), ("decoded", "decoded")):
        styled.append(f"{kind}  ", TERMINAL_STYLES[style])
    Console(highlight=False).print(styled)


def model_and_problem(command: Solve, text: str) -> tuple[str, Transformer, Solvable, Examples]:
    """Return the name of the model, the model, its task and the problem of a puzzle.

    Raises:
        ValueError: no model is named, and none is bundled for such puzzles. Or the model has no
            puzzles.
    """
    from latent_tokens.checkpoints.files import bundled_names
    from latent_tokens.hf.directory import from_pretrained
    from latent_tokens.tasks import Text
    from latent_tokens.tasks.sudoku.boards import read_puzzle

    if command.run is not None:
        ((_, net, task),) = command.models(command.run)
        if isinstance(task, Text):
            problem = f"learned {task.name}, which has no puzzles"
            raise ValueError(f"run={command.run}: {problem}. Use latent-tokens sample.")
        return command.run, net, task, task.encode(text)

    for option in ("task", "method", "base"):
        value = getattr(command, option)
        if value is not None:
            raise ValueError(f"{option}={value}: is for a model that --run names. Add --run RUN.")
    if "," in text or "CLUE_END" in text:
        raise ValueError(
            "a Zebra or Countdown puzzle: there is no bundled model for it. Train one and name it with --run."
        )
    sudoku, board = read_puzzle(text)
    name = f"{sudoku.name}-scdm"
    if name not in bundled_names():
        fix = f"Train one (latent-tokens train {sudoku.name} scdm) and name it with --run."
        raise ValueError(f"there is no bundled model for {sudoku.side}x{sudoku.side}. {fix}")
    return name, from_pretrained(name), sudoku, board


def puzzle_text(puzzle: str) -> str:
    """Return the puzzle, or the text of the file of that name."""
    from latent_tokens.data.corpus import file_text

    with suppress(OSError):  # a puzzle may be too long for a name
        if Path(puzzle).is_file():
            return file_text(Path(puzzle))
    return puzzle
