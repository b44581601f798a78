"""Model directories as they are written: config.json and model.safetensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import cast

import torch
from torch import nn

from latent_tokens.checkpoints.adapted import describe_adapted
from latent_tokens.checkpoints.own_network import check_attributes, describe_own
from latent_tokens.checkpoints.stored_methods import method_to
from latent_tokens.checkpoints.tensor_files import weights_bytes
from latent_tokens.core.denoiser import unwrap
from latent_tokens.core.method import Method
from latent_tokens.network.hf import HuggingFaceDenoiser
from latent_tokens.network.transformer import Transformer
from latent_tokens.storage import FORMAT, Json, json_bytes, write_atomic


def save_pretrained(
    net: nn.Module,
    folder: str | Path,
    *,
    dtype: torch.dtype | None = None,
    about: Mapping[str, Json] | None = None,
    beside: Mapping[str, bytes] | None = None,
) -> None:
    """Write config.json and model.safetensors, in `dtype` if it is set.

    The inner network of a wrapper is saved. `about` is added to the config, and `beside` are other files.
    Existing files stay if an error is raised.

    Args:
        net: the network, also in a wrapper.
        folder: the directory to write.
        dtype: the precision of the weights. None is theirs.
        about: keys to add to config.json.
        beside: other files, by name.

    Raises:
        ValueError: the method is missing or cannot be saved.
        OSError: the disk is full.

    Example:
        save_pretrained(net, "models/six")
    """
    folder = Path(folder)
    net = cast(nn.Module, unwrap(net))
    config = json_bytes({**describe(net), **(about or {})})
    folder.mkdir(parents=True, exist_ok=True)
    others = {folder / name: content for name, content in (beside or {}).items()}
    write_atomic(
        {
            **others,
            folder / "model.safetensors": weights_bytes(net.state_dict(), dtype),
            folder / "config.json": config,
        }
    )


def check_can_save(net: nn.Module, dtype: torch.dtype | None) -> None:
    """Raise ValueError for a `Transformer` with an adapter of peft, or a type that weights cannot have."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ValueError(f"dtype={dtype}: must be a floating-point type, such as torch.bfloat16.")
    if isinstance(net, Transformer) and has_lora(net.state_dict()):
        fix = "Save the adapter by itself, or call merge_and_unload() first"
        raise ValueError(f"net=Transformer: has a LoRA adapter of peft. {fix}.")


def has_lora(names: Iterable[str]) -> bool:
    """Return whether some weights, by their names, are those of an adapter of peft."""
    return any(".lora_" in name for name in names)


def describe(net: nn.Module) -> dict[str, Json]:
    """Return the entries of config.json for a model. Raise ValueError if it has no method."""
    check_attributes(net)
    return {"format": FORMAT, "model": describe_network(net), "method": method_to(cast(Method, net.method))}


def describe_network(net: nn.Module) -> dict[str, Json]:
    """Return the entry of config.json for a network."""
    if isinstance(net, Transformer):
        return describe_ours(net)
    return describe_adapted(net) if isinstance(net, HuggingFaceDenoiser) else describe_own(net)


def describe_ours(net: Transformer) -> dict[str, Json]:
    """Return the entry of config.json from which `build` builds a network."""
    return {
        "size": asdict(net.size),
        "vocab_size": net.vocab_size,
        "max_length": net.max_length,
        "positions": net.positions,
        "dropout": net.dropout,
        "gelu": net.gelu,
        **({} if net.parts is None else {"parts": net.parts}),
        **({} if net.answer_tokens is None else {"answer_tokens": net.answer_tokens}),
    }
