"""One random number generator per row, so that what a row draws does not depend on its batch."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

Array = Tensor | np.ndarray


class Streams:
    """The generators of a batch: row b draws from the one seeded with (seed, rows[b]).

    Args:
        seed: the seed of the batch.
        rows: the number of each row.

    Raises:
        ValueError: the seed or a row number is negative.
    """

    def __init__(self, seed: int, rows: Int[Tensor, " B"]) -> None:
        if seed < 0 or (rows < 0).any():
            raise ValueError(f"seed={seed}, smallest row {int(rows.min())}: seeds and row numbers start at 0")
        self.device = rows.device
        self.generators = [np.random.default_rng((seed, row)) for row in rows.tolist()]

    def uniform(self, which: Int[Array, " A"], counts: Int[Array, " A"]) -> Float[Tensor, "A N"]:
        """Draw numbers in [0, 1), in float64.

        Args:
            which: the rows that draw.
            counts: how many numbers each of them draws.

        Returns:
            One line per row. After its numbers a line is padded with 1.
        """
        lengths = counts.tolist()
        noise = np.ones((len(lengths), max(lengths, default=0)))
        for line, row, length in zip(noise, which.tolist(), lengths, strict=True):
            self.generators[row].random(out=line[:length])
        return torch.from_numpy(noise).to(self.device)
