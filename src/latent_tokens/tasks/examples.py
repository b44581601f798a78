"""Examples as arrays, and tokens as tasks take them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from datasets import Dataset as HuggingFaceDataset


Tokens = NDArray[np.uint8 | np.uint16 | np.uint32]
TokensLike = ArrayLike
"""A torch tensor, an array or lists of tokens."""
Known = NDArray[np.bool_]
Index = NDArray[np.int64] | NDArray[np.bool_] | slice


class Example(TypedDict):
    """One example, as a torch DataLoader collates it."""

    tokens: NDArray[np.int64]  # (L,)
    known: Known  # (L,)
    length: int


@dataclass(frozen=True, eq=False)
class Examples:
    """N examples of at most L positions: a data set for torch's DataLoader.

    `len(examples)` is N and `examples[i]` one example, with "tokens", "known" and "length". A
    slice, a mask or an array of indices selects examples. Iteration is for `tokens, known, lengths
    = examples`.

    Attributes:
        tokens: uint8, uint16 or uint32, (N, L). Tokens beyond a row's length have no meaning.
        known: bool, (N, L), the given tokens.
        lengths: uint16, (N,), the number of positions of each example.

    Example:
        >>> examples = Examples.of(np.zeros((2, 16), np.uint8), known=3)
        >>> len(examples), int(examples[0]["known"].sum())
        (2, 3)
    """

    tokens: Tokens
    known: Known
    lengths: NDArray[np.uint16]

    _fields: ClassVar = ("tokens", "known", "lengths")

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return iter((self.tokens, self.known, self.lengths))

    @overload
    def __getitem__(self, which: int) -> Example: ...

    @overload
    def __getitem__(self, which: Index) -> Examples: ...

    def __getitem__(self, which: int | Index) -> Example | Examples:
        if not isinstance(which, int | np.integer):
            return self.take(which)
        tokens = self.tokens[which].astype(np.int64)
        return Example(
            tokens=tokens, known=self.known[which].copy(), length=int(self.lengths[which])
        )

    @property
    def inside(self) -> Known:
        """The positions that each example has: bool, (N, L)."""
        inside: Known = np.arange(self.tokens.shape[1]) < self.lengths[:, None]
        return inside

    def _replace(self, **arrays: NDArray[Any]) -> Examples:
        return replace(self, **arrays)

    def to_hf(self) -> HuggingFaceDataset:
        """Return a Dataset of the library datasets, which must be installed."""
        from datasets import Dataset

        columns = {
            "tokens": self.tokens.astype(np.int64),
            "known": self.known,
            "length": self.lengths,
        }
        return Dataset.from_dict(columns)

    @staticmethod
    def of(tokens: Tokens, known: Known | int, lengths: ArrayLike | None = None) -> Examples:
        """Return examples of arrays.

        Args:
            tokens: (N, L).
            known: (N, L), or the number of positions that are given, counted from the first.
            lengths: The number of positions of each, (N,). None: L.
        """
        if np.ndim(tokens) != 2:
            raise ValueError(
                f"tokens {np.shape(tokens)}: must be (N, L). Use tokens[None] for one."
            )
        count, length = tokens.shape
        if isinstance(known, int | np.integer):
            known = np.broadcast_to(np.arange(length) < known, tokens.shape).copy()
        ends = np.full(count, length) if lengths is None else np.asarray(lengths)
        shapes = (("known", np.shape(known), (count, length)), ("lengths", ends.shape, (count,)))
        for name, shape, must in shapes:
            if shape != must:
                raise ValueError(f"{name} {shape}: must be {must} for tokens {count, length}")
        if (ends > length).any():
            raise ValueError(f"lengths up to {ends.max()}: must be at most {length}")
        return Examples(tokens, known, ends.astype(np.uint16))

    @staticmethod
    def padded(
        sequences: Sequence[Sequence[int]],
        given: Sequence[int] | int,
        length: int,
        lengths: Sequence[int] | None = None,
        pad: int = 0,
    ) -> Examples:
        """Return sequences as examples of L positions, in the smallest type that holds their tokens.

        Args:
            sequences: N sequences of at most L tokens.
            given: The number of given tokens of each, or of all, counted from the first.
            length: L.
            lengths: The number of positions of each. None: that of its tokens.
            pad: The token that follows each sequence.

        Raises:
            ValueError: A sequence is longer, or a token is negative.

        Example:
            >>> Examples.padded([[1, 2, 3], [1]], 1, 4).lengths.tolist()
            [3, 1]
        """
        ends = [len(sequence) for sequence in sequences]
        longest = max(ends, default=0)
        if longest > length:
            raise ValueError(
                f"length={length}: a sequence has {longest} tokens. Use length={longest}."
            )
        flat = as_array([*chain(*sequences), pad])
        tokens = np.full((len(sequences), length), pad, flat.dtype)
        tokens[np.arange(length) < np.array(ends, np.int64)[:, None]] = flat[:-1]
        counts = np.broadcast_to(np.array(given, np.int64), len(sequences))
        known = np.arange(length) < counts[:, None]
        return Examples.of(tokens, known, ends if lengths is None else lengths)

    def take(self, which: Index) -> Examples:
        """Return the examples of an index, a mask or a slice."""
        return Examples(self.tokens[which], self.known[which], self.lengths[which])


def stack(items: Sequence[Example]) -> Examples:
    """Return single examples of one length L as a set."""
    rows = [(item["tokens"], item["known"], item["length"]) for item in items]
    tokens, known, lengths = map(np.stack, zip(*rows, strict=True))
    return Examples(tokens, known.astype(np.bool_), lengths)


def smallest_type(largest: int) -> type[np.uint8 | np.uint16 | np.uint32]:
    """Return the smallest type of tokens that holds a number."""
    if largest > np.iinfo(np.uint16).max:
        return np.uint32
    return np.uint8 if largest <= np.iinfo(np.uint8).max else np.uint16


def as_array(tokens: TokensLike) -> Tokens:
    """Return tokens as tasks take them. Raise ValueError for a number that is no token.

    Args:
        tokens: A torch tensor, an array or lists of whole numbers.
    """
    array = np.asarray(tokens.cpu() if hasattr(tokens, "cpu") else tokens)
    if array.dtype in (np.uint8, np.uint16, np.uint32):
        return cast(Tokens, array)
    is_whole = array.dtype.kind in "iu"
    largest = array.max(initial=0) if is_whole else 0
    if array.size and (not is_whole or array.min() < 0 or largest > np.iinfo(np.uint32).max):
        raise ValueError(
            f"tokens of type {array.dtype}: must be whole numbers from 0, below 2^32. Correct them."
        )
    return cast(Tokens, array.astype(smallest_type(int(largest))))


def one_sequence(tokens: TokensLike) -> Tokens:
    """Return the tokens of one sequence (L,), as `as_array`. Raise ValueError for several."""
    array = as_array(tokens)
    if array.ndim != 1:
        raise ValueError(f"tokens {array.shape}: must be one sequence (L,). Pass a row.")
    return array


def joined(parts: Sequence[Examples]) -> Examples:
    """Return the examples of several sets as one, in their order."""
    return Examples(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
