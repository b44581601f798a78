"""The order of the masked tokens in a training input: that of decoding, or a random one."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from latent_tokens.core.order import Noise, shuffle


def shuffle_masked(
    order: Int[Tensor, "B L"], num_clean: Int[Tensor, " B"], num_masked: Int[Tensor, " B"], noise: Noise
) -> Int[Tensor, "B L"]:
    """Shuffle the masked tokens of the input, `num_masked` after the clean ones (D-40, shuffled slots)."""
    index = torch.arange(order.shape[1], device=order.device)
    return shuffle(order, num_clean, noise.masked_fill(index >= num_masked[:, None], 1.0))


def check_shuffled(is_left_to_right: bool, readout: str, targets: str) -> None:
    """Raise ValueError if a method cannot have masked_slots=shuffled."""
    if is_left_to_right and readout == "in_place" and targets == "all":
        return
    raise ValueError(
        f"masked_slots=shuffled with readout={readout} and targets={targets}: needs order=left_to_right, "
        "readout=in_place and targets=all. Use masked_slots=in_order."
    )
