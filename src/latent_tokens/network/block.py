"""A block of the transformer: attention, then MLP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Concatenate, Literal, ParamSpec, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from torch.utils.checkpoint import checkpoint

from latent_tokens.network.compiling import compiled
from latent_tokens.network.kernels import attend, has_hooks, linear
from latent_tokens.network.rotary import Rotation, apply_rotary
from latent_tokens.sizes import Size

TOKENS_PER_GROUP = 1_024  # on a CPU, rows of at most this many tokens attend together in the last layer


P = ParamSpec("P")


def checkpointed(
    forward: Callable[Concatenate[Block, P], Tensor],
) -> Callable[Concatenate[Block, P], Tensor]:
    """Return a method of a block that obeys its `gradient_checkpointing`."""

    @wraps(forward)
    def with_checkpoint(block: Block, /, *inputs: P.args, **options: P.kwargs) -> Tensor:
        if block.gradient_checkpointing and block.training and torch.is_grad_enabled():
            return cast(
                Tensor, block._gradient_checkpointing_func(partial(forward, block), *inputs, **options)
            )
        return forward(block, *inputs, **options)

    return with_checkpoint


class Block(nn.Module):
    """Attention, then MLP. Each takes a LayerNorm of the residual stream and adds its output to the stream.

    `forward` is the reference. `forward_at` computes less, and is tested equal.
    With `gradient_checkpointing`, training keeps the input of a block only, and computes the rest again.
    """

    gradient_checkpointing = False  # these two names are those of transformers, which sets both
    _gradient_checkpointing_func = staticmethod(partial(checkpoint, use_reentrant=False))

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

    @checkpointed
    def forward(
        self, x: Float[Tensor, "B S D"], rotation: Rotation | None, mask: Bool[Tensor, "B 1 S S"]
    ) -> Float[Tensor, "B S D"]:
        """Return the output of the block at every slot."""
        q, k, v = self.split_heads(self.project(x), 3)
        q = apply_rotary(q, rotation)
        k = apply_rotary(k, rotation)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # (B, H, S, C)
        return self.residual_and_mlp(x, merge_heads(attended))

    @checkpointed
    def forward_at(
        self,
        x: Float[Tensor, "B Q D"],
        rotation: Rotation | None,
        mask: Bool[Tensor, "#B 1 Q S"] | BlockMask | None,
        selection: Selection | None,
        projected: Float[Tensor, "B Q W"] | None,
    ) -> Float[Tensor, "*N D"]:
        """Return the output of the block at some slots.

        Args:
            x: the input of the block.
            rotation: cosine and sine of each slot's angles. None is no rotary embedding.
            mask: which slots attend to which. None is all to all.
            selection: the slots whose output is returned, (N, D), row by row. None is all, (B, Q, D).
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
        function = compiled(project, x.device.type) if self.compiled else project
        return function(self, x)

    def split_heads(self, x: Float[Tensor, "B S W"], parts: int) -> Float[Tensor, "P B H S C"]:
        """Split each slot's vector into `parts` vectors, and each of these into heads."""
        return x.reshape(*x.shape[:-1], parts, self.heads, -1).permute(2, 0, 3, 1, 4)

    def residual_and_mlp(
        self, x: Float[Tensor, "*N D"], mixed: Float[Tensor, "*N D"]
    ) -> Float[Tensor, "*N D"]:
        """Return the output of the block from its input `x` and what its heads computed, `mixed`."""
        function = compiled(residual_and_mlp, x.device.type) if self.compiled else residual_and_mlp
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
class Selection:
    """Some slots of a batch, row by row, and the groups of rows that attend together."""

    index: Int[Tensor, " N"]  # in the flattened batch
    num_rows: int  # of a group; the last may have fewer
    groups: list[tuple[slice, int, Int[Tensor, " _"]]]  # rows, first slot, index in the group from there on


def select_slots(slots: np.ndarray, device: torch.device, every_query: bool = False) -> Selection:
    """Return the selection of slots that are true in an array (B, Q) on the host.

    All rows attend together, from the first slot on that one of them returns. On a CPU rows that return
    different slots attend in groups, because a small call costs little there.

    Args:
        slots: true where the output is returned.
        device: where the index is used.
        every_query: all slots of all rows attend, as with a mask in blocks.
    """
    num_rows = max(1, len(slots))
    if device.type == "cpu" and not every_query and not (slots == slots[:1]).all():
        num_rows = max(1, TOKENS_PER_GROUP // slots.shape[1])
    groups = []
    for first in range(0, len(slots), num_rows):
        rows = slice(first, first + num_rows)
        start = 0 if every_query else int(slots[rows].argmax(1).min())
        groups.append((rows, start, indices(slots[rows, start:], device)))
    return Selection(indices(slots, device), num_rows, groups)


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
