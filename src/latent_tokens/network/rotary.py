"""The rotary position embedding, half-split: each pair of channels is rotated by an angle of its position."""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

ROTARY_BASE = 10_000  # D-1, transformer architecture

Rotation = tuple[Tensor, Tensor]
"""Cosine and sine of the angles of each slot, (B, 1, S, C/2)."""


def rotary_table(
    length: int, half: int, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "L C"], Float[Tensor, "L C"]]:
    """Return cosine and sine of the angles of positions 0..length-1. They are computed in float32.

    They are computed once, or as a part of the graph of a compiled network.
    """
    if torch.compiler.is_compiling():
        return compute_table(length, half, dtype, device)
    return cached_table(length, half, dtype, device)


def compute_table(length: int, half: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return what `rotary_table` returns."""
    frequencies = ROTARY_BASE ** (-torch.arange(half, device=device) / half)
    angles = torch.arange(length, device=device)[:, None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


@lru_cache(maxsize=8)
def cached_table(length: int, half: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return what `rotary_table` returns, as tensors that training can use if decoding computed them."""
    with torch.inference_mode(mode=False):
        return compute_table(length, half, dtype, device)


def apply_rotary(x: Float[Tensor, "B H S C"], rotation: Rotation | None) -> Float[Tensor, "B H S C"]:
    """Rotate the two halves of x by the angle of each slot (rotary embedding, half-split). None returns x."""
    if rotation is None:
        return x
    a, b = x.chunk(2, dim=-1)
    cos, sin = rotation
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)
