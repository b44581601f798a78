"""The network: a plain pre-LN transformer that is given positions and a mask, so that any subset in any order can be shown.

`forward` is the plain way. With `wanted` it computes no more than the wanted slots' logits depend on, and is tested equal.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from latent_tokens.network.kernels import Linear, attend, rotate
from latent_tokens.sizes import Size

ROTARY_BASE = 10_000  # D-1, transformer architecture
TOKENS_A_GROUP = 1_024  # on a CPU, rows of so many tokens attend together in the last layer


class Transformer(nn.Module):
    """A denoiser: (ids Int[B, S], positions Int[B, S], mask Bool[B, S, S]) -> logits Float[B, S, vocab_size + 1].

    The shape is that of the paper (table of sizes) with the constant adaLN folded in: LayerNorm with weight and bias, no bias
    in the attention, GELU, 4x MLP, untied head with bias. MASK is the id after the vocabulary (D-1, transformer architecture; D-2, MASK token).
    `gelu` is the paper's approximation by tanh or the exact one, three times as fast on a CPU; they differ by 5e-4 at most.
    `method` is the Method it was trained with, once known; `folder` the one that it was read from.
    `from_pretrained`, `save_pretrained` and `push_to_hub` are those of sharing.py, which may know of folders and hubs.
    """

    method: Any = None
    folder: Path | None = None
    from_pretrained: ClassVar[Callable[..., Transformer]]
    save_pretrained: ClassVar[Callable[..., None]]
    push_to_hub: ClassVar[Callable[..., str]]

    def __init__(
        self,
        size: Size,
        vocab_size: int,
        max_length: int,
        positions: Literal["both", "rotary", "learned"] = "both",
        dropout: float = 0.0,
        gelu: Literal["tanh", "exact"] = "tanh",
    ) -> None:
        super().__init__()
        self.size, self.vocab_size, self.max_length, self.positions, self.dropout, self.gelu = (
            size,
            vocab_size,
            max_length,
            positions,
            dropout,
            gelu,
        )
        self.mask_id = vocab_size
        self.supports_slots = (
            type(self) is Transformer
        )  # a subclass whose forward takes the wanted slots sets it
        self.embedding = nn.Embedding(vocab_size + 1, size.width)
        self.place = None if positions == "rotary" else nn.Embedding(max_length, size.width)
        self.blocks = nn.ModuleList(Block(size, dropout, gelu) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = Linear(size.width, vocab_size + 1)

    def forward(
        self,
        ids: Int[Tensor, "B S"],
        positions: Int[Tensor, "B S"],
        mask: Bool[Tensor, "B S S"] | BlockMask,
        wanted: Bool[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "*N V"]:
        """The logits of every slot, (B, S, V); with `wanted` those of the wanted ones alone, (N, V), row by row, also under a BlockMask."""
        if wanted is not None:
            # in bf16 the table's gradient would be summed coarsely
            pays = 3 * self.table_rows < 2 * ids.numel() and not torch.is_autocast_enabled(ids.device.type)
            return self.read(
                ids,
                positions,
                mask[:, None] if isinstance(mask, Tensor) else mask,
                wanted,
                self.table() if pays else None,
            )
        x, rotation = self.embed(ids, positions), self.rotation(positions)
        for block in self.blocks:
            x = block(x, rotation, cast(Tensor, mask)[:, None])
        return cast(Tensor, self.head(self.norm(x)))

    def read(
        self,
        ids: Int[Tensor, "B Q"],
        positions: Int[Tensor, "B Q"],
        mask: Bool[Tensor, "#B 1 Q S"] | BlockMask | None,
        wanted: Bool[Tensor, "B Q"],
        table: Float[Tensor, "T W"] | None = None,
        extend: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
    ) -> Float[Tensor, "N V"]:
        """The wanted slots' logits, row by row: the last layer has queries, MLP and head for these alone, exact under every rule.

        `table` is the first layer's projection, `self.table()`. `extend` (number of the layer, its keys, its values) gives the
        keys and values to attend to, where some are remembered.
        """
        x, rotation, last = self.embed(ids, positions), self.rotation(positions), len(self.blocks) - 1
        for number, block in enumerate(self.blocks):
            projected = (
                F.embedding(self.table_index(ids, positions), table)
                if number == 0 and table is not None
                else None
            )
            extended = partial(extend, number) if extend is not None else None
            x = cast(Block, block).read(
                x, rotation, mask, wanted if number == last else None, projected, extended
            )
        return cast(Tensor, self.head(self.norm(x)))

    def embed(self, ids: Int[Tensor, "B S"], positions: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        """What enters the first block: each token's embedding, with that of its position where it is learned."""
        x: Tensor = self.embedding(ids)
        return x if self.place is None else x + self.place(positions)

    def rotation(self, positions: Int[Tensor, "B S"]) -> tuple[Tensor, Tensor] | None:
        """Cosine and sine of each position's angles, (B, 1, S, D/2H); None where none is turned."""
        if self.positions == "learned":
            return None
        weight = self.head.weight
        length = (
            max(self.max_length, int(positions.max()) + 1)
            if self.positions == "rotary" and positions.numel()
            else self.max_length
        )
        cos, sin = turns(length, self.size.width // self.size.heads // 2, weight.dtype, weight.device)
        return cos[positions][:, None], sin[positions][:, None]

    @property
    def table_rows(self) -> int:
        return (self.vocab_size + 1) * (1 if self.place is None else self.max_length)

    def table(self) -> Float[Tensor, "N W"]:
        """The first block's queries, keys and values, not yet turned, for all it can be fed: each token, at each learned position."""
        first, x = cast(Block, self.blocks[0]), self.embedding.weight
        x = x if self.place is None else (x[:, None] + self.place.weight).flatten(0, 1)
        return cast(Tensor, first.qkv(first.attention_norm(x)))

    def table_index(self, ids: Int[Tensor, "B S"], positions: Int[Tensor, "B S"]) -> Int[Tensor, "B S"]:
        """Which row of the table each slot is."""
        return ids if self.place is None else ids * self.max_length + positions


class Block(nn.Module):
    """Attention, then MLP, each on a LayerNorm of the stream and added to it."""

    def __init__(self, size: Size, dropout: float, gelu: Literal["tanh", "exact"]) -> None:
        super().__init__()
        width = size.width
        self.heads, self.dropout, self.approximate = size.heads, dropout, "tanh" if gelu == "tanh" else "none"
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = Linear(width, 3 * width, bias=False)
        self.attention_out = Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = Linear(width, 4 * width)
        self.mlp_out = Linear(4 * width, width)

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        rotation: tuple[Tensor, Tensor] | None,
        mask: Bool[Tensor, "B 1 S S"],
    ) -> Float[Tensor, "B S D"]:
        q, k, v = self.apart(self.qkv(self.attention_norm(x)), 3)
        return self.finish(
            x,
            merge(
                F.scaled_dot_product_attention(rotate(q, rotation), rotate(k, rotation), v, attn_mask=mask)
            ),
        )

    def read(
        self,
        x: Float[Tensor, "B Q D"],
        rotation: tuple[Tensor, Tensor] | None,
        mask: Bool[Tensor, "#B 1 Q S"] | BlockMask | None,
        wanted: Bool[Tensor, "B Q"] | None,
        projected: Float[Tensor, "B Q W"] | None,
        extend: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None,
    ) -> Float[Tensor, "*N D"]:
        """`forward`, or with `wanted` its output at the wanted slots alone, (N, D); see `Transformer.read`."""
        width, weight = x.shape[-1], self.qkv.weight
        normed = x if projected is not None else self.attention_norm(x)
        if projected is None and (wanted is None or type(self.qkv) is not Linear):
            projected = self.qkv(normed)
        k, v = self.apart(
            F.linear(normed, weight[width:]) if projected is None else projected[..., width:], 2
        )
        k = rotate(k, rotation)
        if extend is not None:
            k, v = extend(k, v)
        if wanted is None:
            q = self.apart(cast(Tensor, projected)[..., :width], 1)[0]
            return self.finish(x, merge(attend(rotate(q, rotation), k, v, mask)))

        rows, mixed = rows_a_group(wanted, mask), []
        cut = partial(
            torch.split, split_size_or_sections=rows
        )  # unlike slices, its gradient is put together once
        groups = zip(
            cut(wanted),
            cut(normed if projected is None else projected[..., :width]),
            cut(k),
            cut(v),
            strict=True,
        )
        for number, (asked, source, keys, values) in enumerate(groups):
            start = (
                0 if isinstance(mask, BlockMask) else int(asked.int().argmax(1).min())
            )  # no row of the group wants a slot before it
            here, last = slice(number * rows, (number + 1) * rows), source[:, start:]
            q = self.apart(last if projected is not None else F.linear(last, weight[:width]), 1)[0]
            turn = None if rotation is None else (rotation[0][here, :, start:], rotation[1][here, :, start:])
            seen = (
                mask[here if len(mask) > 1 else slice(None), :, start:] if isinstance(mask, Tensor) else mask
            )
            mixed.append(pick(merge(attend(rotate(q, turn), keys, values, seen)), asked[:, start:]))
        return self.finish(pick(x, wanted), mixed[0] if len(mixed) == 1 else torch.cat(mixed))

    def apart(self, x: Float[Tensor, "B S W"], parts: int) -> Float[Tensor, "P B H S C"]:
        """x, which holds `parts` vectors a slot side by side, with the parts and the heads apart."""
        return x.reshape(*x.shape[:-1], parts, self.heads, -1).permute(2, 0, 3, 1, 4)

    def finish(self, x: Float[Tensor, "*N D"], mixed: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        """The block's output where x went in and `mixed` is what its heads have attended to."""
        x = x + F.dropout(self.attention_out(mixed), self.dropout, self.training)
        hidden = F.gelu(self.mlp_in(self.mlp_norm(x)), approximate=self.approximate)
        return x + F.dropout(self.mlp_out(hidden), self.dropout, self.training)


@lru_cache(maxsize=8)
def turns(
    length: int, half: int, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "L C"], Float[Tensor, "L C"]]:
    """Cosine and sine of the angles of positions 0..length-1: computed in float32, whatever the weights are."""
    with torch.inference_mode(mode=False):  # so that training may use what decoding asked for first
        angles = torch.arange(length, device=device)[:, None] * ROTARY_BASE ** (
            -torch.arange(half, device=device) / half
        )
        return angles.cos().to(dtype), angles.sin().to(dtype)


def merge(mixed: Float[Tensor, "B H Q C"]) -> Float[Tensor, "B Q D"]:
    """The heads side by side again."""
    return mixed.transpose(1, 2).flatten(2)


def pick(x: Float[Tensor, "B Q D"], wanted: Bool[Tensor, "B Q"]) -> Float[Tensor, "N D"]:
    """x at the wanted slots, row by row."""
    return x.flatten(0, 1).index_select(0, wanted.flatten().nonzero().flatten())


def rows_a_group(wanted: Bool[Tensor, "B Q"], mask: object) -> int:
    """How many rows attend together in the last layer: all, but on a CPU, where a small call costs little, fewer if they want unlike slots."""
    alike = wanted.device.type != "cpu" or isinstance(mask, BlockMask) or bool((wanted == wanted[:1]).all())
    return len(wanted) if alike else max(1, TOKENS_A_GROUP // wanted.shape[1])
