"""The network: a plain pre-LN transformer that is given positions and a mask, so that any subset in any order can be shown."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latent_tokens.configs import Size

ROTARY_BASE = 10_000  # decision 1


class Transformer(nn.Module):
    """A denoiser: (ids Int[B, S], positions Int[B, S], mask Bool[B, S, S]) -> logits Float[B, S, vocab_size + 1].

    The shape is that of the paper (table of sizes) with the constant adaLN folded in: LayerNorm with weight and bias, no bias
    in the attention, tanh GELU, 4x MLP, untied head with bias. MASK is the id after the vocabulary (decisions 1 and 2).
    `method` is the Method it was trained with, once known.
    """

    method: Any = None

    def __init__(
        self,
        size: Size,
        vocab_size: int,
        max_length: int,
        positions: Literal["both", "rotary", "learned"] = "both",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.size, self.vocab_size, self.max_length, self.positions, self.dropout = size, vocab_size, max_length, positions, dropout
        self.mask_id = vocab_size
        self.embedding = nn.Embedding(vocab_size + 1, size.width)
        self.place = None if positions == "rotary" else nn.Embedding(max_length, size.width)
        self.blocks = nn.ModuleList(Block(size, dropout) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, vocab_size + 1)

    def forward(self, ids: Int[Tensor, "B S"], positions: Int[Tensor, "B S"], mask: Bool[Tensor, "B S S"]) -> Float[Tensor, "B S V"]:
        x, rotation = self.embed(ids, positions), None if self.positions == "learned" else self.rotation(positions, self.head.weight.dtype)
        for block in self.blocks:
            x = block(x, rotation, mask[:, None])
        return cast(Tensor, self.head(self.norm(x)))

    def embed(self, ids: Int[Tensor, "B S"], positions: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        """What enters the first block: each token's embedding, with that of its position where it is learned."""
        x: Tensor = self.embedding(ids)
        return x if self.place is None else x + self.place(positions)

    def rotation(self, positions: Int[Tensor, "B S"], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine of each position's angles, (B, 1, S, D/2H): computed in float32, whatever the weights are."""
        half = self.size.width // self.size.heads // 2
        angles = positions[:, None, :, None] * ROTARY_BASE ** (-torch.arange(half, device=positions.device) / half)
        return angles.cos().to(dtype), angles.sin().to(dtype)


class Block(nn.Module):
    """Attention, then MLP, each on a LayerNorm of the stream and added to it."""

    def __init__(self, size: Size, dropout: float) -> None:
        super().__init__()
        width = size.width
        self.heads, self.dropout = size.heads, dropout
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)

    def forward(self, x: Float[Tensor, "B S D"], rotation: tuple[Tensor, Tensor] | None, mask: Bool[Tensor, "B 1 S S"]) -> Float[Tensor, "B S D"]:
        q, k, v = self.split(self.qkv(self.attention_norm(x)), 3)
        if rotation is not None:
            q, k = rotate(q, *rotation), rotate(k, *rotation)
        return self.finish(x, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))

    def split(self, x: Float[Tensor, "B S N"], parts: int) -> tuple[Float[Tensor, "B H S D"], ...]:
        """x, which holds `parts` vectors a slot side by side, as one tensor each with the heads apart."""
        return x.unflatten(-1, (parts, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

    def finish(self, x: Float[Tensor, "B Q D"], mixed: Float[Tensor, "B H Q C"]) -> Float[Tensor, "B Q D"]:
        """The block's output where x went in and `mixed` is what its heads have attended to."""
        x = x + F.dropout(self.attention_out(mixed.transpose(1, 2).flatten(2)), self.dropout, self.training)
        hidden = F.gelu(self.mlp_in(self.mlp_norm(x)), approximate="tanh")
        return x + F.dropout(self.mlp_out(hidden), self.dropout, self.training)


def rotate(x: Float[Tensor, "B H S D"], cos: Tensor, sin: Tensor) -> Float[Tensor, "B H S D"]:
    """x with its two halves turned by the angle of each position (rotary embedding, half-split)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
