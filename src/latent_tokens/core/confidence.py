"""Confidence: how sure logits are of a candidate, by which an adaptive order chooses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

Confidence = Callable[[Float[Tensor, "B K V"]], Float[Tensor, "B K"]]


def top_prob(logits: Float[Tensor, "B K V"]) -> Float[Tensor, "B K"]:
    """The largest probability of each candidate (equation of c_l, appendix D)."""
    return logits.softmax(-1).amax(-1)


def margin(logits: Float[Tensor, "B K V"]) -> Float[Tensor, "B K"]:
    """The largest probability of each candidate less the second largest."""
    first, second = logits.softmax(-1).topk(2, dim=-1).values.unbind(-1)
    return first - second


def entropy(logits: Float[Tensor, "B K V"]) -> Float[Tensor, "B K"]:
    """The negative entropy of each candidate, in nats."""
    terms: Tensor = torch.special.entr(logits.softmax(-1))
    return -terms.sum(-1)
