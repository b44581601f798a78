"""A small judge of text that needs no download: a trigram model of tokens, interpolated as Witten and Bell (1991)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Counts = dict[tuple[int, ...], Counter[int]]


class NGram:
    """P(token | the `order` - 1 before it), mixed with shorter histories by how many different tokens have followed; last with 1 / V."""

    def __init__(self, sequences: Iterable[Sequence[int]], vocab_size: int, order: int = 3) -> None:
        self.vocab_size, self.order = vocab_size, order
        self.followers: Counts = defaultdict(Counter)
        for sequence in sequences:
            ids = [int(token) for token in sequence]
            for place, token in enumerate(ids):
                for size in range(min(place, order - 1) + 1):
                    self.followers[tuple(ids[place - size : place])][token] += 1

    def probability(self, history: tuple[int, ...], token: int) -> float:
        """P(token | history)."""
        shorter = 1 / self.vocab_size if not history else self.probability(history[1:], token)
        seen = self.followers.get(history)
        return shorter if seen is None else (seen[token] + len(seen) * shorter) / (seen.total() + len(seen))

    def nats(self, sequence: Sequence[int]) -> NDArray[np.float64]:
        """The negative logarithm of each token's probability after those before it."""
        ids = [int(token) for token in sequence]
        found = (
            self.probability(tuple(ids[max(0, place - self.order + 1) : place]), token)
            for place, token in enumerate(ids)
        )
        return np.array([-math.log(value) for value in found])
