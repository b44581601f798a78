"""Published checkpoints: the Eso-LM and MDLM files that their authors' code writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeGuard, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from latent_tokens.checkpoints.architecture import Stored, layout_of, plain, setting, table
from latent_tokens.checkpoints.folding import BUFFER, FLOATING, PREFIX, folded
from latent_tokens.checkpoints.torchfile import Saved, is_plain_tensor, read_torch
from latent_tokens.checks import first_line
from latent_tokens.core.method import METHODS
from latent_tokens.network.transformer import Transformer
from latent_tokens.sizes import LONGEST, Size
from latent_tokens.storage import Json

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
