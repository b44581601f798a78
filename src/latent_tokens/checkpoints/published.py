"""Published Eso-LM and MDLM checkpoints: how they are read, their settings, and the fold of adaLN.

torch reads a .ckpt with `weights_only=True`: tensors, plain values, and nothing that runs. Every
other class in it, such as OmegaConf's, becomes an inert stand-in, so that its package need not be
installed.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from latent_tokens.checkpoints.files import first_difference
from latent_tokens.checks import first_line
from latent_tokens.core.method import METHODS
from latent_tokens.network.transformer import ROTARY_BASE, Transformer
from latent_tokens.sizes import LONGEST, Size

PREFIX = "backbone."
BUFFER = "rotary_emb.inv_freq"  # among the weights, but no parameter, so not in the EMA
WRAPPERS = ("_orig_mod", "module")  # what torch.compile and DistributedDataParallel put into names
# Eso-LM's diffusion_attn_mode
BY_ATTENTION = {"causal": "esolm", "mixed2": "scdm", "bidirectional": "mdm"}
BY_NAME = {"esolm": "esolm", "mdlm": "mdm", "subs": "mdm"}  # what other settings call it

Kind = Literal["ema", "raw"]


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint.

    Attributes:
        weights: its weights by name, without the prefix.
        settings: the settings of its model and algorithm.
        kind: whether the weights are averaged or raw.
        left_out: the names of tensors that are not part of the network.
    """

    weights: Mapping[str, Tensor]
    settings: Mapping[str, Any]
    kind: Kind
    left_out: tuple[str, ...] = ()


def import_checkpoint(
    source: Path, weights: Kind | None = None, method: str | None = None
) -> tuple[Transformer, Checkpoint]:
    """Return the network of a published checkpoint with its method, and what was read.

    Args:
        source: a Lightning .ckpt, or a directory with config.json and model.safetensors.
        weights: the EMA weights of a .ckpt, the default, or the raw ones.
        method: the name of its method. None: that of the file's settings.

    Raises:
        ValueError: the checkpoint is corrupt, of another network, or does not name its method.
    """
    if source.is_dir() and weights == "raw":
        fix = "Leave it out, or name the .ckpt."
        raise ValueError(f"weights=raw: {source} is a directory, which has EMA weights only. {fix}")
    try:
        checkpoint = (
            read_folder(source) if source.is_dir() else read_lightning(source, weights or "ema")
        )
        name = method or method_of(checkpoint.settings)
        net = folded(checkpoint)
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{source}: {first_line(error)}") from None
    net.method = METHODS[name]
    return net.eval(), checkpoint


class Inert:
    """A stand-in for an object of another library. It keeps what the file gives it, and does nothing."""

    state: Any = None

    def __new__(cls, *_: Any, **__: Any) -> Inert:
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        self.state = state


def dict_of(*_: Any) -> dict[Any, Any]:
    """Return a dict in place of one with a default: the items that torch sets need a dict."""
    return {}


def stand_in(name: str) -> tuple[Callable[..., Any], str]:
    """Return what replaces a class in a file, and the name of that class."""
    return dict_of if name == "collections.defaultdict" else type("Inert", (Inert,), {}), name


def read_torch(file: Path) -> Any:
    """Return the content of a file of torch.save: plain values, `Inert` stand-ins and mapped tensors.

    Raises:
        ValueError: the file is corrupt, or of the format before PyTorch 1.6.
    """
    try:
        stand_ins = [stand_in(name) for name in get_unsafe_globals_in_checkpoint(file)]
        with warnings.catch_warnings(), safe_globals([*stand_ins]):
            warnings.simplefilter("ignore")  # that another protocol was written with
            return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a corrupt file may raise anything
        # torch hides the cause behind advice to load without weights_only.
        cause = error.__context__ if isinstance(error.__context__, Exception) else error
        problem = f"corrupt, or not written by torch.save ({first_line(cause)})"
        raise ValueError(f"{problem}. Download it again.") from None


def read_lightning(source: Path, kind: Kind) -> Checkpoint:
    """Read a Lightning checkpoint. Raise ValueError if it is corrupt, or has no such weights."""
    content = read_torch(source)
    entries = content if isinstance(content, dict) else {}
    state = entries.get("state_dict")
    if not isinstance(state, dict) or not all(
        isinstance(tensor, Tensor) for tensor in state.values()
    ):
        fix = "Name a Lightning checkpoint, or its directory."
        raise ValueError(f"{source.name} has no state_dict of tensors. {fix}")
    weights, left_out = backbone_of(state, needs_prefix=True)
    if kind == "ema":
        average = entries.get("ema")
        shadow = average.get("shadow_params") if isinstance(average, dict) else None
        names = [name for name in weights if name != BUFFER]
        averages = [tensor for tensor in shadow or () if isinstance(tensor, Tensor)]
        if len(averages) != len(names):
            number = len(averages) or "no"
            raise ValueError(
                f"has {number} EMA weights for {len(names)} weights. Use --weights raw."
            )
        weights |= dict(zip(names, averages, strict=True))
    return Checkpoint(weights, settings_of(entries.get("hyper_parameters")), kind, left_out)


def read_folder(source: Path) -> Checkpoint:
    """Read a directory of EMA weights, as the authors export them. Raise ValueError if it is incomplete."""
    name = "config.json"
    try:
        settings = settings_of(json.loads((source / name).read_bytes()))
        name = "model.safetensors"
        weights, left_out = backbone_of(load_file(source / name), needs_prefix=False)
    except FileNotFoundError:
        files = "A directory must have config.json and model.safetensors."
        raise ValueError(f"{name} is missing. {files}") from None
    except (
        OSError,
        SafetensorError,
        UnicodeDecodeError,
        json.JSONDecodeError,
        RecursionError,
    ) as error:
        raise ValueError(f"{name} is corrupt ({first_line(error)}). Download it again.") from None
    return Checkpoint(weights, settings, "ema", left_out)


def backbone_of(
    weights: Mapping[str, Tensor], *, needs_prefix: bool
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return (the backbone's weights by name, the names of all others). A directory may omit the prefix.

    Raise ValueError if there are none, or one occurs twice.
    """
    names = {
        name: ".".join(part for part in name.split(".") if part not in WRAPPERS) for name in weights
    }
    prefixed = [name for name, plain_name in names.items() if plain_name.startswith(PREFIX)]
    kept = prefixed if prefixed or needs_prefix else list(names)
    backbone = {names[name].removeprefix(PREFIX): weights[name] for name in kept}
    if not backbone:
        raise ValueError(
            f"no weights are named {PREFIX}*, but like {next(iter(names), 'nothing')[:80]}"
        )
    if len(backbone) != len(kept):
        twice = next(name for name in kept if list(names.values()).count(names[name]) > 1)
        raise ValueError(
            f"has a weight twice, {twice[:80]} and with another prefix. Save it again."
        )
    return backbone, tuple(name for name in names if name not in set(kept))


def content_of(value: Any) -> Any:
    """Return what a stand-in of OmegaConf's dict, list or scalar contains, or the value itself."""
    if isinstance(value, Inert) and isinstance(value.state, dict):
        return value.state.get("_content", value.state.get("_val"))
    return value


def entries_of(value: Any) -> dict[str, Any]:
    """Return the entries of a dict, also of OmegaConf's. Other values have none."""
    entries = content_of(value)
    if not isinstance(entries, dict):
        return {}
    return {name: content_of(entry) for name, entry in entries.items() if isinstance(name, str)}


def settings_of(settings: Any) -> dict[str, Any]:
    """Return the settings of the model and of the algorithm in one dict, without dicts in it."""
    top = entries_of(settings)
    config = entries_of(top["config"]) if isinstance(top.get("config"), dict) else top
    parts = (config, entries_of(config.get("model")), entries_of(config.get("algo")))
    return {
        name: value
        for part in parts
        for name, value in part.items()
        if not isinstance(value, dict | Inert)
    }


def method_of(settings: Mapping[str, Any]) -> str:
    """Return the method of the settings. Raise ValueError if they name none, or an unknown one."""
    attention = settings.get("diffusion_attn_mode")
    if attention is not None:
        if str(attention) not in BY_ATTENTION:
            choices = (
                f"one of {', '.join(BY_ATTENTION)}. Or name it with --method mdm, scdm or esolm."
            )
            raise ValueError(f"diffusion_attn_mode={str(attention)[:80]}: must be {choices}")
        return BY_ATTENTION[str(attention)]
    for key in ("name", "model_type", "parameterization", "architectures"):
        value = settings.get(key)
        for name in value if isinstance(value, list) else [value]:
            known = (
                re.sub(r"[-_ ]", "", str(name).lower())
                .removesuffix("config")
                .removesuffix("formaskedlm")
            )
            if known in BY_NAME:
                return BY_NAME[known]
    fix = "To import it, name it with --method mdm, scdm or esolm."
    raise ValueError(f"its settings do not name its attention. {fix}")


def number_of(settings: Mapping[str, Any], names: Sequence[str], most: int) -> int:
    """Return the first setting that is set. Raise ValueError if it is not a whole number from 1 to `most`."""
    value = next((settings[name] for name in names if settings.get(name) is not None), None)
    if not isinstance(value, int) or not 1 <= value <= most:
        name = f"{' or '.join(names)}={str(value)[:40]}"
        raise ValueError(f"{name} in its settings: must be a whole number from 1 to {most:,}")
    return value


def folded(checkpoint: Checkpoint) -> Transformer:
    """Return the plain transformer that computes the same as a published network.

    Raises:
        ValueError: it is another network, is conditioned on time, or has numbers that are not
            finite.
    """
    # Its settings: nothing may depend on the noise level, and MASK is the last token.
    settings = checkpoint.settings
    for name in ("time_conditioning", "causal_attention"):
        if settings.get(name):
            raise ValueError(
                f"{name}={settings[name]}: is not an Eso-LM or MDLM diffusion model that folds"
            )
    weights = dict(checkpoint.weights)
    frequencies = weights.pop(BUFFER, None)
    layers = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
    embedding, inner = (
        weights.get(name) for name in ("vocab_embed.embedding", "sigma_map.mlp.0.weight")
    )
    if embedding is None or inner is None or embedding.dim() != 2 or inner.dim() != 2:
        raise ValueError(
            "has no vocab_embed and sigma_map: is not an Eso-LM or MDLM diffusion model"
        )
    (rows, width), (cond, waves) = embedding.shape, inner.shape
    size = Size(width, number_of(settings, ("n_heads",), width), layers)
    length = number_of(settings, ("model_length", "length"), LONGEST)
    for name, value in (("mask_index", rows - 1), ("n_blocks", layers)):
        if settings.get(name) not in (None, value):
            raise ValueError(
                f"{name}={settings[name]} in its settings: must be {value}, by its weights"
            )

    # Its weights: their names and shapes, and the rotary embedding.
    expected = shapes(rows, width, layers, cond, waves)
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if (wrong := first_difference(found, expected)) is not None:
        problem = f"is {found.get(wrong, 'missing')}, must be {expected.get(wrong, 'left out')}"
        raise ValueError(f"{PREFIX}{wrong[:80]} {problem}")
    half = width // size.heads // 2
    ours = ROTARY_BASE ** (-torch.arange(half, dtype=torch.float64) / half)
    if frequencies is not None and not same_numbers(frequencies, ours):
        raise ValueError(
            f"{PREFIX}{BUFFER} is not that of base {ROTARY_BASE:,}, and no other is supported"
        )

    with torch.device("meta"):
        net = Transformer(size, rows - 1, length, positions="rotary", gelu="tanh")
    folded_weights = {name: tensor.float() for name, tensor in folding(weights, size)}
    for name, tensor in folded_weights.items():
        if not torch.isfinite(tensor).all():
            problem = (
                "is not finite: training diverged, the file is corrupt, or it is too large to fold"
            )
            raise ValueError(f"{name} {problem}. Use another checkpoint.")
    net.load_state_dict(folded_weights, assign=True)
    return net.requires_grad_(True)


def same_numbers(numbers: Tensor, expected: Tensor) -> bool:
    """Return whether two vectors are equal, to the precision of the type of the first."""
    if numbers.shape != expected.shape or not numbers.is_floating_point():
        return False
    tolerance = max(1e-3, 2 * torch.finfo(numbers.dtype).eps)
    return torch.allclose(numbers.double(), expected, rtol=tolerance, atol=0)


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
        **{
            f"blocks.{number}.{name}": shape
            for number in range(layers)
            for name, shape in block.items()
        },
        "output_layer.norm_final.weight": (width,),
        "output_layer.linear.weight": (rows, width),
        "output_layer.linear.bias": (rows,),
        "output_layer.adaLN_modulation.weight": (2 * width, cond),
        "output_layer.adaLN_modulation.bias": (2 * width,),
    }


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
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = constants(
            f"{block}.adaLN_modulation", 6
        )
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
