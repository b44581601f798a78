"""What one forward pass sees: the arrangement [clean | latents | candidates] that training and decoding share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

LIKE = 1.125  # times as long as the shortest row of its part, a row is still of like length
SMALL = 1_024  # slots: a part of so few is not worth cutting


@dataclass(frozen=True)
class Layout:
    """The slots of one forward pass: clean ones, masked ones, then padding (D-12, latent token count; D-24, padding slots)."""

    positions: Int[Tensor, "B S"]  # the place in the sequence that each slot stands for; 0 in padding
    num_clean: Int[Tensor, " B"]  # slots [0, num_clean) show their token
    num_shown: Int[Tensor, " B"]  # slots [num_clean, num_shown) show MASK; the rest is padding

    @property
    def slots(self) -> Int[Tensor, " S"]:
        return torch.arange(self.positions.shape[1], device=self.positions.device)

    @property
    def clean(self) -> Bool[Tensor, "B S"]:
        return self.slots < self.num_clean[:, None]

    @property
    def shown(self) -> Bool[Tensor, "B S"]:
        return self.slots < self.num_shown[:, None]


def next_layout(order: Int[Tensor, "B L"], num_clean: Int[Tensor, " B"], candidates: Int[Tensor, " B"], latents: Int[Tensor, " B"]) -> Layout:
    """[clean | latents | candidates] (Algorithm 5, lines 6-9): the candidates are the next of the order, the latents those after."""
    num_shown = num_clean + latents + candidates
    clean, n, k = num_clean[:, None], latents[:, None], candidates[:, None]
    slot = torch.arange(int(num_shown.max()), device=order.device)
    source = torch.where(slot < clean, slot, torch.where(slot < clean + n, slot + k, slot - n))  # (B, S)
    padding = slot >= num_shown[:, None]
    positions = order.gather(1, source.masked_fill(padding, 0)).masked_fill(padding, 0)
    return Layout(positions, num_clean, num_shown)


def of_like_length(lengths: Sequence[int], rows_a_part: Callable[[int], int]) -> list[list[int]]:
    """Which rows to show together: parts of like length, so that few slots are padding, none of more rows than `rows_a_part` (length) says."""
    found: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        part, length = found[-1] if found else [], lengths[row]
        unlike = part and length > LIKE * lengths[part[0]] and len(part) * length > SMALL
        if not part or unlike or len(part) >= rows_a_part(length):
            found.append([])
        found[-1].append(row)
    return found
