"""What a task is: examples to learn from, text to tokens and back, and a judge that reads the sample alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numba
import numpy as np
from numpy.typing import NDArray

from latent_tokens.tasks.rng import mixed

Tokens = NDArray[np.uint8 | np.uint16]
Known = NDArray[np.bool_]
Keys = NDArray[np.uint64]
Scores = dict[str, NDArray[np.float64]]

SPLITS: tuple[Literal["train", "validation", "test"], ...] = ("train", "validation", "test")
HELD_OUT = 16  # one in so many examples is for validation, and as many for the test


class Examples(NamedTuple):
    """N examples of at most L positions."""

    tokens: Tokens  # (N, L); what stands past a row's length means nothing
    known: Known  # (N, L): given rather than predicted
    lengths: NDArray[np.uint16]  # (N,): positions that take part

    @staticmethod
    def of(tokens: Tokens, known: Known | int) -> Examples:
        """Examples of one length; `known` may be the number of positions, from the first, that are given."""
        count, length = tokens.shape
        if isinstance(known, int):
            known = np.broadcast_to(np.arange(length) < known, tokens.shape).copy()
        return Examples(tokens, known, np.full(count, length, np.uint16))

    @staticmethod
    def padded(
        sequences: Sequence[Sequence[int]],
        given: Sequence[int],
        lengths: Sequence[int],
        length: int,
        pad: int,
    ) -> Examples:
        """Examples of the sequences, of which the first given[i] tokens are given; `pad` stands after their ends."""
        tokens = np.full((len(sequences), length), pad, np.uint8)
        for row, sequence in zip(tokens, sequences, strict=True):
            row[: len(sequence)] = sequence
        known = np.arange(length) < np.array(given, np.int64).reshape(-1, 1)
        return Examples(tokens, known, np.array(lengths, np.uint16))

    def take(self, which: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Examples:
        """Some of the examples."""
        return Examples(self.tokens[which], self.known[which], self.lengths[which])


def joined(parts: Sequence[Examples]) -> Examples:
    """All examples of several sets, in their order."""
    return Examples(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


@runtime_checkable
class Language(Protocol):
    """Sequences to learn. Tokens are 0..vocab_size-1; MASK is not among them."""

    @property
    def name(self) -> str: ...

    @property
    def length(self) -> int:
        """L, positions in a sequence at most."""

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str) -> Examples:
        """What the text gives, as one example that lacks its answer. Raises ValueError naming what is wrong with it."""

    def decode(self, tokens: Tokens) -> str:
        """One sequence (L,) as a person would write it; what is no token shows as empty."""


@runtime_checkable
class Task(Language, Protocol):
    """A problem that can be made and judged.

    It may also have a `temperature` of sampling where none is asked for (1.0 otherwise), and a `note` for manifests.
    """

    @property
    def metric(self) -> str:
        """The key of `score` that counts, a share of samples."""

    @property
    def num_train(self) -> int:
        """Training examples of the paper's data set, or of our small one."""

    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Examples number first .. first+count-1 of the seed, less those that do not fit; the same whatever the calls they are made in."""

    def keys(self, examples: Examples) -> Keys:
        """A number for each of N examples, the same for two that are one in canonical form; of those made here one is kept."""

    def splits(self, examples: Examples) -> NDArray[np.int8]:
        """The split of each of N examples, as an index of SPLITS; a function of its canonical form, so that no two splits share one."""

    def verify(self, tokens: Tokens) -> list[str]:
        """What is wrong with the answer of one sequence (L,), in words, judged by its own problem; nothing where it is right."""

    def score(self, tokens: Tokens, truth: Examples | None = None) -> Scores:
        """For each of N samples (N, L), every figure by its name. Only exactness is judged by `truth`, the stored examples."""


@runtime_checkable
class Solvable(Task, Protocol):
    """A task that can also say whether a problem has an answer."""

    def count_solutions(self, problem: Examples, most: int = 2) -> int | None:
        """How many answers (at most `most`) a problem of one example has; None where it took too long to tell.

        0 always means none; a task whose answers are many by nature may stop at 1.
        """


def split_by_key(keys: Keys) -> NDArray[np.int8]:
    """One in HELD_OUT keys to validation, as many to the test, the others to training."""
    rest = keys % np.uint64(HELD_OUT)
    return np.where(rest == 1, 1, np.where(rest == 2, 2, 0)).astype(np.int8)


@numba.njit(cache=True)
def hash_rows(rows):  # type: ignore[no-untyped-def]
    """A number for each row of uint8[N, M]: equal rows have equal numbers, others hardly ever (64 bits, well mixed)."""
    keys = np.empty(len(rows), np.uint64)
    for i in range(len(rows)):
        key = np.uint64(rows.shape[1])
        for j in range(rows.shape[1]):
            key = mixed(key ^ np.uint64(rows[i, j])) + np.uint64(j)
        keys[i] = mixed(key)
    return keys


def evenly(count: int, most: int) -> NDArray[np.int64]:
    """At most so many of the numbers 0..count-1, evenly spaced."""
    return np.arange(count) if count <= most else np.arange(most) * count // most
