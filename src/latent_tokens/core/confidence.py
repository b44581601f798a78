"""Confidence: how certain the prediction of a candidate is. A step decodes the most confident ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

Confidence = Callable[[Float[Tensor, "B K V"]], Float[Tensor, "B K"]]
"""logits of the candidates -> confidence, larger = decoded earlier."""


def top_prob(logits: Float[Tensor, "B K V"]) -> Float[Tensor, "B K"]:
    """Return the largest probability of each candidate (equation of c_l, appendix D).

    Args:
        logits: of B rows and K candidates.

    Example:
        >>> top_prob(torch.tensor([[[0.5, 0.25, 0.25]]]).log()).tolist()
        [[0.5]]
    """
    return logits.softmax(-1).amax(-1)


def margin(logits: Float[Tensor, "B K V"]) -> Float[Tensor, "B K"]:
    """Return the difference between the largest and the second largest probability of each candidate.

    Args:
        logits: of B rows and K candidates.

    Example:
        >>> margin(torch.tensor([[[0.5, 0.25, 0.25]]]).log()).tolist()
        [[0.25]]
    """
    first, second = logits.softmax(-1).topk(2, dim=-1).values.unbind(-1)
    return first - second


def entropy(logits: Float[Tensor, "B K V"]) -> Float[Tensor, "B K"]:
    """Return the negative entropy of each candidate, in nats.

    Args:
        logits: of B rows and K candidates.

    Example:
        >>> entropy(torch.zeros(1, 1, 2)).tolist()  # -log 2
        [[-0.6931471824645996]]
    """
    terms: Tensor = torch.special.entr(logits.softmax(-1))
    return -terms.sum(-1)
