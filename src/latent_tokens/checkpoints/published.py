"""Published Eso-LM and MDLM checkpoints: their settings, the fold of adaLN, and how they are opened."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeGuard, TypeVar

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor

from latent_tokens.checkpoints.torchfile import Inert, Saved, is_plain_tensor, read_torch
from latent_tokens.checks import first_line
from latent_tokens.core.method import METHODS
from latent_tokens.network.transformer import ROTARY_BASE, Transformer
from latent_tokens.sizes import LONGEST, Size
from latent_tokens.storage import Json

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


MOST_HEADS, WIDEST = 1 << 10, 1 << 16


DEEPEST, MOST_SETTINGS = 32, 100_000


@dataclass(frozen=True)
class Stored:
    """A tensor that is not read yet: its type, None if it is not one of FLOATING, and its shape."""

    dtype: torch.dtype | None
    shape: tuple[int, ...]


def plain(value: Saved, source: Path) -> Json:
    """Return settings as dicts, lists and scalars. Raise ValueError if there are too many."""
    num_visited = 0

    def walk(value: Saved, depth: int) -> Json:
        nonlocal num_visited
        num_visited += 1
        if depth > DEEPEST or num_visited > MOST_SETTINGS:
            raise ValueError(
                f"{source}: its settings are nested more than {DEEPEST} deep, "
                f"or more than {MOST_SETTINGS:,}. "
                "Use a published Eso-LM or MDLM checkpoint."
            )
        state = value.state if isinstance(value, Inert) else None
        if isinstance(state, dict):
            return walk(state.get("_content", state.get("_val")), depth + 1)
        if isinstance(value, dict):
            return {key: walk(inner, depth + 1) for key, inner in value.items() if isinstance(key, str)}
        if isinstance(value, (list, tuple)):
            return [walk(inner, depth + 1) for inner in value]
        return value if isinstance(value, (bool, int, float, str)) else None

    return walk(value, 0)


def table(settings: Json) -> dict[str, Json]:
    """Return the settings of the model and of the algorithm in one dict."""
    top: dict[str, Json] = settings if isinstance(settings, dict) else {}
    inner = top.get("config")
    config: dict[str, Json] = inner if isinstance(inner, dict) else top
    parts = [config, *(part for part in (config.get("model"), config.get("algo")) if isinstance(part, dict))]
    return {name: value for part in parts for name, value in part.items() if not isinstance(value, dict)}


def layout_of(source: Path, weights: Mapping[str, Stored], settings: Mapping[str, Json]) -> tuple[Size, int]:
    """Return the size of the network that has these weights, and the rows of its embedding.

    Raise ValueError if a weight is missing, of another shape, or one too many.
    """
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
    (rows, width), (cond, waves) = (
        matrix(source, weights, name) for name in ("vocab_embed.embedding", "sigma_map.mlp.0.weight")
    )
    layers = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
    num_blocks = settings.get("n_blocks")
    if layers < 1 or (isinstance(num_blocks, int) and layers != num_blocks):
        raise ValueError(
            f"{source}: has weights of {layers} blocks, and n_blocks={num_blocks} in its settings"
        )
    expected = shapes(rows, width, layers, cond, waves)
    for what, names in (
        ("is missing", expected.keys() - weights.keys()),
        ("is not a weight of the network of Eso-LM or MDLM", weights.keys() - expected.keys() - {BUFFER}),
    ):
        if names:
            others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise ValueError(f"{source}: {PREFIX}{min(names)[:80]} {what}{others}")
    for name, shape in expected.items():
        if weights[name].shape != shape or weights[name].dtype is None:
            kind = "floating-point numbers" if weights[name].dtype is None else "that shape"
            raise ValueError(
                f"{source}: {PREFIX}{name} is {weights[name].shape}: must be {shape}, and of {kind}"
            )
    heads = setting(source, settings, "n_heads", MOST_HEADS)
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
    return Size(width, heads, layers), rows


def matrix(source: Path, weights: Mapping[str, Stored], name: str) -> tuple[int, int]:
    """Return the shape of a weight. Raise ValueError if it is not a matrix, or too large or small."""
    shape = weights[name].shape if name in weights else None
    if shape is None or len(shape) != 2 or not all(2 <= count <= WIDEST for count in shape):
        reason = f"is {shape}: must have two dimensions of 2 to {WIDEST:,}"
        if shape is None:
            reason = "is missing"
        raise ValueError(f"{source}: {PREFIX}{name} {reason}")
    return shape[0], shape[1]


def setting(source: Path, settings: Mapping[str, Json], names: str | tuple[str, ...], most: int) -> int:
    """Return the first setting that is set. Raise ValueError if it is not a whole number from 1 to `most`."""
    names = (names,) if isinstance(names, str) else names
    value = next((settings[name] for name in names if settings.get(name) is not None), None)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ValueError(
            f"{source}: {' or '.join(names)}={str(value)[:40]} in its settings: "
            f"must be a whole number from 1 to {most:,}"
        )
    return value


T = TypeVar("T")


Kind = Literal["ema", "raw"]


WRAPPERS = ("_orig_mod", "module")  # what torch.compile and DistributedDataParallel put into names


BY_ATTENTION = {"causal": "esolm", "mixed2": "scdm", "bidirectional": "mdm"}  # Eso-LM's diffusion_attn_mode


BY_NAME = {"esolm": "esolm", "mdlm": "mdm", "subs": "mdm"}  # what other settings call it


FLOATS_OF_SAFETENSORS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint: its size, `rows` of the embedding, a reader of its weights, its settings,
    which weights they are, and what was left out.
    """

    source: Path
    size: Size
    rows: int
    read: Callable[[], Iterable[tuple[str, Tensor]]]
    settings: Mapping[str, Json]
    kind: Kind
    left_out: tuple[str, ...] = ()


def import_checkpoint(
    source: Path, weights: Kind | None = None, method: str | None = None
) -> tuple[Transformer, Checkpoint]:
    """Return the network with its method, and its source: a Lightning .ckpt, or a model directory.

    `weights` selects the EMA weights of a .ckpt, the default, or the raw ones. The method is that of the
    file's settings, or the named one. Nothing in the file is executed, and no tensor is read before its name
    and shape are checked. Raise ValueError if it is corrupt, is conditioned on time, or does not
    name its method.
    """
    if source.is_dir() and weights == "raw":
        raise ValueError(
            f"weights=raw: {source} is a directory, which has EMA weights only. "
            "Leave it out, or name the .ckpt."
        )
    checkpoint = read_folder(source) if source.is_dir() else read_lightning(source, weights or "ema")
    name = method or method_of(checkpoint)
    length = setting(source, checkpoint.settings, ("model_length", "length"), LONGEST)
    tensors = dict(checkpoint.read())
    try:
        net = folded(tensors, checkpoint.size, checkpoint.rows - 1, length)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
    net.method = METHODS[name]
    return net.eval(), checkpoint


def read_lightning(source: Path, kind: Kind) -> Checkpoint:
    """Read a Lightning checkpoint. Raise ValueError if it is corrupt, or has no such weights."""
    content = read_torch(source)
    entries = content if isinstance(content, dict) else {}
    state = entries.get("state_dict")
    if not is_state_dict(state):
        raise ValueError(f"{source}: has no state_dict of tensors. Name a Lightning checkpoint.")
    backbone, left_out = inside(source, state)
    settings = table(plain(entries.get("hyper_parameters"), source))
    stored = {
        name: Stored(tensor.dtype if tensor.dtype in FLOATING else None, tuple(tensor.shape))
        for name, tensor in backbone.items()
    }
    size, rows = layout_of(source, stored, settings)
    if kind == "ema":
        backbone |= ema_weights(source, backbone, entries.get("ema"))

    def read() -> Iterable[tuple[str, Tensor]]:
        return check_total(source, backbone).items()

    return Checkpoint(source, size, rows, read, settings, kind, left_out)


def is_state_dict(value: Saved) -> TypeGuard[dict[str, Tensor]]:
    """Return whether a value is a dict of tensors by name."""
    return isinstance(value, dict) and all(
        isinstance(name, str) and is_plain_tensor(tensor) for name, tensor in value.items()
    )


def check_total(source: Path, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the tensors. Raise ValueError if they share storage and take more memory than the file."""
    total = sum(tensor.nbytes for tensor in tensors.values())
    if total > 2 * source.stat().st_size:
        raise ValueError(
            f"{source}: refused, its tensors take {total:,} bytes, more than twice those of the file"
        )
    return tensors


def ema_weights(source: Path, weights: Mapping[str, Tensor], average: Saved) -> dict[str, Tensor]:
    """Return the EMA of each weight. Raise ValueError if a file has none, or others."""
    shadow = average.get("shadow_params") if isinstance(average, dict) else None
    names = [name for name in weights if name != BUFFER]
    if not is_list_of_tensors(shadow):
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


def is_list_of_tensors(value: Saved) -> TypeGuard[list[Tensor]]:
    """Return whether a value is a list of tensors."""
    return isinstance(value, list) and all(is_plain_tensor(tensor) for tensor in value)


def read_folder(source: Path) -> Checkpoint:
    """Read a directory of EMA weights, as the authors export them. Raise ValueError if it is incomplete."""
    for name in ("config.json", "model.safetensors"):
        if not (source / name).is_file():
            raise ValueError(
                f"{source}: {name} is missing. A directory must have config.json and model.safetensors."
            )
    try:
        settings = table(plain(json.loads((source / "config.json").read_bytes()), source))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(
            f"{source / 'config.json'}: corrupt ({first_line(error)}). Download it again."
        ) from None
    file = source / "model.safetensors"
    try:
        with safe_open(file, "pt") as content:
            slices = {name: content.get_slice(name) for name in content.keys()}  # noqa: SIM118
            headers = {
                name: (name, part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()
            }
            backbone, left_out = inside(source, headers)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file}: corrupt ({first_line(error)}). Download it again.") from None
    stored = {
        name: Stored(FLOATS_OF_SAFETENSORS.get(dtype), shape) for name, (_, dtype, shape) in backbone.items()
    }
    size, rows = layout_of(source, stored, settings)

    def read() -> Iterable[tuple[str, Tensor]]:
        with safe_open(file, "pt") as content:
            for name, (full, _, _) in backbone.items():
                yield name, content.get_tensor(full)

    return Checkpoint(source, size, rows, read, settings, "ema", left_out)


def inside(source: Path, weights: Mapping[str, T]) -> tuple[dict[str, T], tuple[str, ...]]:
    """Return (the backbone's weights by name, the names of all others). A directory may omit the prefix.

    Raise ValueError if one is missing or occurs twice.
    """
    names = {name: ".".join(part for part in name.split(".") if part not in WRAPPERS) for name in weights}
    prefixed = [name for name, plain_name in names.items() if plain_name.startswith(PREFIX)]
    kept = prefixed or [name for name in names if not source.is_file()]
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


def method_of(checkpoint: Checkpoint) -> str:
    """Return the method of the settings. Raise ValueError if they name none, or an unknown one."""
    settings = checkpoint.settings
    choices = "name it with --method mdm, scdm or esolm"
    attention = settings.get("diffusion_attn_mode")
    if attention is not None:
        if not isinstance(attention, str) or attention not in BY_ATTENTION:
            raise ValueError(
                f"{checkpoint.source}: diffusion_attn_mode={attention}: "
                f"must be one of {', '.join(BY_ATTENTION)}. Or {choices}."
            )
        return BY_ATTENTION[attention]
    for key in ("name", "model_type", "parameterization", "architectures"):
        value = settings.get(key)
        for name in value if isinstance(value, list) else [value]:
            known = (
                re.sub(r"[-_ ]", "", name.lower()).removesuffix("config").removesuffix("formaskedlm")
                if isinstance(name, str)
                else ""
            )
            if known in BY_NAME:
                return BY_NAME[known]
    raise ValueError(f"{checkpoint.source}: its settings do not name its attention. To import it, {choices}.")
