"""Published Eso-LM and MDLM checkpoints: how they are read, their settings, and the fold of adaLN.

torch reads a .ckpt with `weights_only=True`: tensors, plain values, and nothing that runs. Every other class
in it, such as OmegaConf's, becomes an inert stand-in, so that its package need not be installed.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from latent_tokens.checks import first_line
from latent_tokens.core.method import METHODS
from latent_tokens.network.transformer import ROTARY_BASE, Transformer
from latent_tokens.sizes import LONGEST, Size

PREFIX = "backbone."
BUFFER = "rotary_emb.inv_freq"  # among the weights, but no parameter, so not in the EMA
FLOATING = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
WRAPPERS = ("_orig_mod", "module")  # what torch.compile and DistributedDataParallel put into names
BY_ATTENTION = {"causal": "esolm", "mixed2": "scdm", "bidirectional": "mdm"}  # Eso-LM's diffusion_attn_mode
BY_NAME = {"esolm": "esolm", "mdlm": "mdm", "subs": "mdm"}  # what other settings call it

Kind = Literal["ema", "raw"]
T = TypeVar("T")


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint.

    Attributes:
        source: the file or directory.
        size: the size of its network.
        rows: the rows of its embedding: the tokens and MASK.
        weights: its weights by name, without the prefix.
        settings: the settings of its model and algorithm.
        kind: whether the weights are averaged or raw.
        left_out: the names of tensors that are not part of the network.
    """

    source: Path
    size: Size
    rows: int
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
        raise ValueError(
            f"weights=raw: {source} is a directory, which has EMA weights only. "
            "Leave it out, or name the .ckpt."
        )
    checkpoint = read_folder(source) if source.is_dir() else read_lightning(source, weights or "ema")
    name = method or method_of(checkpoint)
    length = setting(source, checkpoint.settings, ("model_length", "length"), LONGEST)
    try:
        net = folded(checkpoint.weights, checkpoint.size, checkpoint.rows - 1, length)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
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
        raise ValueError(
            f"{file}: corrupt, or not written by torch.save ({first_line(cause)}). Download it again."
        ) from None


def read_lightning(source: Path, kind: Kind) -> Checkpoint:
    """Read a Lightning checkpoint. Raise ValueError if it is corrupt, or has no such weights."""
    if source.suffix == ".safetensors":
        raise ValueError(f"{source}: has no settings. Name the directory, which has config.json.")
    content = read_torch(source)
    entries = content if isinstance(content, dict) else {}
    state = entries.get("state_dict")
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise ValueError(f"{source}: has no state_dict of tensors. Name a Lightning checkpoint.")
    weights, left_out = backbone_of(source, state)
    settings = settings_of(entries.get("hyper_parameters"))
    size, rows = size_of(source, weights, settings)
    if kind == "ema":
        weights |= ema_weights(source, weights, entries.get("ema"))
    return Checkpoint(source, size, rows, weights, settings, kind, left_out)


def read_folder(source: Path) -> Checkpoint:
    """Read a directory of EMA weights, as the authors export them. Raise ValueError if it is incomplete."""
    for name in ("config.json", "model.safetensors"):
        if not (source / name).is_file():
            raise ValueError(
                f"{source}: {name} is missing. A directory must have config.json and model.safetensors."
            )
    try:
        name = "config.json"
        settings = settings_of(json.loads((source / name).read_bytes()))
        name = "model.safetensors"
        weights, left_out = backbone_of(source, load_file(source / name))
    except (OSError, SafetensorError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{source / name}: corrupt ({first_line(error)}). Download it again.") from None
    size, rows = size_of(source, weights, settings)
    return Checkpoint(source, size, rows, weights, settings, "ema", left_out)


def backbone_of(source: Path, weights: Mapping[str, T]) -> tuple[dict[str, T], tuple[str, ...]]:
    """Return (the backbone's weights by name, the names of all others). A directory may omit the prefix.

    Raise ValueError if there are none, or one occurs twice.
    """
    names = {name: ".".join(part for part in name.split(".") if part not in WRAPPERS) for name in weights}
    prefixed = [name for name, plain_name in names.items() if plain_name.startswith(PREFIX)]
    kept = prefixed or [name for name in names if source.is_dir()]
    backbone = {names[name].removeprefix(PREFIX): weights[name] for name in kept}
    if not backbone:
        raise ValueError(
            f"{source}: no weights are named {PREFIX}*, but like {next(iter(names), 'nothing')[:80]}"
        )
    if len(backbone) != len(kept):
        raise ValueError(
            f"{source}: has a weight twice, "
            "with a prefix of torch.compile or DistributedDataParallel and without. "
            "Save it again."
        )
    return backbone, tuple(name for name in names if name not in set(kept))


def ema_weights(source: Path, weights: Mapping[str, Tensor], average: Any) -> dict[str, Tensor]:
    """Return the EMA of each weight. Raise ValueError if a file has none, or others."""
    shadow = average.get("shadow_params") if isinstance(average, dict) else None
    names = [name for name in weights if name != BUFFER]
    if not isinstance(shadow, list) or not all(isinstance(tensor, Tensor) for tensor in shadow):
        raise ValueError(f"{source}: has no EMA weights. Read the others with --weights raw.")
    if len(shadow) != len(names):
        raise ValueError(
            f"{source}: {len(shadow)} EMA weights for {len(names)} weights, so they cannot be matched. "
            "Use --weights raw."
        )
    for name, tensor in zip(names, shadow, strict=True):
        if tensor.shape != weights[name].shape or tensor.dtype not in FLOATING:
            shapes = f"{tuple(tensor.shape)} of {tensor.dtype}, must be {tuple(weights[name].shape)}"
            raise ValueError(f"{source}: the EMA of {PREFIX}{name} is {shapes}. Use --weights raw.")
    return dict(zip(names, shadow, strict=True))


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
        name: value for part in parts for name, value in part.items() if not isinstance(value, dict | Inert)
    }


def size_of(source: Path, weights: Mapping[str, Tensor], settings: Mapping[str, Any]) -> tuple[Size, int]:
    """Return the size of the network that has these weights, and the rows of its embedding.

    Raise ValueError if a weight is missing, of another shape, or one too many.
    """
    # Models that are not folded: conditioned on time, or autoregressive.
    if settings.get("time_conditioning") not in (None, False):
        raise ValueError(
            f"{source}: time_conditioning={settings['time_conditioning']}: "
            "layers that depend on the noise level do not fold into a plain transformer"
        )
    if settings.get("causal_attention") not in (None, False) or "sigma_map.mlp.0.weight" not in weights:
        raise ValueError(
            f"{source}: sigma_map is missing among its weights, "
            "so it is not an Eso-LM or MDLM diffusion model. Use one of these."
        )

    # The sizes, by the shapes of two matrices and the number of blocks.
    rows, width = matrix_shape(source, weights, "vocab_embed.embedding")
    cond, waves = matrix_shape(source, weights, "sigma_map.mlp.0.weight")
    layers = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
    num_blocks = settings.get("n_blocks")
    if layers < 1 or (isinstance(num_blocks, int) and layers != num_blocks):
        raise ValueError(
            f"{source}: has weights of {layers} blocks, and n_blocks={num_blocks} in its settings"
        )
    heads = setting(source, settings, ("n_heads",), width)
    if width % (2 * heads):
        raise ValueError(
            f"{source}: n_heads={heads} in its settings: "
            f"does not divide a width of {width} into heads of a whole, even number of channels"
        )
    if settings.get("mask_index") not in (None, rows - 1):
        raise ValueError(
            f"{source}: mask_index={settings['mask_index']}: "
            f"must be the last of the {rows} rows of the embedding"
        )
    check_weights(source, weights, shapes(rows, width, layers, cond, waves))
    return Size(width, heads, layers), rows


def check_weights(
    source: Path, weights: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise ValueError with the first weight that is missing, unknown, or of another shape or type."""
    for what, names in (
        ("is missing", expected.keys() - weights.keys()),
        ("is not a weight of the network of Eso-LM or MDLM", weights.keys() - expected.keys() - {BUFFER}),
    ):
        if names:
            others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise ValueError(f"{source}: {PREFIX}{min(names)[:80]} {what}{others}")
    for name, shape in expected.items():
        if tuple(weights[name].shape) != shape or weights[name].dtype not in FLOATING:
            problem = f"{tuple(weights[name].shape)} of {weights[name].dtype}"
            raise ValueError(
                f"{source}: {PREFIX}{name} is {problem}: must be {shape}, and of floating-point numbers"
            )


def matrix_shape(source: Path, weights: Mapping[str, Tensor], name: str) -> tuple[int, int]:
    """Return the shape of a weight. Raise ValueError if it is missing, or not a matrix."""
    shape = tuple(weights[name].shape) if name in weights else ()
    if len(shape) != 2:
        problem = f"is {shape}: must have two dimensions" if name in weights else "is missing"
        raise ValueError(f"{source}: {PREFIX}{name} {problem}")
    return shape


def setting(source: Path, settings: Mapping[str, Any], names: Sequence[str], most: int) -> int:
    """Return the first setting that is set. Raise ValueError if it is not a whole number from 1 to `most`."""
    value = next((settings[name] for name in names if settings.get(name) is not None), None)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ValueError(
            f"{source}: {' or '.join(names)}={str(value)[:40]} in its settings: "
            f"must be a whole number from 1 to {most:,}"
        )
    return value


def method_of(checkpoint: Checkpoint) -> str:
    """Return the method of the settings. Raise ValueError if they name none, or an unknown one."""
    settings = checkpoint.settings
    choices = "name it with --method mdm, scdm or esolm"
    attention = settings.get("diffusion_attn_mode")
    if attention is not None:
        if not isinstance(attention, str) or attention not in BY_ATTENTION:
            shown = attention if isinstance(attention, str) else type(attention).__name__
            raise ValueError(
                f"{checkpoint.source}: diffusion_attn_mode={shown[:80]}: "
                f"must be one of {', '.join(BY_ATTENTION)}. Or {choices}."
            )
        return BY_ATTENTION[attention]
    for key in ("name", "model_type", "parameterization", "architectures"):
        value = settings.get(key)
        for name in value if isinstance(value, list) else [value]:
            known = re.sub(r"[-_ ]", "", str(name).lower()).removesuffix("config").removesuffix("formaskedlm")
            if known in BY_NAME:
                return BY_NAME[known]
    raise ValueError(f"{checkpoint.source}: its settings do not name its attention. To import it, {choices}.")


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
