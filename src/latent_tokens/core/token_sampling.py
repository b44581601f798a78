"""A token drawn from logits: at a temperature, and from the most probable tokens (top-p)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latent_tokens.core.decoding import Decoding
from latent_tokens.core.nucleus import nucleus


def sample_tokens(
    candidates: Float[Tensor, "A K V"],
    picks: Int[Tensor, "A T"],
    decoding: Decoding,
    noise: Float[Tensor, "A T"],
) -> Int[Tensor, "A T"]:
    """Sample a token for each pick by inverse CDF, at temperature 0 the argmax (D-18, token sampling).

    Raises:
        ValueError: the logits are not finite.
    """
    logits = candidates
    if candidates.shape[1] > 1:
        logits = candidates.gather(1, picks[:, :, None].expand(-1, -1, candidates.shape[-1]))  # (A, T, V)
    largest = logits.amax(-1, keepdim=True)
    if not math.isfinite(largest.sum()):  # as it is if one of them is not
        raise ValueError(
            "net: its logits are not finite at a token to be drawn, so "
            "its weights have diverged, or are corrupt"
        )
    if decoding.temperature == 0:
        return logits.argmax(-1)
    if decoding.temperature != 1:
        logits = (logits - largest) / decoding.temperature
    probabilities = logits.softmax(-1)
    if decoding.top_p < 1:
        probabilities = nucleus(probabilities, decoding.top_p)
    cdf = probabilities.cumsum(-1)
    return torch.searchsorted(cdf / cdf[..., -1:], noise[..., None], right=True).squeeze(-1)
