"""Solving a puzzle with a model: clamp what is given, fill in the rest, let the verifier judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checkpoints.pretrained import check_fits
from latent_tokens.core.decoding import Decoding
from latent_tokens.data.tensors import as_numpy, as_tensors
from latent_tokens.network.fast import generate
from latent_tokens.network.transformer import Transformer
from latent_tokens.tasks import Examples, Solvable


@dataclass(frozen=True)
class Attempt:
    """An answered puzzle: its tokens (L,), what is wrong with it, which attempt it was, and tokens processed an attempt."""

    tokens: NDArray[Any]
    wrong: list[str]
    number: int
    processed: int


def solve(
    net: Transformer, task: Solvable, problem: Examples, decoding: Decoding, seed: int, attempts: int
) -> Attempt:
    """The first right one of `attempts` answers to a problem of one example, else the first. Attempt i draws from (seed, i).

    Raises ValueError where no solution exists or the net is of another size.
    """
    check_fits(net, task)
    check_solvable(task, problem)
    device = next(net.parameters()).device
    tokens, known, lengths = as_tensors(problem.take(np.zeros(attempts, np.int64)), device)
    made = generate(net, net.method, tokens, known, decoding, seed, lengths=lengths)
    answers = as_numpy(made.tokens)
    wrong = [task.verify(answer) for answer in answers]
    number = next((i for i, faults in enumerate(wrong) if not faults), 0)
    return Attempt(answers[number], wrong[number], number, int(made.processed[number]))


def check_solvable(task: Solvable, problem: Examples) -> None:
    """Raises ValueError where a problem of one example has no answer."""
    if task.count_solutions(problem, most=1) == 0:
        raise ValueError(
            "puzzle has no solution: its parts do not contradict each other openly, but no answer fits them all"
        )
