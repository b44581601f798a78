"""Solve a puzzle with a model: clamp the given tokens, decode the others, verify the answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latent_tokens.checkpoints.pretrained import check_fits
from latent_tokens.core.decoding import Decoding
from latent_tokens.evaluation.problems import Batch, decode_batch, device_of
from latent_tokens.network.transformer import Transformer
from latent_tokens.tasks import Examples, Solvable, errors_of


@dataclass(frozen=True)
class Attempt:
    """An answered puzzle."""

    tokens: np.ndarray  # (L,), of unsigned integers
    wrong: list[str]  # the faults that the verifier lists, none if it is solved
    number: int  # which attempt it was, from 0
    processed: int  # tokens processed by the attempt


def solve(
    net: Transformer, task: Solvable, problem: Examples, decoding: Decoding, seed: int, attempts: int
) -> Attempt:
    """Return the first correct one of `attempts` answers to a problem of one example, else the first.

    Attempt i draws from the random stream (seed, i).

    Args:
        net: the network, with its method.
        task: the task that it learned.
        problem: one example.
        decoding: the settings of decoding.
        seed: of the random streams.
        attempts: the number of answers to try.

    Raises:
        ValueError: the problem has no solution, or the net is of another size.

    Example:
        >>> problem = task.encode("1.....3............2................")
        >>> solve(net, task, problem, Decoding(candidates=8, latents=4), seed=0, attempts=5).tokens.shape
        (36,)
    """
    check_fits(net, task)
    check_solvable(task, problem)
    batch = Batch.of(problem.take(np.zeros(attempts, np.int64)), device_of(net))
    decoded = decode_batch(net, batch, decoding, seed)
    length = int(problem.lengths[0])
    wrong = [errors_of(task, answer, length) for answer in decoded.samples]
    number = next((i for i, faults in enumerate(wrong) if not faults), 0)
    processed = int(decoded.generated.processed[number])
    return Attempt(decoded.samples[number], wrong[number], number, processed)


def check_solvable(task: Solvable, problem: Examples) -> None:
    """Raise ValueError if a problem of one example has no solution."""
    if task.count_solutions(problem, most=1) == 0:
        raise ValueError(
            "puzzle has no solution: its parts do not contradict each other openly, "
            "but no answer fits them all"
        )
