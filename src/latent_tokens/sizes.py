"""The shapes of the networks, by name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from latent_tokens.checks import Registry, check_int

LONGEST = 65_535  # positions of a sequence: lengths are stored in 16 bits


@dataclass(frozen=True)
class Size:
    """The shape of a transformer: the paper's table of sizes, nano for CPUs, pico for tests.

    Example:
        net = Transformer(Size(width=128, heads=4, layers=4), vocab_size=10, max_length=81)
    """

    width: int
    heads: int
    layers: int

    def __post_init__(self) -> None:
        for name in ("width", "heads", "layers"):
            check_int(name, getattr(self, name), 1)
        if self.width % (2 * self.heads):
            need = "a head needs a whole, even number of channels for rotary positions"
            raise ValueError(f"width={self.width} with heads={self.heads}: {need}")

    def __str__(self) -> str:
        return f"{self.width}x{self.heads}x{self.layers}"


def size_in(name: str) -> Size | None:
    """Return the size of WIDTHxHEADSxLAYERS, such as 64x2x3, or None for another name."""
    match = re.fullmatch("x".join([r"([1-9][0-9]*)"] * 3), name)
    return None if match is None else Size(*map(int, match.groups()))


SIZES: Registry[Size] = Registry(
    "size",
    {
        "pico": Size(16, 2, 2),
        "nano": Size(128, 4, 4),
        "tiny": Size(384, 12, 3),
        "mini": Size(512, 8, 6),
        "sminy": Size(768, 12, 6),
        "small": Size(768, 12, 12),
    },
    size_in,
    also=("WIDTHxHEADSxLAYERS",),
)


class Dimensions(NamedTuple):
    """The numbers of a network that its memory depends on, also of one of another package."""

    layers: int
    width: int
    heads: int
    columns: int  # of its logits


def in_millions(count: int) -> str:
    """Return a number of parameters in words."""
    return f"{count / 1e6:.1f}M" if count >= 100_000 else f"{count:,}"
