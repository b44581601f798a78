"""Published checkpoints: Eso-LM and MDLM files, as their authors' code writes them, turned into our Transformer.

Their network is a DiT whose LayerNorms are conditioned on a noise level that is always 0 (`time_conditioning=False`), so that
every shift, scale and gate is a constant of the weights. It folds exactly into a plain pre-LN transformer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from latent_tokens.configs import Size
from latent_tokens.methods import METHODS
from latent_tokens.model import ROTARY_BASE, Transformer
from latent_tokens.torchfile import Inert, Saved, read_torch

Kind = Literal["ema", "raw"]

PREFIX = "backbone."
BUFFER = "rotary_emb.inv_freq"  # among the weights, but no parameter, so not in the moving average
BY_ATTENTION = {"causal": "esolm", "mixed2": "scdm", "bidirectional": "mdm"}  # Eso-LM's diffusion_attn_mode
DEEPEST = 32  # of nested settings


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds: weights by their names in the network, settings in one table, and which weights they are."""

    source: Path
    weights: Mapping[str, Tensor]
    settings: Mapping[str, Any]
    kind: Kind


def import_checkpoint(source: Path, weights: Kind = "ema", method: str | None = None) -> tuple[Transformer, Checkpoint]:
    """The network with its method, and what it was read from: a Lightning .ckpt, or a folder with model.safetensors and config.json.

    `weights` says which a .ckpt gives: the moving average, or the raw ones. The method is that of the file's own settings, or the one
    named. Nothing in the file is executed. Raises ValueError where it is damaged, is conditioned on time, or does not say what it is.
    """
    found = read_folder(source) if source.is_dir() else read_lightning(source, weights)
    name = method or method_of(found)
    net = folded(found)
    net.method = METHODS[name]
    return net.eval(), found


def read_lightning(source: Path, weights: Kind) -> Checkpoint:
    """A Lightning checkpoint. Raises ValueError where it is damaged, or has no such weights."""
    content = read_torch(source)
    state, average = (content.get(key) if isinstance(content, dict) else None for key in ("state_dict", "ema"))
    if not isinstance(state, dict) or not all(isinstance(name, str) and isinstance(tensor, Saved) for name, tensor in state.items()):
        raise ValueError(f"{source}: no state_dict of tensors; this is no Lightning checkpoint")
    own: dict[str, Any] = {name.removeprefix(PREFIX): tensor for name, tensor in state.items() if name.startswith(PREFIX)}
    if weights == "ema":
        shadow = average.get("shadow_params") if isinstance(average, dict) else None
        names = [name for name in own if name != BUFFER]
        if not isinstance(shadow, list) or not all(isinstance(tensor, Saved) for tensor in shadow):
            raise ValueError(f"{source}: has no moving average of its weights; read the raw ones with --weights raw")
        if len(shadow) != len(names):
            raise ValueError(f"{source}: {len(shadow)} averages of {len(names)} weights, so which is of which cannot be told; use --weights raw")
        own |= dict(zip(names, shadow, strict=True))
    return Checkpoint(source, {name: tensor.read() for name, tensor in own.items()}, table(plain(content.get("hyper_parameters"))), weights)


def read_folder(source: Path) -> Checkpoint:
    """A folder as Hugging Face writes it; its weights are averages, as the authors export them. Raises ValueError where one is missing or damaged."""
    for name in ("config.json", "model.safetensors"):
        if not (source / name).is_file():
            raise ValueError(f"{source}: {name} is missing; a folder must have config.json and model.safetensors")
    try:
        settings = json.loads((source / "config.json").read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{source / 'config.json'}: damaged ({error}); fetch it again") from None
    try:
        weights = load_file(source / "model.safetensors")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{source / 'model.safetensors'}: damaged ({error}); fetch it again") from None
    return Checkpoint(source, {name.removeprefix(PREFIX): tensor for name, tensor in weights.items()}, table(settings), "ema")


def plain(value: Any, depth: int = 0) -> Any:
    """Settings as dicts, lists and scalars: what omegaconf's nodes hold, None for any other object. Raises ValueError if nested too deeply."""
    if depth > DEEPEST:
        raise ValueError(f"settings nested more than {DEEPEST} deep; this is no published checkpoint")
    state = value.state if isinstance(value, Inert) else None
    if isinstance(state, dict):
        return plain(state.get("_content", state.get("_val")), depth + 1)
    if isinstance(value, dict):
        return {str(key): plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner, depth + 1) for inner in value]
    return value if isinstance(value, (bool, int, float, str)) else None


def table(settings: Any) -> dict[str, Any]:
    """The settings of the model and of what trains it in one table: those of config.model and config.algo, or those at the top."""
    top = settings if isinstance(settings, dict) else {}
    inner = top.get("config")
    config: dict[str, Any] = inner if isinstance(inner, dict) else top
    parts = [config, *(part for part in (config.get("model"), config.get("algo")) if isinstance(part, dict))]
    return {name: value for part in parts for name, value in part.items() if not isinstance(value, dict)}


def method_of(found: Checkpoint) -> str:
    """The method that the settings name. Raises ValueError where they name none, or one that we do not have."""
    settings, choices = found.settings, "name it with --method mdm, scdm or esolm"
    attention = settings.get("diffusion_attn_mode")
    if attention is not None:
        if attention not in BY_ATTENTION:
            raise ValueError(f"{found.source}: diffusion_attn_mode={attention}: must be one of {', '.join(BY_ATTENTION)}; or {choices}")
        return BY_ATTENTION[attention]
    said = " ".join(str(settings.get(key)) for key in ("name", "parameterization", "model_type", "architectures", "_name_or_path")).lower()
    if "eso" in said:
        return "esolm"
    if "mdlm" in said or "subs" in said:
        return "mdm"
    raise ValueError(f"{found.source}: its settings do not say how it attends; {choices}")


def folded(found: Checkpoint) -> Transformer:
    """The plain transformer that computes the same. Raises ValueError where a weight is missing, of another shape, or one too many."""
    weights, settings, source = dict(found.weights), found.settings, found.source
    if settings.get("time_conditioning"):
        raise ValueError(f"{source}: time_conditioning=True: its layers depend on the noise level, so they do not fold into a plain transformer")
    if settings.get("causal_attention") or "sigma_map.mlp.0.weight" not in weights:
        raise ValueError(f"{source}: no sigma_map among its weights: this is an autoregressive baseline, or no model of Eso-LM or MDLM")
    frequencies = weights.pop(BUFFER, None)

    def take(name: str, *shape: int) -> Tensor:
        tensor = weights.pop(name, None)
        if tensor is None or not tensor.is_floating_point() or (shape and tuple(tensor.shape) != shape) or not torch.isfinite(tensor).all():
            what = "is missing" if tensor is None else f"is {tuple(tensor.shape)} of {tensor.dtype}, or not finite; must be {shape}"
            raise ValueError(f"{source}: {PREFIX}{name} {what}")
        return tensor.double()

    embedding = take("vocab_embed.embedding")
    rows, width = embedding.shape if embedding.ndim == 2 else (0, 0)
    layers = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
    heads, length = (whole_setting(found, names) for names in (("n_heads",), ("model_length", "length")))
    if settings.get("mask_index") not in (None, rows - 1):
        raise ValueError(f"{source}: mask_index={settings['mask_index']}: must be the last of the {rows} rows of the embedding")
    if frequencies is not None and not turns_as_ours(frequencies, width // heads):
        raise ValueError(f"{source}: {PREFIX}{BUFFER} is not that of base {ROTARY_BASE:,}; another rotary embedding is not supported")
    net = Transformer(Size(width, heads, layers), rows - 1, length, positions="rotary", gelu="tanh")
    state = {"embedding.weight": embedding, **body(take, width, layers, rows)}
    if weights:
        raise ValueError(f"{source}: {PREFIX}{min(weights)} is no weight of Eso-LM's or MDLM's network")
    net.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    return net


def body(take: Callable[..., Tensor], width: int, layers: int, rows: int) -> dict[str, Tensor]:
    """Our weights from theirs: norm scaled and shifted as one LayerNorm, gates within the outputs that they gate."""
    inner = take("sigma_map.mlp.0.weight")  # (c, f)
    cond, waves = inner.shape
    wave = torch.cat([torch.ones(waves // 2), torch.zeros(waves - waves // 2)]).double()  # cosines and sines of a noise level of 0
    hidden = F.silu(inner @ wave + take("sigma_map.mlp.0.bias", cond))
    condition = F.silu(take("sigma_map.mlp.2.weight", cond, cond) @ hidden + take("sigma_map.mlp.2.bias", cond))

    def constants(name: str, parts: int) -> tuple[Tensor, ...]:
        return (take(f"{name}.weight", parts * width, cond) @ condition + take(f"{name}.bias", parts * width)).chunk(parts)

    state: dict[str, Tensor] = {}
    for number in range(layers):
        theirs, ours = f"blocks.{number}", f"blocks.{number}"
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = constants(f"{theirs}.adaLN_modulation", 6)
        state |= {
            f"{ours}.attention_norm.weight": take(f"{theirs}.norm1.weight", width) * (1 + scale),
            f"{ours}.attention_norm.bias": shift,
            f"{ours}.qkv.weight": take(f"{theirs}.attn_qkv.weight", 3 * width, width),
            f"{ours}.attention_out.weight": gate[:, None] * take(f"{theirs}.attn_out.weight", width, width),
            f"{ours}.mlp_norm.weight": take(f"{theirs}.norm2.weight", width) * (1 + mlp_scale),
            f"{ours}.mlp_norm.bias": mlp_shift,
            f"{ours}.mlp_in.weight": take(f"{theirs}.mlp.0.weight", 4 * width, width),
            f"{ours}.mlp_in.bias": take(f"{theirs}.mlp.0.bias", 4 * width),
            f"{ours}.mlp_out.weight": mlp_gate[:, None] * take(f"{theirs}.mlp.2.weight", width, 4 * width),
            f"{ours}.mlp_out.bias": mlp_gate * take(f"{theirs}.mlp.2.bias", width),
        }
    shift, scale = constants("output_layer.adaLN_modulation", 2)
    return state | {
        "norm.weight": take("output_layer.norm_final.weight", width) * (1 + scale),
        "norm.bias": shift,
        "head.weight": take("output_layer.linear.weight", rows, width),
        "head.bias": take("output_layer.linear.bias", rows),
    }


def whole_setting(found: Checkpoint, names: tuple[str, ...]) -> int:
    """The first of the settings that is there. Raises ValueError where none is, or it is no whole number from 1."""
    value = next((found.settings[name] for name in names if found.settings.get(name) is not None), None)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 1 << 20:
        raise ValueError(f"{found.source}: {' or '.join(names)}={value} in its settings: must be a whole number from 1")
    return value


def turns_as_ours(frequencies: Tensor, channels: int) -> bool:
    """Whether a rotary embedding turns each pair of a head's channels as ours does."""
    half = channels // 2
    ours = ROTARY_BASE ** (-torch.arange(half, dtype=torch.float64) / half)
    return frequencies.shape == ours.shape and bool(torch.allclose(frequencies.double(), ours, rtol=1e-3, atol=0)) and math.isfinite(half)
