"""The products of the network in the form that is fastest where they run; each form gives what torch's own gives."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

FEW_ROWS = 64  # up to so many, a product with the weights in front is a sixth sooner on a CPU in float32


class Linear(nn.Linear):
    """torch's own, in the way that suits decoding a token at a time: few rows, no gradient."""

    def forward(self, x: Float[Tensor, "*N C"]) -> Float[Tensor, "*N D"]:
        if (
            x.numel() > FEW_ROWS * self.in_features
            or x.device.type != "cpu"
            or x.dtype != torch.float32
            or torch.is_grad_enabled()
            or torch.is_autocast_enabled("cpu")
        ):
            return super().forward(x)
        rows = x.reshape(-1, self.in_features)
        flat = (
            rows.contiguous() if len(rows) != 1 else rows.repeat(2, 1)
        ).t()  # other strides, and one row alone, take a third of the speed
        product = (
            self.weight @ flat if self.bias is None else torch.addmm(self.bias[:, None], self.weight, flat)
        )
        return product.t()[: len(rows)].reshape(*x.shape[:-1], self.out_features)


def attend(
    q: Float[Tensor, "B H Q C"],
    k: Float[Tensor, "B H S C"],
    v: Float[Tensor, "B H S C"],
    mask: Bool[Tensor, "#B 1 Q S"] | BlockMask | None,
) -> Float[Tensor, "B H Q C"]:
    """softmax(q k^T / sqrt(C)) v over what the mask shows; all, where it is None.

    Training on a CPU in bf16 takes two matrix products: the fused kernel's backward is four times as long there (docs/performance.md).
    """
    if isinstance(mask, BlockMask):
        return cast(Tensor, compiled_flex_attention(q.device.type)(q, k, v, block_mask=mask))
    if q.device.type == "cpu" and q.dtype == torch.bfloat16 and torch.is_grad_enabled():
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        if mask is not None:
            scores = scores + torch.zeros(mask.shape, dtype=q.dtype).masked_fill_(~mask, -torch.inf)
        return cast(Tensor, scores.softmax(-1) @ v)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@cache
def compiled_flex_attention(device: str) -> Any:
    """FlexAttention, compiled where there are kernels for it; on a CPU as it is, for tests."""
    return flex_attention if device == "cpu" else torch.compile(flex_attention)


def rotate(x: Float[Tensor, "B H S C"], rotation: tuple[Tensor, Tensor] | None) -> Float[Tensor, "B H S C"]:
    """x with its two halves turned by the angle of each position (rotary embedding, half-split); as it is without a rotation."""
    if rotation is None:
        return x
    (a, b), (cos, sin) = x.chunk(2, dim=-1), rotation
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)
