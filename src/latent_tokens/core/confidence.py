"""Confidence: how certain the prediction of a candidate is. A step decodes the most confident ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

Confidence = Callable[[Float[Tensor, "B K V"]], Float[Tensor, "B K"]]
"""logits of the candidates -> confidence, larger = decoded earlier.

If its attribute `noise_on_log` is true, `Decoding.confidence_noise` adds noise to its log, else to itself.
"""


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


# Both are 0 or more. The negative entropy is on the scale of logs already.
top_prob.noise_on_log = True  # type: ignore[attr-defined]
margin.noise_on_log = True  # type: ignore[attr-defined]


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


def annealed(confidence: Confidence, scale: Float[Tensor, " B"], noise: Float[Tensor, "B K"]) -> Confidence:
    """Return log(confidence) + scale * Gumbel noise (MaskGIT, Chang et al., 2022, arXiv 2202.04200).

    The log is taken of `top_prob`, `margin` and others with the attribute `noise_on_log`. The noise is added
    to `entropy` itself, which is negative (D-41, annealed confidence noise).

    Args:
        confidence: the confidence without noise.
        scale: of the noise of each row.
        noise: uniform in [0, 1), one number per candidate. A 1 ends a row with fewer candidates.
    """
    smallest = torch.finfo(noise.dtype).tiny  # the log of 0 is not finite
    gumbel = -(-noise.clamp(min=smallest).log()).log()

    def noisy(logits: Float[Tensor, "B K V"]) -> Float[Tensor, "B K"]:
        values = confidence(logits)
        if getattr(confidence, "noise_on_log", False):
            values = values.log()
        return values + scale[:, None] * gumbel

    return noisy
