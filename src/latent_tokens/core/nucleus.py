"""Top-p: the smallest set of tokens that has a given probability."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

NUM_RANKED = 4_096  # tokens of a large vocabulary that are ranked first: the nucleus rarely has more
MARGIN = 1e-9  # more than the rounding of a sum of probabilities


def nucleus(probabilities: Float[Tensor, "A T V"], top_p: float) -> Float[Tensor, "A T V"]:
    """Return the probabilities of the smallest set of tokens with at least `top_p` of them, 0 for all others.

    Of equally probable tokens those of smaller id come first. Only values are ranked: tokens above the least
    value of the set belong to it, and as many of those equal to it as are left.
    """
    is_large = probabilities.device.type == "cpu" and probabilities.shape[-1] > 2 * NUM_RANKED
    ranked = largest(probabilities, top_p) if is_large else sort_descending(probabilities)
    beyond = ranked.cumsum(-1) - ranked >= top_p
    size = (~beyond).sum(-1, keepdim=True)
    least = ranked.gather(-1, size - 1)
    inside = probabilities >= least
    # Most often all ties belong to the set. To test it is cheap on a CPU, but would stall an accelerator.
    if not (is_large and inside.sum(-1, keepdim=True).equal(size)):
        ties = probabilities == least
        num_ties = size - (ranked > least).sum(-1, keepdim=True)
        inside &= ~ties | (ties.cumsum(-1) <= num_ties)
    return torch.where(inside, probabilities, 0.0)


def largest(probabilities: Float[Tensor, "A T V"], top_p: float) -> Float[Tensor, "A T R"]:
    """Return the NUM_RANKED largest values of each row, sorted, or all if a row's largest are not `top_p`.

    numpy selects five times as fast as it sorts.
    """
    values = np.partition(probabilities.numpy(), -NUM_RANKED)[..., -NUM_RANKED:]
    is_enough = bool((values.sum(-1) > top_p + MARGIN).all())
    return sort_descending(torch.from_numpy(values) if is_enough else probabilities)


def sort_descending(values: Float[Tensor, "*N V"]) -> Float[Tensor, "*N V"]:
    """Return the values of each row from the largest to the smallest."""
    if values.device.type != "cpu":
        return values.sort(dim=-1, descending=True).values
    # On a CPU numpy sorts a vocabulary ten times as fast as torch, which sorts indices too.
    return torch.from_numpy(np.sort(values.numpy(), axis=-1)).flip(-1)
