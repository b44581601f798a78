"""The interface of a network, and its logits without MASK."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor


@runtime_checkable
class Denoiser(Protocol):
    """Any callable (ids, positions, mask) -> logits with an integer `mask_id`.

    ids, positions: Int[B, S]; mask: Bool[B, S, S]; logits: Float[B, S, V]. A column `mask_id` of the logits
    is never chosen. If `supports_slots` is true (`reads`, its name in version 0.1, is understood too), it
    takes a fourth argument, slots Bool[B, S], and returns the logits of these slots only, (N, V), row by row.
    On an accelerator its mask may then be a FlexAttention BlockMask.

    Example:
        >>> isinstance(net, Denoiser)
        True
    """

    mask_id: int

    def __call__(self, ids: Tensor, positions: Tensor, mask: Tensor, /) -> Tensor: ...


def supports_slots(net: Denoiser) -> bool:
    """Return whether a denoiser takes slots as its fourth argument. In version 0.1 it says `reads`."""
    return bool(getattr(net, "supports_slots", False) or getattr(net, "reads", False))


def exclude_mask_token(mask_id: int, logits: Float[Tensor, "*N V"]) -> Float[Tensor, "*N V"]:
    """Return the logits with the column of MASK, if there is one, at minus infinity."""
    if logits.shape[-1] > mask_id:
        return logits.index_fill(-1, torch.tensor([mask_id], device=logits.device), -torch.inf)
    return logits
