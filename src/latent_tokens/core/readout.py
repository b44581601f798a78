"""The readout "left": the prediction for a position is read at the slot of the position to its left.

Models that were autoregressive before read so. The slot to the left must be in the input.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.core.attention import attends_later
from latent_tokens.core.layout import Layout
from latent_tokens.core.rule import Rule


def check_left(is_left_to_right: bool, attention: Rule, window: int | None, depth: str) -> None:
    """Raise ValueError if an input of a method with this readout may lack the slot to the left of a target.

    It is there if the input has all masked tokens, or if decoding is from left to right.
    """
    shows_all = attends_later(attention) and window is None
    if depth != "all" or not (is_left_to_right or shows_all):
        raise ValueError(
            "readout=left: a prediction is read at the slot to its left, which must be in the input. "
            "Use attention=bidirectional without window and depth, or order=left_to_right."
        )


def check_first_known(known: Bool[Tensor, "B L"]) -> None:
    """Raise ValueError if the first position of a row is not known."""
    if not known[:, :1].all():
        row = int(known[:, 0].int().argmin())
        raise ValueError(
            f"row {row}: position 0 is masked, and readout=left reads no prediction for it. "
            "Give the first token, as BOS."
        )


def check_left_shown(readout: str, is_left_to_right: bool, latents: str) -> None:
    """Raise ValueError if predictions are read at a slot to the left that n latent tokens may leave out."""
    if readout == "left" and not is_left_to_right:
        raise ValueError(
            f"latents={latents} with readout=left: a prediction is read at the slot to its left, "
            "which must be in the input. Use latents=all."
        )


def left_slots(layout: Layout) -> Int[Tensor, "B S"]:
    """Return the slot of the position to the left of each slot's.

    It is the slot itself for position 0, for padding and if that position is not in the input.
    """
    positions = layout.positions
    slots = layout.slots.expand_as(positions)
    # Padding goes to an extra column behind all positions.
    length = int(positions.max()) + 1 if positions.numel() else 1
    column = positions.masked_fill(~layout.shown, length)
    slot_of = slots.new_full((len(positions), length + 1), -1).scatter(1, column, slots)  # (B, L + 1)
    left = slot_of.gather(1, (positions - 1).clamp(min=0))
    return torch.where((left >= 0) & (positions > 0) & layout.shown, left, slots)


def read_left(logits: Float[Tensor, "B S V"], layout: Layout) -> Float[Tensor, "B S V"]:
    """Return the logits of every slot, each read at the slot to its left."""
    return logits.gather(1, left_slots(layout)[:, :, None].expand_as(logits))


def left_of(slots: Bool[Tensor, "B S"], layout: Layout) -> tuple[Bool[Tensor, "B S"], Int[Tensor, " N"]]:
    """Return which slots the predictions of `slots` are read at, and the number among them of each.

    Both `slots` and those are counted row by row.
    """
    left = left_slots(layout)
    width = slots.shape[1]
    column = left.masked_fill(~slots, width)  # the others go to an extra column, which is cut off
    read = torch.zeros(len(slots), width + 1, dtype=torch.bool, device=slots.device)
    read = read.scatter(1, column, True)[:, :width]
    number = read.flatten().cumsum(0).view_as(read) - 1  # (B, S)
    return read, number.gather(1, left)[slots]
