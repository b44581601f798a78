"""The cost of decoding in tokens: a forward pass on S slots processes S tokens (section 3.3 of the paper)."""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from latent_tokens.core.decoding import Count


def tokens_processed(length: int, known: int, candidates: int, latents: Count) -> int:
    """Return the tokens processed by a sample that decodes one token per step.

    Each step processes the clean tokens and min(k + n, masked) masked tokens.

    Args:
        length: the number of positions L.
        known: the number of given tokens.
        candidates: k.
        latents: n, all, or a function of the number of masked tokens.

    Example:
        >>> tokens_processed(length=4, known=2, candidates=1, latents=0)  # 3 + 4
        7
    """
    processed = 0
    for num_masked in range(1, length - known + 1):
        n = latents(num_masked) if callable(latents) else latents
        masked_shown = num_masked if n == "all" else min(candidates + n, num_masked)
        processed += length - num_masked + masked_shown
    return processed


def relative_cost(length: int, candidates: int, latents: int) -> float:
    """Return the tokens processed relative to n = all, by the paper's formula (D-21, relative cost).

    Rows call it `paper_cost`. Their `relative_cost` is measured.

    [L(L-1)/2 + KL - K(K-1)/2] / L^2 with K = min(k + n, L). No token is given.

    Args:
        length: the number of positions L.
        candidates: k.
        latents: n.

    Example:
        >>> round(relative_cost(81, candidates=8, latents=0), 2)
        0.59
    """
    shown = min(candidates + latents, length)
    return (length * (length - 1) / 2 + shown * length - shown * (shown - 1) / 2) / length**2


def cached_cost(length: int, candidates: int, latents: int) -> float:
    """Return `relative_cost` under the causal rule with a KV cache (D-30, cost of cached tokens).

    Each step computes the token that was decoded last and min(k + n, masked) masked tokens.

    Args:
        length: the number of positions L.
        candidates: k.
        latents: n.

    Example:
        >>> round(cached_cost(81, candidates=1, latents=0), 4)  # (2L - 1) / L^2
        0.0245
    """
    return (
        sum((clean > 0) + min(candidates + latents, length - clean) for clean in range(length))
        / length**2
    )


def most_tokens(lengths: Int[Tensor, " B"], num_known: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Return the largest number of tokens that a row can process: all L in each step, one step per token.

    Args:
        lengths: the length of each row.
        num_known: the number of given tokens of each row.

    Example:
        >>> most_tokens(torch.tensor([4, 3]), torch.tensor([2, 0])).tolist()
        [8, 9]
    """
    return lengths * (lengths - num_known)
