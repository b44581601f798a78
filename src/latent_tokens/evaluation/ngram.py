"""A trigram model of tokens, interpolated as in Witten and Bell (1991)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Counts = dict[tuple[int, ...], Counter[int]]


class NGram:
    """P(token | the `order` - 1 tokens before it).

    It is mixed with shorter histories by the number of different tokens that followed, and last with 1 / V.
    """

    def __init__(self, sequences: Iterable[Sequence[int]], vocab_size: int, order: int = 3) -> None:
        self.vocab_size = vocab_size
        self.order = order
        self.followers: Counts = defaultdict(Counter)
        for sequence in sequences:
            ids = [int(token) for token in sequence]
            for index, token in enumerate(ids):
                for size in range(min(index, order - 1) + 1):
                    self.followers[tuple(ids[index - size : index])][token] += 1

    def probability(self, history: tuple[int, ...], token: int) -> float:
        """Return P(token | history)."""
        shorter = 1 / self.vocab_size if not history else self.probability(history[1:], token)
        seen = self.followers.get(history)
        return shorter if seen is None else (seen[token] + len(seen) * shorter) / (seen.total() + len(seen))

    def nats(self, sequence: Sequence[int]) -> NDArray[np.float64]:
        """Return the negative logarithm of the probability of each token after those before it."""
        ids = [int(token) for token in sequence]
        probabilities = (
            self.probability(tuple(ids[max(0, index - self.order + 1) : index]), token)
            for index, token in enumerate(ids)
        )
        return np.array([-math.log(probability) for probability in probabilities])
