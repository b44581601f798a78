"""The protocol of a task: examples to learn from, text to tokens and back, and a score of samples."""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

import numba
import numpy as np
from numpy.typing import NDArray

from latent_tokens.tasks.examples import Examples, Known, Tokens, TokensLike, as_array, joined
from latent_tokens.tasks.rng import mixed

__all__ = [
    "HELD_OUT",
    "SPLITS",
    "Examples",
    "Keys",
    "Known",
    "Language",
    "Scores",
    "Solvable",
    "Task",
    "Tokens",
    "TokensLike",
    "as_array",
    "evenly",
    "hash_rows",
    "joined",
    "split_by_key",
]

Keys = NDArray[np.uint64]
Scores = dict[str, NDArray[np.float64]]

SPLITS: tuple[Literal["train", "validation", "test"], ...] = ("train", "validation", "test")
HELD_OUT = 16  # one in 16 examples is for validation, and as many are for the test


@runtime_checkable
class Language(Protocol):
    """Sequences to learn. Tokens are 0..vocab_size-1, without MASK."""

    @property
    def name(self) -> str:
        """The name on the command line and in manifests."""

    @property
    def length(self) -> int:
        """L, the maximum number of positions of a sequence."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens without MASK."""

    def encode(self, text: str) -> Examples:
        """Return a prompt as one example without its answer. Raise ValueError naming the error."""

    def decode(self, tokens: Tokens) -> str:
        """Return one sequence (L,) as text. Tokens that are out of place read as empty."""


@runtime_checkable
class Task(Language, Protocol):
    """A problem that can be generated and scored.

    A task may also have a `temperature`, the default one of sampling (otherwise 1.0), a `note` for manifests,
    a `pad`, the token that follows the end of an answer, and `symbols`, the text of each token, from which a
    tokenizer is made.

    Example:
        >>> task = TASKS["sudoku-4"]
        >>> examples = task.generate(2, seed=0)
        >>> task.score(examples.tokens)["valid"].tolist()
        [1.0, 1.0]
    """

    @property
    def metric(self) -> str:
        """The main key of `score`, a share of samples."""

    @property
    def num_train(self) -> int:
        """The default number of training examples: the paper's, or that of a small task."""

    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Generate examples number first .. first+count-1 of a seed, without those that do not fit.

        An example depends on the seed and its number only.

        Args:
            count: How many numbers of the seed to try.
            seed: The seed.
            first: The first number.

        Returns:
            At most `count` examples (N, L).
        """

    def keys(self, examples: Examples) -> Keys:
        """Return a key for each of N examples, equal for examples with the same canonical form."""

    def splits(self, examples: Examples) -> NDArray[np.int8]:
        """Return the split of each of N examples as an index of SPLITS, by its canonical form."""

    def verify(self, tokens: Tokens) -> list[str]:
        """Return the errors of one sequence (L,) in words, judged by its own problem."""

    def score(self, tokens: Tokens, truth: Examples | None = None) -> Scores:
        """Score N samples.

        Args:
            tokens: The samples, (N, L).
            truth: The stored examples, by which only exactness is judged.

        Returns:
            Every figure by its name, float64, (N,).
        """


@runtime_checkable
class Solvable(Task, Protocol):
    """A task that can count the answers of a problem."""

    def count_solutions(self, problem: Examples, most: int = 2) -> int | None:
        """Return how many answers (at most `most`) a problem has, or None if it takes too long.

        0 always means no answer. A task with many answers per problem may stop at 1.
        """


def check_tokens(task: Language, tokens: Tokens, where: Known, name: str, fix: str) -> None:
    """Raise ValueError if tokens have another length than the task, or one is not of its vocabulary.

    Args:
        task: the task.
        tokens: the tokens, (N, L).
        where: the positions to check, (N, L).
        name: the argument that holds the tokens, for the message.
        fix: how to correct a token.
    """
    if tokens.shape[1] != task.length:
        raise ValueError(
            f"{name} of {tokens.shape[1]} positions: {task.name} has {task.length}. Use {task.length}."
        )
    for token in (int(tokens.min(where=where, initial=0)), int(tokens.max(where=where, initial=0))):
        if not 0 <= token < task.vocab_size:
            tokens_of_task = f"the tokens 0-{task.vocab_size - 1}"
            raise ValueError(f"{name} with token {token}: {task.name} has {tokens_of_task}. {fix}.")


def scores_of(task: Task, tokens: Tokens, truth: Examples | None) -> Scores:
    """Return `task.score` of N samples (N, L).

    Raises:
        ValueError: it lacks the metric of the task, or the metric is not a share.
    """
    scores = task.score(tokens, truth)
    if task.metric not in scores:
        raise ValueError(
            f"metric={task.metric}: score of {task.name} has {', '.join(scores)}. Correct metric or score."
        )
    values = scores[task.metric]
    wrong = values[~((values >= 0) & (values <= 1))]
    if len(wrong):
        raise ValueError(
            f"metric={task.metric}: score of {task.name} has {wrong[0]:g}, "
            "and a metric is a share from 0 to 1. Scale it, or name another figure as metric."
        )
    return scores


def split_by_key(keys: Keys) -> NDArray[np.int8]:
    """Return 1 (validation) for one in HELD_OUT keys, 2 (test) for as many, and 0 (train) for the others."""
    rest = keys % np.uint64(HELD_OUT)
    return np.where(rest == 1, 1, np.where(rest == 2, 2, 0)).astype(np.int8)


@numba.njit(cache=True)
def hash_rows(rows):  # type: ignore[no-untyped-def]
    """Return a 64-bit hash for each row of uint8[N, M]."""
    keys = np.empty(len(rows), np.uint64)
    for i in range(len(rows)):
        key = np.uint64(rows.shape[1])
        for j in range(rows.shape[1]):
            key = mixed(key ^ np.uint64(rows[i, j])) + np.uint64(j)
        keys[i] = mixed(key)
    return keys


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` of the numbers 0..count-1, evenly spaced."""
    return np.arange(count) if count <= most else np.arange(most) * count // most
