"""One stream of random numbers a row, so that what a row draws does not depend on the batch it is in."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


class Streams:
    """Row b draws from the stream (seed, rows[b]) and from no other. Raises ValueError for a negative seed or row."""

    def __init__(self, seed: int, rows: Int[Tensor, " B"]) -> None:
        if seed < 0 or (rows < 0).any():
            raise ValueError(f"seed={seed}, smallest row {int(rows.min())}: seeds and row numbers start at 0")
        self.device = rows.device
        self.generators = [np.random.default_rng((seed, row)) for row in rows.tolist()]

    def uniform(self, which: Int[Tensor, " A"], counts: Int[Tensor, " A"]) -> Float[Tensor, "A N"]:
        """The next counts[a] numbers in [0, 1) of row which[a], as float64; a 1 stands where a line has ended."""
        wanted = counts.tolist()
        noise = np.ones((len(wanted), max(wanted, default=0)))
        for line, row, count in zip(noise, which.tolist(), wanted, strict=True):
            line[:count] = self.generators[row].random(count)
        return torch.from_numpy(noise).to(self.device)
