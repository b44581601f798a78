"""The input of one forward pass: the arrangement [clean | latents | candidates], in training and decoding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """The slots of one forward pass: clean, then masked, then padding.

    See D-12, latent token count, and D-24, padding slots.

    Example:
        >>> one, two = torch.tensor([1]), torch.tensor([2])
        >>> next_layout(torch.arange(6)[None], two, candidates=one, latents=two).positions
        tensor([[0, 1, 3, 4, 2]])
    """

    positions: Int[Tensor, "B S"]  # the position in the sequence that each slot holds; 0 in padding
    num_clean: Int[Tensor, " B"]  # slots [0, num_clean) show their token
    num_shown: Int[Tensor, " B"]  # slots [num_clean, num_shown) are masked; the rest is padding
    is_independent: Bool[Tensor, " B"] | None = None  # rows with the independent attention rule

    @property
    def slots(self) -> Int[Tensor, " S"]:
        return torch.arange(self.positions.shape[1], device=self.positions.device)

    @property
    def clean(self) -> Bool[Tensor, "B S"]:
        return self.slots < self.num_clean[:, None]

    @property
    def shown(self) -> Bool[Tensor, "B S"]:
        return self.slots < self.num_shown[:, None]

    def take(self, rows: Int[Tensor, " R"]) -> Layout:
        """Return some rows, without the padding that none of them needs."""
        num_shown = self.num_shown[rows]
        is_independent = None if self.is_independent is None else self.is_independent[rows]
        positions = self.positions[rows, : int(num_shown.max())]
        return Layout(positions, self.num_clean[rows], num_shown, is_independent)


def next_layout(
    order: Int[Tensor, "B L"],
    num_clean: Int[Tensor, " B"],
    candidates: Int[Tensor, " B"],
    latents: Int[Tensor, " B"],
    num_slots: int | None = None,
) -> Layout:
    """Arrange the input of one step: [clean | latents | candidates] (Algorithm 5, lines 6-9).

    Args:
        order: a permutation of the positions per row, its first `num_clean` entries clean.
        num_clean: the number of clean tokens.
        candidates: how many of the next masked tokens of the order are candidates.
        latents: how many of the masked tokens after these are latent tokens.
        num_slots: the number of slots of the largest input, if it is known.

    Returns:
        The layout, with padding slots after short rows.

    Example:
        >>> one = torch.tensor([1])
        >>> next_layout(torch.tensor([[3, 0, 2, 1]]), one, candidates=one, latents=one).positions.tolist()
        [[3, 2, 0]]
    """
    num_shown = num_clean + latents + candidates
    c = num_clean[:, None]
    n = latents[:, None]
    k = candidates[:, None]
    num_slots = int(num_shown.max()) if num_slots is None else num_slots
    slot = torch.arange(num_slots, device=order.device)
    masked = torch.where(slot < c + n, slot + k, slot - n)  # (B, S): the candidates come last
    entry = torch.where(slot < c, slot, masked)  # (B, S): which entry of the order each slot holds
    padding = slot >= num_shown[:, None]
    positions = order.gather(1, entry.masked_fill(padding, 0)).masked_fill(padding, 0)
    return Layout(positions, num_clean, num_shown)


def left_slots(layout: Layout) -> Int[Tensor, "B S"]:
    """Return the slot that holds the position before each slot's, where the readout "left" reads.

    It is the slot itself for position 0, for padding and if that position is not in the input.
    """
    positions = layout.positions
    slots = layout.slots.expand_as(positions)
    # Padding goes to an extra column behind all positions.
    length = int(positions.max()) + 1 if positions.numel() else 1
    column = positions.masked_fill(~layout.shown, length)
    slot_of = slots.new_full((len(positions), length + 1), -1).scatter(1, column, slots)  # (B, L+1)
    left = slot_of.gather(1, (positions - 1).clamp(min=0))
    return torch.where((left >= 0) & (positions > 0) & layout.shown, left, slots)


def left_of(
    slots: Bool[Tensor, "B S"], layout: Layout
) -> tuple[Bool[Tensor, "B S"], Int[Tensor, " N"]]:
    """Return the slots at which the predictions of `slots` are read, and the index of each among them.

    Both `slots` and those are counted row by row.
    """
    left = left_slots(layout)
    width = slots.shape[1]
    column = left.masked_fill(~slots, width)  # the others go to an extra column, which is cut off
    read = torch.zeros(len(slots), width + 1, dtype=torch.bool, device=slots.device)
    read = read.scatter(1, column, True)[:, :width]
    number = read.flatten().cumsum(0).view_as(read) - 1  # (B, S)
    return read, number.gather(1, left)[slots]
