"""Trained networks of `transformers`: their entry in config.json, and how a directory opens again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from safetensors import SafetensorError

from latent_tokens.checkpoints.description import KINDS, Entries, check_numbers
from latent_tokens.checkpoints.finding import find
from latent_tokens.checkpoints.hub import fetch
from latent_tokens.checkpoints.hugging_face import FILES, check_installed, read_model
from latent_tokens.checkpoints.own_network import load_weights
from latent_tokens.checkpoints.stored_methods import method_from
from latent_tokens.checkpoints.tensor_files import first_difference, shapes_of, tensors_sha256
from latent_tokens.checks import first_line
from latent_tokens.network.hf import FAMILIES, Adapter, HuggingFaceDenoiser, add_lora, freeze_embeddings
from latent_tokens.storage import Json

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TRANSFORMERS = "transformers"  # the network of config.json
OF_THIS_PACKAGE = (*KINDS, "format", "model", "method", "start", "stretches")
"""Entries of config.json that are not of a config of transformers."""
CORRUPT = (KeyError, TypeError, AttributeError, RuntimeError, SafetensorError, OSError)


def is_adapted(config: Entries) -> bool:
    """Return whether config.json describes a network of transformers."""
    model = config.get("model")
    return isinstance(model, dict) and model.get("network") == TRANSFORMERS


def describe_adapted(net: HuggingFaceDenoiser) -> dict[str, Json]:
    """Return the entry of config.json from which `build_adapted` builds a network."""
    entry: dict[str, Json] = {
        "network": TRANSFORMERS,
        "class": type(net.model).__name__,
        "readout": net.readout,
        "vocab_size": net.vocab_size,
        "max_length": net.max_length,
        "mask_id": net.mask_id,
    }
    if net.adapter is not None:
        return {**entry, "adapter": asdict(net.adapter)}
    if net.has_frozen_embeddings:
        entry["freeze_embeddings"] = True
    config = of_transformers(net.model.config.to_diff_dict())
    config.pop("transformers_version", None)
    return {**entry, "config": config}


def of_transformers(config: Mapping[str, Json]) -> dict[str, Json]:
    """Return the entries of a config of transformers, without those that this package added to its file."""
    return {name: value for name, value in config.items() if name not in OF_THIS_PACKAGE}


def is_for_transformers(config: Entries) -> bool:
    """Return whether config.json describes a network of transformers that transformers opens, too."""
    return is_adapted(config) and not {"config", "adapter"} & config["model"].keys()


def open_adapted(config: Entries, folder: Path, base: str | Path | None = None) -> HuggingFaceDenoiser:
    """Return the network of a directory in eval mode, with its weights, method and folder.

    Args:
        config: its config.json.
        folder: the directory.
        base: the model that an adapter belongs to. None is the directory or name that it was trained with.

    Raises:
        ValueError: transformers or peft is not installed, the directory is corrupt, or the base is missing or
            another one.
    """
    check_installed(str(folder))
    weights = folder / "model.safetensors"
    entry = config["model"]
    try:
        method = method_from(config["method"])
        check_numbers(entry)
        if "config" in entry:
            check_shapes(entry, folder, weights)
        net = build_adapted(entry, folder, base)
    except CORRUPT as error:
        problem = f"corrupt ({first_line(error)})"
        raise ValueError(f"{folder / 'config.json'}: {problem}. Save the model again.") from None
    if "config" in entry or "adapter" in entry:
        load_weights(net, weights)
    net.method = method
    net.folder = folder.absolute()
    return net.eval()


def build_adapted(entry: Entries, folder: Path, base: str | Path | None = None) -> HuggingFaceDenoiser:
    """Return the network of an entry of config.json, without its trained weights.

    Args:
        entry: what `describe_adapted` returned. Without "config" and "adapter", transformers can open the
            directory, and the network has its weights.
        folder: the directory.
        base: the model that an adapter belongs to. None is the one of the entry.

    Raises:
        KeyError, TypeError, ValueError: the entry is corrupt.
    """
    if "config" in entry:
        model = untrained_model(entry)
    elif "adapter" in entry:
        model = read_base(Adapter(**entry["adapter"]), folder, base)
    else:
        model = read_model(folder)
    has_row = entry["readout"] != "shifted" and entry["mask_id"] != model.config.vocab_size
    net = HuggingFaceDenoiser(model, entry["mask_id"] if has_row else None, entry["readout"])
    net.mask_id = entry["mask_id"]
    net.vocab_size = entry["vocab_size"]
    net.max_length = entry["max_length"]
    if "adapter" in entry:
        with torch.random.fork_rng():
            add_lora(net, Adapter(**entry["adapter"]))
    elif entry.get("freeze_embeddings"):
        freeze_embeddings(net)
    return net


def read_base(adapter: Adapter, folder: Path, base: str | Path | None) -> PreTrainedModel:
    """Return the model that an adapter belongs to.

    Raises:
        ValueError: it is missing, or another one.
    """
    name = str(base or adapter.base)
    hint = "Name its directory with base=DIR, or start=DIR to resume it."
    try:
        path = find(name, partial(fetch, files=FILES))
    except ValueError as error:
        raise ValueError(f"{folder}: adapts {adapter.base}. {error}. {hint}") from None
    model = read_model(path)
    digest = tensors_sha256(model.state_dict())
    if digest != adapter.base_sha256:
        trained = f"adapts {adapter.base} with SHA-256 {adapter.base_sha256[:12]}"
        raise ValueError(f"{folder}: {trained}, and {name} has {digest[:12]}. {hint}")
    return model


def untrained_model(entry: Entries) -> PreTrainedModel:
    """Return a model with random weights, of a class of transformers itself."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    config = entry["config"]
    if config["model_type"] not in FAMILIES:
        raise ValueError(f"model_type={str(config['model_type'])[:80]}: not a model that is tested.")
    reader = AutoModelForMaskedLM if entry["class"].endswith("ForMaskedLM") else AutoModelForCausalLM
    with torch.random.fork_rng():
        model = reader.from_config(AutoConfig.for_model(**config))  # type: ignore[no-untyped-call]
        return cast("PreTrainedModel", model)


def check_shapes(entry: Entries, folder: Path, weights: Path) -> None:
    """Raise ValueError unless the weights of a file are those of an entry. No weight is allocated."""
    stored = shapes_of(weights)
    if entry["config"].get("num_hidden_layers", 0) > len(stored):
        raise ValueError(f"{folder / 'config.json'}: corrupt, it has more layers than {weights} has weights.")
    with torch.device("meta"):
        net = build_adapted(entry, folder)
    shapes = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    if (name := first_difference(stored, shapes)) is not None:
        difference = f"{name[:80]} is {stored.get(name, 'missing')}, and {shapes.get(name, 'nothing')} by it"
        raise ValueError(
            f"{weights}: corrupt, or not of its config.json ({difference}). Save the model again."
        )
