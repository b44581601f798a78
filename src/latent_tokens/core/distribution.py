"""The distribution that a token is drawn from, by temperature and top-p, and the draw."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

LOGIT_ATOL = 1e-5  # logits of tokens that differ by less are equal at temperature 0 (D-43, ties)

Nucleus = Callable[[Float[Tensor, "A T V"], float], Float[Tensor, "A T V"]]
"""(probabilities, top_p) -> those of the nucleus, 0 for all others."""
Temperature = float | int | Float[Tensor, "A #T 1"]
"""One number, or one that depends on the row."""


def nucleus(probabilities: Float[Tensor, "A T V"], top_p: float) -> Float[Tensor, "A T V"]:
    """Return the probabilities of the smallest set of tokens with at least `top_p` of them, 0 for all others.

    Of equally probable tokens those of smaller id come first.
    """
    ranked = probabilities.sort(dim=-1, descending=True).values
    beyond = ranked.cumsum(-1) - ranked >= top_p
    least = ranked.gather(-1, (~beyond).sum(-1, keepdim=True) - 1)
    return above(probabilities, least, (~beyond & (ranked == least)).sum(-1, keepdim=True))


def above(
    probabilities: Float[Tensor, "A T V"],
    least: Float[Tensor, "A T 1"],
    num_ties: Int[Tensor, "A T 1"],
) -> Float[Tensor, "A T V"]:
    """Return the probabilities above the least one, and as many of those equal to it, 0 for all others."""
    ties = probabilities == least
    inside = (probabilities > least) | (ties & (ties.cumsum(-1) <= num_ties))
    return torch.where(inside, probabilities, 0.0)


def sample_tokens(
    logits: Float[Tensor, "A K V"],
    picks: Int[Tensor, "A T"],
    temperature: Temperature,
    top_p: float,
    noise: Float[Tensor, "A T"],
    nucleus: Nucleus = nucleus,
) -> Int[Tensor, "A T"]:
    """Sample a token for each pick by inverse CDF, at temperature 0 the argmax (D-18, token sampling).

    Raises:
        ValueError: the logits are not finite.
    """
    if logits.shape[1] > 1:
        logits = logits.gather(1, picks[:, :, None].expand(-1, -1, logits.shape[-1]))  # (A, T, V)
    if is_zero(temperature):
        return most_likely(logits)
    return inverse_cdf(token_probabilities(logits, temperature, top_p, nucleus), noise)


def token_probabilities(
    logits: Float[Tensor, "A T V"],
    temperature: Temperature,
    top_p: float,
    nucleus: Nucleus = nucleus,
) -> Float[Tensor, "A T V"]:
    """Return the distribution that tokens are drawn from, at temperature 0 that of the argmax.

    Raises:
        ValueError: the logits are not finite.
    """
    if is_zero(temperature):
        return F.one_hot(most_likely(logits), logits.shape[-1]).to(logits.dtype)
    largest = largest_finite(logits)
    if isinstance(temperature, Tensor) or temperature != 1:
        logits = (logits - largest) / temperature
    probabilities = logits.softmax(-1)
    return nucleus(probabilities, top_p) if top_p < 1 else probabilities


def is_zero(temperature: Temperature) -> bool:
    """Return whether tokens are those of the largest logits. A temperature that falls never is 0."""
    return not isinstance(temperature, Tensor) and temperature == 0


def most_likely(logits: Float[Tensor, "A T V"]) -> Int[Tensor, "A T"]:
    """Return the tokens with the largest logits, of equal ones that of the lowest id (D-43, ties)."""
    return (logits >= largest_finite(logits) - LOGIT_ATOL).byte().argmax(-1)


def largest_finite(logits: Float[Tensor, "A T V"]) -> Float[Tensor, "A T 1"]:
    """Return the largest logits. Raise ValueError if one of them is not finite."""
    largest = logits.amax(-1, keepdim=True)
    if not math.isfinite(largest.sum()):  # as it is if one of them is not
        raise ValueError(
            "net: its logits are not finite. Its weights have diverged, or are corrupt"
        )
    return largest


def inverse_cdf(
    probabilities: Float[Tensor, "A T V"], noise: Float[Tensor, "A T"]
) -> Int[Tensor, "A T"]:
    """Return the tokens at which the cumulative probabilities, made to sum to 1, pass the noise."""
    cdf = probabilities.cumsum(-1)
    return torch.searchsorted(cdf / cdf[..., -1:], noise[..., None], right=True).squeeze(-1)
