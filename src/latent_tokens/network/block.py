"""A block of the transformer: attention, then MLP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from latent_tokens.network.kernels import Linear, attend
from latent_tokens.network.rotary import Rotation, apply_rotary
from latent_tokens.sizes import Size

TOKENS_PER_GROUP = 1_024  # on a CPU, rows of at most this many tokens attend together in the last layer


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
        self.qkv = Linear(width, 3 * width, bias=False)
        self.attention_out = Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = Linear(width, 4 * width)
        self.mlp_out = Linear(4 * width, width)

    def forward(
        self, x: Float[Tensor, "B S D"], rotation: Rotation | None, mask: Bool[Tensor, "B 1 S S"]
    ) -> Float[Tensor, "B S D"]:
        """Return the output of the block at every slot."""
        q, k, v = self.split_heads(self.qkv(self.attention_norm(x)), 3)
        q = apply_rotary(q, rotation)
        k = apply_rotary(k, rotation)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # (B, H, S, C)
        return self.residual_and_mlp(x, merge_heads(attended))

    def forward_at(
        self,
        x: Float[Tensor, "B Q D"],
        rotation: Rotation | None,
        mask: Bool[Tensor, "#B 1 Q S"] | BlockMask | None,
        slots: Bool[Tensor, "B Q"] | None,
        projected: Float[Tensor, "B Q W"] | None,
        append: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None,
    ) -> Float[Tensor, "*N D"]:
        """Return the output of the block at some slots.

        Args:
            x: the input of the block.
            rotation: cosine and sine of each slot's angles. None is no rotary embedding.
            mask: which slots attend to which. None is all to all.
            slots: the slots whose output is returned, (N, D), row by row. None is all, (B, Q, D).
            projected: queries, keys and values of each slot, side by side, if they were looked up.
            append: takes the keys and values, and returns those to attend to, with the cached ones.
        """
        width = x.shape[-1]

        # Project. For some slots only, the queries are projected below, from `source`.
        if projected is None and (slots is None or type(self.qkv) is not Linear):
            projected = self.qkv(self.attention_norm(x))
        if projected is None:
            source = self.attention_norm(x)
            query_weight = self.qkv.weight[:width]
            keys_and_values = F.linear(source, self.qkv.weight[width:])
        else:
            source = projected[..., :width]
            query_weight = None
            keys_and_values = projected[..., width:]
        k, v = self.split_heads(keys_and_values, 2)
        k = apply_rotary(k, rotation)
        if append is not None:
            k, v = append(k, v)

        # Every slot attends.
        if slots is None:
            q = apply_rotary(self.split_heads(source, 1)[0], rotation)
            return self.residual_and_mlp(x, merge_heads(attend(q, k, v, mask)))

        # Some slots attend: group by group, from the first slot that a row of the group returns.
        num_rows = max_rows(slots, mask)
        mixed = []
        # Unlike slices, the parts of a split join their gradients in one operation.
        parts = [torch.split(tensor, num_rows) for tensor in (slots, source, k, v)]
        groups = zip(*parts, strict=True)
        for number, (group_slots, group_source, group_k, group_v) in enumerate(groups):
            rows = slice(number * num_rows, (number + 1) * num_rows)
            start = 0 if isinstance(mask, BlockMask) else int(group_slots.int().argmax(1).min())
            queries = group_source[:, start:]
            if query_weight is not None:
                queries = F.linear(queries, query_weight)
            q = apply_rotary(self.split_heads(queries, 1)[0], rotation_of(rotation, rows, start))
            attended = attend(q, group_k, group_v, mask_of(mask, rows, start))
            mixed.append(select_slots(merge_heads(attended), group_slots[:, start:]))

        # The MLP takes the selected slots only.
        joined = mixed[0] if len(mixed) == 1 else torch.cat(mixed)  # (N, D)
        return self.residual_and_mlp(select_slots(x, slots), joined)

    def split_heads(self, x: Float[Tensor, "B S W"], parts: int) -> Float[Tensor, "P B H S C"]:
        """Split each slot's vector into `parts` vectors, and each of these into heads."""
        return x.reshape(*x.shape[:-1], parts, self.heads, -1).permute(2, 0, 3, 1, 4)

    def residual_and_mlp(
        self, x: Float[Tensor, "*N D"], mixed: Float[Tensor, "*N D"]
    ) -> Float[Tensor, "*N D"]:
        """Return the output of the block from its input `x` and what its heads computed, `mixed`."""
        x = x + F.dropout(self.attention_out(mixed), self.dropout, self.training)
        hidden = F.gelu(self.mlp_in(self.mlp_norm(x)), approximate=self.approximate)
        return x + F.dropout(self.mlp_out(hidden), self.dropout, self.training)


def merge_heads(attended: Float[Tensor, "B H Q C"]) -> Float[Tensor, "B Q D"]:
    """Join the heads of each slot."""
    return attended.transpose(1, 2).flatten(2)


def select_slots(x: Float[Tensor, "B Q D"], slots: Bool[Tensor, "B Q"]) -> Float[Tensor, "N D"]:
    """Return x at some slots, row by row."""
    return x.flatten(0, 1).index_select(0, slots.flatten().nonzero().flatten())


def max_rows(slots: Bool[Tensor, "B Q"], mask: Bool[Tensor, "#B 1 Q S"] | BlockMask | None) -> int:
    """Return how many rows attend together: all, but on a CPU fewer if they return different slots.

    A small call costs little there, and a group starts at the first slot that one of its rows returns.
    """
    if slots.device.type != "cpu" or isinstance(mask, BlockMask) or bool((slots == slots[:1]).all()):
        return len(slots)
    return max(1, TOKENS_PER_GROUP // slots.shape[1])


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
