"""The protocol of a task: examples to learn from, text to tokens and back, and a score of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, cast, runtime_checkable

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from latent_tokens.tasks.rng import mixed

Tokens = NDArray[np.uint8 | np.uint16]
TokensLike = ArrayLike
"""A torch tensor, an array or lists of tokens."""
Known = NDArray[np.bool_]
Keys = NDArray[np.uint64]
Scores = dict[str, NDArray[np.float64]]

SPLITS: tuple[Literal["train", "validation", "test"], ...] = ("train", "validation", "test")
HELD_OUT = 16  # one in 16 examples is for validation, and as many are for the test


class Examples(NamedTuple):
    """N examples of at most L positions.

    Attributes:
        tokens: uint8 or uint16, (N, L). Tokens beyond a row's length have no meaning.
        known: bool, (N, L), the given tokens.
        lengths: uint16, (N,), the number of positions of each example.

    Example:
        >>> Examples.of(np.zeros((2, 16), np.uint8), known=3).known.sum()
        6
    """

    tokens: Tokens
    known: Known
    lengths: NDArray[np.uint16]

    @staticmethod
    def of(tokens: Tokens, known: Known | int) -> Examples:
        """Return examples of one length.

        Args:
            tokens: (N, L).
            known: (N, L), or the number of positions that are given, counted from the first.
        """
        count, length = tokens.shape
        if isinstance(known, int):
            known = np.broadcast_to(np.arange(length) < known, tokens.shape).copy()
        return Examples(tokens, known, np.full(count, length, np.uint16))

    @staticmethod
    def padded(
        sequences: Sequence[Sequence[int]],
        given: Sequence[int] | int,
        lengths: Sequence[int] | int | None = None,
        length: int | None = None,
        pad: int = 0,
    ) -> Examples:
        """Return sequences as examples of L positions, in the smallest type that holds their tokens.

        `Examples.padded(sequences, given, L)` is enough if no position follows the tokens of a sequence.

        Args:
            sequences: N sequences of at most L tokens.
            given: The number of given tokens of each, or of all, counted from the first.
            lengths: The number of positions of each. None: that of its tokens. A number is L.
            length: L.
            pad: The token that follows each sequence.

        Raises:
            ValueError: L is missing, or a sequence is longer.

        Example:
            >>> Examples.padded([[1, 2, 3], [1]], 1, 4).lengths.tolist()
            [3, 1]
        """
        if isinstance(lengths, int):
            length = lengths
            lengths = None
        if length is None:
            raise ValueError("length=None: the number of positions is missing. Add length=L.")
        longest = max(map(len, sequences), default=0)
        if longest > length:
            raise ValueError(f"length={length}: a sequence has {longest} tokens. Use length={longest}.")
        largest = max((max(sequence, default=0) for sequence in sequences), default=0)
        tokens = np.full((len(sequences), length), pad, smallest_type(max(largest, pad)))
        for row, sequence in zip(tokens, sequences, strict=True):
            row[: len(sequence)] = sequence
        counts = np.broadcast_to(np.array(given, np.int64), len(sequences))
        known = np.arange(length) < counts.reshape(-1, 1)
        ends = [len(sequence) for sequence in sequences] if lengths is None else lengths
        return Examples(tokens, known, np.array(ends, np.uint16))

    def take(self, which: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Examples:
        """Return the examples of an index, a mask or a slice."""
        return Examples(self.tokens[which], self.known[which], self.lengths[which])


def smallest_type(largest: int) -> type[np.uint8 | np.uint16]:
    """Return the smallest type of tokens that holds a number. Raise ValueError if none does."""
    if largest > np.iinfo(np.uint16).max:
        raise ValueError(f"token {largest}: must be at most {np.iinfo(np.uint16).max}")
    return np.uint8 if largest <= np.iinfo(np.uint8).max else np.uint16


def as_array(tokens: TokensLike) -> Tokens:
    """Return tokens as tasks take them. Raise ValueError for a number that is no token.

    Args:
        tokens: A torch tensor, an array or lists of whole numbers.
    """
    array = np.asarray(tokens.cpu() if hasattr(tokens, "cpu") else tokens)
    if array.dtype in (np.uint8, np.uint16):
        return cast(Tokens, array)
    if array.size and (not np.issubdtype(array.dtype, np.integer) or array.min() < 0):
        raise ValueError(f"tokens of type {array.dtype}: must be whole numbers from 0")
    return cast(Tokens, array.astype(smallest_type(int(array.max(initial=0)))))


def joined(parts: Sequence[Examples]) -> Examples:
    """Return the examples of several sets as one, in their order."""
    return Examples(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


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
