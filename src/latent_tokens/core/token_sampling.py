"""A token drawn from logits: at a temperature, and from the most probable tokens (top-p)."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latent_tokens.core.decoding import Decoding


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
    return (cdf / cdf[..., -1:] <= noise[..., None]).sum(-1)


def nucleus(probabilities: Float[Tensor, "A T V"], top_p: float) -> Float[Tensor, "A T V"]:
    """Return the probabilities of the smallest set of tokens with at least `top_p` of them, 0 for all others.

    Of equally probable tokens those of smaller id come first. Only the values are sorted: tokens above the
    least value of the set belong to it, and as many of those equal to it as are left.
    """
    ranked = sort_descending(probabilities)
    beyond = ranked.cumsum(-1) - ranked >= top_p
    size = (~beyond).sum(-1, keepdim=True)
    least = ranked.gather(-1, size - 1)
    ties = probabilities == least
    num_ties = size - (ranked > least).sum(-1, keepdim=True)
    inside = (probabilities > least) | (ties & (ties.cumsum(-1) <= num_ties))
    return probabilities.masked_fill(~inside, 0)


def sort_descending(values: Float[Tensor, "*N V"]) -> Float[Tensor, "*N V"]:
    """Return the values of each row from the largest to the smallest."""
    if values.device.type != "cpu":
        return values.sort(dim=-1, descending=True).values
    # On a CPU numpy sorts a vocabulary ten times as fast as torch, which sorts indices too.
    return torch.from_numpy(np.sort(values.numpy(), axis=-1)).flip(-1)
