"""What a task is: examples to learn from, text to tokens and back, and a judge that never sees the stored solution."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.uint8]
Known = NDArray[np.bool_]


class Examples(NamedTuple):
    """N examples of L positions: their tokens, and which of them are given rather than predicted."""

    tokens: Tokens  # (N, L)
    known: Known  # (N, L)


class Task(Protocol):
    """A problem to learn. Tokens are 0..vocab_size-1; MASK is not among them."""

    @property
    def name(self) -> str: ...

    @property
    def length(self) -> int:
        """L, positions in a sequence."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def metric(self) -> str:
        """The key of `score` that counts, a share of samples."""

    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Examples number first .. first+count-1 of the seed; the same whatever the calls they are made in."""

    def encode(self, text: str) -> tuple[Tokens, Known]:
        """(L,) and (L,): the problem that the text states. Raises ValueError naming what is wrong with it."""

    def decode(self, tokens: Tokens) -> str:
        """The text of one sequence (L,); what is no token of the task shows as empty."""

    def score(self, tokens: Tokens) -> dict[str, NDArray[np.float64]]:
        """For each of N samples (N, L), every figure by its name."""
