"""The network of Eso-LM and MDLM: its weights by name, and how they fold into our Transformer.

It is a DiT whose LayerNorms are conditioned on a noise level that is always 0 (`time_conditioning=False`).
Every shift, scale and gate is a constant of the weights. It folds exactly into a plain pre-LN transformer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from latent_tokens.network.transformer import ROTARY_BASE, Transformer
from latent_tokens.sizes import Size

PREFIX = "backbone."
BUFFER = "rotary_emb.inv_freq"  # among the weights, but no parameter, so not in the EMA
FLOATING = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def shapes(rows: int, width: int, layers: int, cond: int, waves: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights of the published network by name."""
    block = {
        "norm1.weight": (width,),
        "attn_qkv.weight": (3 * width, width),
        "attn_out.weight": (width, width),
        "norm2.weight": (width,),
        "mlp.0.weight": (4 * width, width),
        "mlp.0.bias": (4 * width,),
        "mlp.2.weight": (width, 4 * width),
        "mlp.2.bias": (width,),
        "adaLN_modulation.weight": (6 * width, cond),
        "adaLN_modulation.bias": (6 * width,),
    }
    return {
        "vocab_embed.embedding": (rows, width),
        "sigma_map.mlp.0.weight": (cond, waves),
        "sigma_map.mlp.0.bias": (cond,),
        "sigma_map.mlp.2.weight": (cond, cond),
        "sigma_map.mlp.2.bias": (cond,),
        **{f"blocks.{number}.{name}": shape for number in range(layers) for name, shape in block.items()},
        "output_layer.norm_final.weight": (width,),
        "output_layer.linear.weight": (rows, width),
        "output_layer.linear.bias": (rows,),
        "output_layer.adaLN_modulation.weight": (2 * width, cond),
        "output_layer.adaLN_modulation.bias": (2 * width,),
    }


def folded(weights: Mapping[str, Tensor], size: Size, vocab_size: int, length: int) -> Transformer:
    """Return the plain transformer that computes the same as a network with weights of these `shapes`.

    Raises ValueError, naming the weight, if numbers are not finite or the rotary embedding is another one.
    """
    theirs = dict(weights)
    frequencies = theirs.pop(BUFFER, None)
    if frequencies is not None and not same_rotary(frequencies, size.width // size.heads):
        raise ValueError(
            f"{PREFIX}{BUFFER} is not that of base {ROTARY_BASE:,}. No other rotary embedding is supported."
        )
    for name, tensor in theirs.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(
                f"{PREFIX}{name} has numbers that are not finite: "
                "training diverged, or the file is corrupt. Use another checkpoint."
            )
    with torch.device("meta"):
        net = Transformer(size, vocab_size, length, positions="rotary", gelu="tanh")
    ours = {name: tensor.float() for name, tensor in folding(theirs, size)}
    for name, tensor in ours.items():
        if not torch.isfinite(tensor).all():
            raise ValueError(f"its weights are too large to fold: {name} is not finite in float32")
    net.load_state_dict(ours, assign=True)
    return net.requires_grad_(True)


def folding(weights: dict[str, Tensor], size: Size) -> Iterable[tuple[str, Tensor]]:
    """Yield our weights from theirs in float64, with norms and gates folded into one LayerNorm and output."""

    def take(name: str) -> Tensor:
        return weights.pop(name).double()

    inner = take("sigma_map.mlp.0.weight")  # (c, f)
    waves = inner.shape[1]
    wave = torch.cat(
        [torch.ones(waves // 2), torch.zeros(waves - waves // 2)]
    ).double()  # cosines and sines of a noise level of 0
    hidden = F.silu(inner @ wave + take("sigma_map.mlp.0.bias"))
    condition = F.silu(take("sigma_map.mlp.2.weight") @ hidden + take("sigma_map.mlp.2.bias"))

    def constants(name: str, parts: int) -> Sequence[Tensor]:
        return (take(f"{name}.weight") @ condition + take(f"{name}.bias")).chunk(parts)

    yield "embedding.weight", take("vocab_embed.embedding")
    for number in range(size.layers):
        block = f"blocks.{number}"
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = constants(f"{block}.adaLN_modulation", 6)
        yield f"{block}.attention_norm.weight", take(f"{block}.norm1.weight") * (1 + scale)
        yield f"{block}.attention_norm.bias", shift
        yield f"{block}.qkv.weight", take(f"{block}.attn_qkv.weight")
        yield f"{block}.attention_out.weight", gate[:, None] * take(f"{block}.attn_out.weight")
        yield f"{block}.mlp_norm.weight", take(f"{block}.norm2.weight") * (1 + mlp_scale)
        yield f"{block}.mlp_norm.bias", mlp_shift
        yield f"{block}.mlp_in.weight", take(f"{block}.mlp.0.weight")
        yield f"{block}.mlp_in.bias", take(f"{block}.mlp.0.bias")
        yield f"{block}.mlp_out.weight", mlp_gate[:, None] * take(f"{block}.mlp.2.weight")
        yield f"{block}.mlp_out.bias", mlp_gate * take(f"{block}.mlp.2.bias")
    shift, scale = constants("output_layer.adaLN_modulation", 2)
    yield "norm.weight", take("output_layer.norm_final.weight") * (1 + scale)
    yield "norm.bias", shift
    yield "head.weight", take("output_layer.linear.weight")
    yield "head.bias", take("output_layer.linear.bias")


def same_rotary(frequencies: Tensor, channels: int) -> bool:
    """Return whether a rotary embedding equals ours, to the precision of its type."""
    half = channels // 2
    ours = ROTARY_BASE ** (-torch.arange(half, dtype=torch.float64) / half)
    if frequencies.shape != ours.shape or frequencies.dtype not in FLOATING:
        return False
    return torch.allclose(
        frequencies.double(), ours, rtol=max(1e-3, 2 * torch.finfo(frequencies.dtype).eps), atol=0
    )
