"""Published checkpoints: the Eso-LM and MDLM files that their authors' code writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from latent_tokens.checkpoints.folding import BUFFER, FLOATING, PREFIX, folded, shapes
from latent_tokens.checkpoints.torchfile import Inert, is_plain_tensor, read_torch
from latent_tokens.checks import first_line
from latent_tokens.core.methods import METHODS
from latent_tokens.network.transformer import Transformer
from latent_tokens.sizes import LONGEST, Size

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
MOST_HEADS, WIDEST = 1 << 10, 1 << 16
DEEPEST, MOST_SETTINGS = 32, 100_000


@dataclass(frozen=True)
class Stored:
    """A tensor that is not read yet: its type, None where it is none of FLOATING, and its shape."""

    dtype: torch.dtype | None
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds: the size of its network, `rows` tokens with MASK, its weights by name when they are read, settings in one table,
    which weights they are, and what was left out.
    """

    source: Path
    size: Size
    rows: int
    read: Callable[[], Iterable[tuple[str, Tensor]]]
    settings: Mapping[str, Any]
    kind: Kind
    left_out: tuple[str, ...] = ()


def import_checkpoint(
    source: Path, weights: Kind | None = None, method: str | None = None
) -> tuple[Transformer, Checkpoint]:
    """The network with its method, and what it was read from: a Lightning .ckpt, or a folder with model.safetensors and config.json.

    `weights` says which a .ckpt gives: the moving average, by default, or the raw ones. The method is that of the file's own settings, or
    the one named. Nothing in the file is executed, and no tensor is read before its name and shape are known to be right. Raises
    ValueError where it is damaged, is conditioned on time, or does not say what it is.
    """
    if source.is_dir() and weights == "raw":
        raise ValueError(
            f"weights=raw: {source} is a folder, which holds averages alone; leave it out, or name the .ckpt"
        )
    found = read_folder(source) if source.is_dir() else read_lightning(source, weights or "ema")
    name = method or method_of(found)
    length = setting(source, found.settings, ("model_length", "length"), LONGEST)
    read = dict(found.read())
    try:
        net = folded(read, found.size, found.rows - 1, length)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
    net.method = METHODS[name]
    return net.eval(), found


def read_lightning(source: Path, kind: Kind) -> Checkpoint:
    """A Lightning checkpoint. Raises ValueError where it is damaged, or has no such weights."""
    content = read_torch(source)
    state, average = (
        content.get(key) if isinstance(content, dict) else None for key in ("state_dict", "ema")
    )
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and is_plain_tensor(tensor) for name, tensor in state.items()
    ):
        raise ValueError(f"{source}: no state_dict of tensors; this is no Lightning checkpoint")
    own, left_out = inside(source, state)
    settings = table(plain(content.get("hyper_parameters"), source))
    stored = {
        name: Stored(tensor.dtype if tensor.dtype in FLOATING else None, tuple(tensor.shape))
        for name, tensor in own.items()
    }
    size, rows = layout_of(source, stored, settings)
    if kind == "ema":
        own |= averages(source, own, average)
    return Checkpoint(source, size, rows, lambda: check_total(source, own).items(), settings, kind, left_out)


def check_total(source: Path, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The tensors. Raises ValueError if they take more memory than the file holds: several of them are the same part of it."""
    total = sum(tensor.nbytes for tensor in tensors.values())
    if total > 2 * source.stat().st_size:
        raise ValueError(
            f"{source}: refused, its tensors take {total:,} bytes, more than twice those of the file"
        )
    return tensors


def averages(source: Path, own: Mapping[str, Tensor], average: Any) -> dict[str, Tensor]:
    """The moving average of each weight. Raises ValueError where a file has none, or others."""
    shadow, names = (
        average.get("shadow_params") if isinstance(average, dict) else None,
        [name for name in own if name != BUFFER],
    )
    if not isinstance(shadow, list) or not all(is_plain_tensor(tensor) for tensor in shadow):
        raise ValueError(
            f"{source}: has no moving average of its weights; read the raw ones with --weights raw"
        )
    if len(shadow) != len(names):
        raise ValueError(
            f"{source}: {len(shadow)} averages of {len(names)} weights, so which is of which cannot be told; use --weights raw"
        )
    for name, tensor in zip(names, shadow, strict=True):
        if tensor.shape != own[name].shape or tensor.dtype not in FLOATING:
            shapes = f"{tuple(tensor.shape)} of {tensor.dtype}; must be {tuple(own[name].shape)}"
            raise ValueError(f"{source}: the average of {PREFIX}{name} is {shapes}; use --weights raw")
    return dict(zip(names, shadow, strict=True))


def read_folder(source: Path) -> Checkpoint:
    """A folder as Hugging Face writes it; its weights are averages, as the authors export them. Raises ValueError where one is missing or damaged."""
    for name in ("config.json", "model.safetensors"):
        if not (source / name).is_file():
            raise ValueError(
                f"{source}: {name} is missing; a folder must have config.json and model.safetensors"
            )
    try:
        settings = table(plain(json.loads((source / "config.json").read_bytes()), source))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{source / 'config.json'}: damaged ({first_line(error)}); fetch it again") from None
    file = source / "model.safetensors"
    try:
        with safe_open(file, "pt") as content:
            slices = {name: content.get_slice(name) for name in content.keys()}  # noqa: SIM118
            own, left_out = inside(
                source,
                {name: (name, one.get_dtype(), tuple(one.get_shape())) for name, one in slices.items()},
            )
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file}: damaged ({first_line(error)}); fetch it again") from None
    stored = {
        name: Stored(FLOATS_OF_SAFETENSORS.get(dtype), shape) for name, (_, dtype, shape) in own.items()
    }
    size, rows = layout_of(source, stored, settings)

    def read() -> Iterable[tuple[str, Tensor]]:
        with safe_open(file, "pt") as content:
            for name, (full, _, _) in own.items():
                yield name, content.get_tensor(full)

    return Checkpoint(source, size, rows, read, settings, "ema", left_out)


def inside(source: Path, weights: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(the backbone's weights by their names in it, the names of all others). A folder may leave the prefix out.

    Raises ValueError where there is none, or one twice.
    """
    names = {name: ".".join(part for part in name.split(".") if part not in WRAPPERS) for name in weights}
    prefixed = [name for name, plain_name in names.items() if plain_name.startswith(PREFIX)]
    kept = prefixed or [name for name in names if not source.is_file()]
    own = {names[name].removeprefix(PREFIX): weights[name] for name in kept}
    if not own:
        raise ValueError(
            f"{source}: no weights named {PREFIX}*; they are named like {next(iter(names), 'nothing')[:80]}"
        )
    if len(own) != len(kept):
        raise ValueError(
            f"{source}: has a weight twice, with a prefix of torch.compile or DistributedDataParallel and without; save it anew"
        )
    return own, tuple(name for name in names if name not in set(kept))


def plain(value: Any, source: Path) -> Any:
    """Settings as dicts, lists and scalars: what omegaconf's nodes hold, None for any other object. Raises ValueError if there is too much."""
    left = [MOST_SETTINGS]

    def walk(value: Any, depth: int) -> Any:
        left[0] -= 1
        if depth > DEEPEST or left[0] < 0:
            raise ValueError(
                f"{source}: its settings are nested more than {DEEPEST} deep, or more than {MOST_SETTINGS:,}; this is no published checkpoint"
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
        if not isinstance(attention, str) or attention not in BY_ATTENTION:
            raise ValueError(
                f"{found.source}: diffusion_attn_mode={attention}: must be one of {', '.join(BY_ATTENTION)}; or {choices}"
            )
        return BY_ATTENTION[attention]
    for key in ("name", "model_type", "parameterization", "architectures"):
        said = settings.get(key)
        for name in said if isinstance(said, list) else [said]:
            known = (
                re.sub(r"[-_ ]", "", name.lower()).removesuffix("config").removesuffix("formaskedlm")
                if isinstance(name, str)
                else ""
            )
            if known in BY_NAME:
                return BY_NAME[known]
    raise ValueError(f"{found.source}: its settings do not say how it attends; {choices}")


def layout_of(source: Path, weights: Mapping[str, Stored], settings: Mapping[str, Any]) -> tuple[Size, int]:
    """(the size of the network that has these weights, the rows of its embedding).

    Raises ValueError where a weight is missing, of another shape, or one too many.
    """
    if settings.get("time_conditioning") not in (None, False):
        raise ValueError(
            f"{source}: time_conditioning={settings['time_conditioning']}: layers that depend on the noise level do not fold into a plain transformer"
        )
    if settings.get("causal_attention") not in (None, False) or "sigma_map.mlp.0.weight" not in weights:
        raise ValueError(
            f"{source}: no sigma_map among its weights: this is an autoregressive baseline, or no model of Eso-LM or MDLM"
        )
    (rows, width), (cond, waves) = (
        matrix(source, weights, name) for name in ("vocab_embed.embedding", "sigma_map.mlp.0.weight")
    )
    layers = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
    said = settings.get("n_blocks")
    if layers < 1 or (isinstance(said, int) and layers != said):
        raise ValueError(f"{source}: has weights of {layers} blocks; its settings say n_blocks={said}")
    wanted = shapes(rows, width, layers, cond, waves)
    for what, names in (
        ("is missing", wanted.keys() - weights.keys()),
        ("is no weight of Eso-LM's or MDLM's network", weights.keys() - wanted.keys() - {BUFFER}),
    ):
        if names:
            others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise ValueError(f"{source}: {PREFIX}{min(names)[:80]} {what}{others}")
    for name, shape in wanted.items():
        if weights[name].shape != shape or weights[name].dtype is None:
            kind = "floating-point numbers" if weights[name].dtype is None else "that shape"
            raise ValueError(
                f"{source}: {PREFIX}{name} is {weights[name].shape}; must be {shape}, and of {kind}"
            )
    heads = setting(source, settings, "n_heads", MOST_HEADS)
    if width % (2 * heads):
        raise ValueError(
            f"{source}: n_heads={heads} in its settings: does not divide a width of {width} into heads of a whole, even number of channels"
        )
    if settings.get("mask_index") not in (None, rows - 1):
        raise ValueError(
            f"{source}: mask_index={settings['mask_index']}: must be the last of the {rows} rows of the embedding"
        )
    return Size(width, heads, layers), rows


def matrix(source: Path, weights: Mapping[str, Stored], name: str) -> tuple[int, int]:
    """The shape of a weight that must be a matrix. Raises ValueError where it is none, or one too large or small."""
    shape = weights[name].shape if name in weights else None
    if shape is None or len(shape) != 2 or not all(2 <= count <= WIDEST for count in shape):
        raise ValueError(
            f"{source}: {PREFIX}{name} {'is missing' if shape is None else f'is {shape}; must have two dimensions of 2 to {WIDEST:,}'}"
        )
    return shape[0], shape[1]


def setting(source: Path, settings: Mapping[str, Any], names: str | tuple[str, ...], most: int) -> int:
    """The first of the settings that is there. Raises ValueError where none is, or it is no whole number from 1 to `most`."""
    names = (names,) if isinstance(names, str) else names
    value = next((settings[name] for name in names if settings.get(name) is not None), None)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ValueError(
            f"{source}: {' or '.join(names)}={str(value)[:40]} in its settings: must be a whole number from 1 to {most:,}"
        )
    return value
