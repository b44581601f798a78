"""What decoding costs, in tokens: a forward pass on S slots processes S tokens (section 3.3 of the paper)."""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor


def tokens_processed(length: int, known: int, candidates: int, latents: int) -> int:
    """Tokens shown in all when one of `length - known` tokens is decoded a step: the clean ones and min(k + n, masked) each time."""
    return sum(clean + min(candidates + latents, length - clean) for clean in range(known, length))


def relative_cost(length: int, candidates: int, latents: int) -> float:
    """Tokens relative to n = all in the paper's convention, in which all positions are decoded (D-21, relative cost):
    [L(L-1)/2 + KL - K(K-1)/2] / L^2 with K = min(k + n, L).
    """
    shown = min(candidates + latents, length)
    return (length * (length - 1) / 2 + shown * length - shown * (shown - 1) / 2) / length**2


def cached_cost(length: int, candidates: int, latents: int) -> float:
    """The same under the causal rule, whose clean tokens are remembered: a step computes the token decoded last and min(k + n, masked)."""
    return sum((clean > 0) + min(candidates + latents, length - clean) for clean in range(length)) / length**2


def most_tokens(lengths: Int[Tensor, " B"], num_known: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Tokens that each row would process with all its masked tokens shown at every step, one decoded a step."""
    return lengths * (lengths - num_known)
