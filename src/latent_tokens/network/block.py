"""A block of the network: attention and MLP, at every slot or at some of them, with rotary positions.

`forward` is the reference. `forward_at` computes only what the output of some slots depends on, and
is tested equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from latent_tokens.network.kernels import attend, compiled, has_hooks, linear
from latent_tokens.sizes import Size

ROTARY_BASE = 10_000  # D-1, transformer architecture
Rotation = tuple[Tensor, Tensor]
"""Cosine and sine of the angles of each slot, (B, 1, S, C/2)."""


def rotary_table(
    length: int, half: int, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "L C"], Float[Tensor, "L C"]]:
    """Return cosine and sine of the angles of positions 0..length-1. They are computed in float32."""
    frequencies = ROTARY_BASE ** (-torch.arange(half, device=device) / half)
    angles = torch.arange(length, device=device)[:, None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


@lru_cache(maxsize=8)
def cached_table(
    length: int, half: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return `rotary_table`, as tensors that training can use if decoding computed them."""
    with torch.inference_mode(mode=False):
        return rotary_table(length, half, dtype, device)


def apply_rotary(
    x: Float[Tensor, "B H S C"], rotation: Rotation | None
) -> Float[Tensor, "B H S C"]:
    """Rotate the two halves of x by the angle of each slot (rotary embedding, half-split). None returns x."""
    if rotation is None:
        return x
    a, b = x.chunk(2, dim=-1)
    cos, sin = rotation
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


TOKENS_PER_GROUP = 1_024  # on a CPU, rows of at most this many attend together in the last layer


class Block(nn.Module):
    """Attention, then MLP. Each takes a LayerNorm of the residual stream and adds its output to the stream.

    `forward` is the reference. `forward_at` computes less, and is tested equal.
    """

    def __init__(self, size: Size, dropout: float, gelu: Literal["tanh", "exact"]) -> None:
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.dropout = dropout
        self.approximate = "tanh" if gelu == "tanh" else "none"
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)
        self.compiled = False

    def forward(
        self, x: Float[Tensor, "B S D"], rotation: Rotation | None, mask: Bool[Tensor, "B 1 S S"]
    ) -> Float[Tensor, "B S D"]:
        """Return the output of the block at every slot."""
        q, k, v = self.split_heads(self.project(x), 3)
        q = apply_rotary(q, rotation)
        k = apply_rotary(k, rotation)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # (B, H, S, C)
        return self.residual_and_mlp(x, merge_heads(attended))

    def forward_at(
        self,
        x: Float[Tensor, "B Q D"],
        rotation: Rotation | None,
        mask: Bool[Tensor, "#B 1 Q S"] | BlockMask | None,
        selection: OutputSlots | None,
        projected: Float[Tensor, "B Q W"] | None,
    ) -> Float[Tensor, "*N D"]:
        """Return the output of the block at some slots.

        Args:
            x: the input of the block.
            rotation: cosine and sine of each slot's angles. None is no rotary embedding.
            mask: which slots attend to which. None is all to all.
            selection: the slots whose output is returned, (N, D), row by row. None is all, (B, Q,
                D).
            projected: queries, keys and values of each slot, side by side, if they were looked up.
        """
        width = x.shape[-1]

        # Project. For some slots only, the queries are projected below, from `source`.
        is_plain = type(self.qkv) is nn.Linear and not has_hooks(self.qkv)
        if projected is None and (selection is None or not is_plain):
            projected = self.project(x)
        if projected is None:
            source = self.attention_norm(x)
            keys_and_values = linear(self.qkv, source, slice(width, None))
        else:
            source = projected[..., :width]
            keys_and_values = projected[..., width:]
        k, v = self.split_heads(keys_and_values, 2)
        k = apply_rotary(k, rotation)

        # Every slot attends.
        if selection is None:
            q = apply_rotary(self.split_heads(source, 1)[0], rotation)
            return self.residual_and_mlp(x, merge_heads(attend(q, k, v, mask)))

        # Some slots attend: group by group, from the first slot that a row of the group returns.
        mixed = []
        # Unlike slices, the parts of a split join their gradients in one operation.
        parts = [torch.split(tensor, selection.num_rows) for tensor in (source, k, v)]
        groups = zip(selection.groups, *parts, strict=True)
        for (rows, start, index), group_source, group_k, group_v in groups:
            queries = group_source[:, start:]
            if projected is None:
                queries = linear(self.qkv, queries, slice(width))
            q = apply_rotary(self.split_heads(queries, 1)[0], rotation_of(rotation, rows, start))
            attended = attend(q, group_k, group_v, mask_of(mask, rows, start))
            mixed.append(merge_heads(attended).flatten(0, 1).index_select(0, index))

        # The MLP takes the selected slots only.
        joined = mixed[0] if len(mixed) == 1 else torch.cat(mixed)  # (N, D)
        return self.residual_and_mlp(x.flatten(0, 1).index_select(0, selection.index), joined)

    def project(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N W"]:
        """Return queries, keys and values of each slot, side by side, from the input of the block."""
        function = compiled(project) if self.compiled else project
        return function(self, x)

    def split_heads(self, x: Float[Tensor, "B S W"], parts: int) -> Float[Tensor, "P B H S C"]:
        """Split each slot's vector into `parts` vectors, and each of these into heads."""
        of_head = x.shape[-1] // (parts * self.heads)
        return x.reshape(*x.shape[:-1], parts, self.heads, of_head).permute(2, 0, 3, 1, 4)

    def residual_and_mlp(
        self, x: Float[Tensor, "*N D"], mixed: Float[Tensor, "*N D"]
    ) -> Float[Tensor, "*N D"]:
        """Return the output of the block from its input `x` and what its heads computed, `mixed`."""
        function = compiled(residual_and_mlp) if self.compiled else residual_and_mlp
        return function(self, x, mixed)


def project(block: Block, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N W"]:
    """Return `Block.project`."""
    return linear(block.qkv, block.attention_norm(x))


def residual_and_mlp(
    block: Block, x: Float[Tensor, "*N D"], mixed: Float[Tensor, "*N D"]
) -> Float[Tensor, "*N D"]:
    """Return `Block.residual_and_mlp`."""
    x = x + F.dropout(linear(block.attention_out, mixed), block.dropout, block.training)
    hidden = F.gelu(linear(block.mlp_in, block.mlp_norm(x)), approximate=block.approximate)
    return x + F.dropout(linear(block.mlp_out, hidden), block.dropout, block.training)


def merge_heads(attended: Float[Tensor, "B H Q C"]) -> Float[Tensor, "B Q D"]:
    """Join the heads of each slot."""
    return attended.transpose(1, 2).flatten(2)


@dataclass(frozen=True)
class OutputSlots:
    """Some slots of a batch, row by row, and the groups of rows that attend together."""

    index: Int[Tensor, " N"]  # in the flattened batch
    num_rows: int  # of a group; the last may have fewer
    # Rows, first slot, index in the group from there on
    groups: list[tuple[slice, int, Int[Tensor, " _"]]]


def output_slots(slots: np.ndarray, device: torch.device, every_query: bool = False) -> OutputSlots:
    """Return the selection of slots that are true in an array (B, Q) on the host.

    All rows attend together, from the first slot on that one of them returns, or from slot 0 with
    `every_query`. On a CPU rows that return different slots attend in groups: a small call costs
    little there.
    """
    num_rows = max(1, len(slots))
    if device.type == "cpu" and not every_query and not (slots == slots[:1]).all():
        num_rows = max(1, TOKENS_PER_GROUP // slots.shape[1])
    groups = []
    for first in range(0, len(slots), num_rows):
        rows = slice(first, first + num_rows)
        start = 0 if every_query else int(slots[rows].argmax(1).min())
        groups.append((rows, start, indices(slots[rows, start:], device)))
    return OutputSlots(indices(slots, device), num_rows, groups)


def indices(slots: np.ndarray, device: torch.device) -> Int[Tensor, " N"]:
    """Return where the flattened array is true."""
    return torch.from_numpy(np.flatnonzero(slots)).to(device, non_blocking=True)


def rotation_of(rotation: Rotation | None, rows: slice, start: int) -> Rotation | None:
    """Return the rotation of some rows from slot `start` on."""
    if rotation is None:
        return None
    cos, sin = rotation
    return cos[rows, :, start:], sin[rows, :, start:]


def mask_of(
    mask: Bool[Tensor, "#B 1 Q S"] | BlockMask | None, rows: slice, start: int
) -> Bool[Tensor, "#C 1 P S"] | BlockMask | None:
    """Return the mask of some rows from query slot `start` on.

    A mask of one row, or in blocks, is for all rows.
    """
    if not isinstance(mask, Tensor):
        return mask
    return mask[rows if len(mask) > 1 else slice(None), :, start:]
