"""Model directories: how a network is described, saved, built and opened."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar, cast, overload

import torch
from torch import nn

from latent_tokens.checkpoints.files import (
    Entries,
    check_fingerprint,
    corrupt_file,
    find,
    load_weights,
    read_tensor_file,
    weights_bytes,
)
from latent_tokens.checkpoints.learned import check_attributes
from latent_tokens.checkpoints.stored_methods import load_method, method_from, method_to
from latent_tokens.checks import check_choice, check_int, is_whole
from latent_tokens.core.denoiser import unwrap
from latent_tokens.core.method import Method, name_of
from latent_tokens.hf.adapting import freeze_embeddings
from latent_tokens.hf.language_models import HuggingFaceDenoiser
from latent_tokens.hf.reading import (
    OF_HF_FUNCTION,
    describe_hf_run,
    is_for_transformers,
    is_hf_run,
    of_function,
    open_hf_run,
    published_layout,
)
from latent_tokens.network.transformer import Transformer, is_transformer
from latent_tokens.sizes import LONGEST, Size
from latent_tokens.storage import (
    FORMAT,
    Json,
    create_directory,
    json_bytes,
    kind_of,
    read_description,
    write_atomic,
)

OWN = "own"  # the network of config.json that only its user can build
TRANSFORMER_ENTRIES = ("size", "vocab_size", "max_length", "positions", "dropout", "gelu")
# Entries of a `Transformer` in config.json that may be missing
OPTIONAL = ("parts", "answer_tokens")
# Entries that change what equal weights compute
OF_FUNCTION = ("heads", "positions", "gelu", *OPTIONAL, "readout", "mask_id")
CORRUPT = (KeyError, TypeError, AttributeError, RuntimeError)


def save_pretrained(
    net: nn.Module,
    folder: str | Path,
    *,
    dtype: torch.dtype | None = None,
    about: Mapping[str, Json] | None = None,
    beside: Mapping[str, bytes] | None = None,
) -> None:
    """Write config.json and model.safetensors only, in `dtype` if it is set.

    `load` then needs its task. `Model.save_pretrained` writes the task and a card as well.

    The inner network of a wrapper is saved. `about` is added to the config, and `beside` are other
    files. Existing files stay if an error is raised.

    Args:
        net: the network, also in a wrapper.
        folder: the directory to write.
        dtype: the precision of the weights. None is theirs.
        about: keys to add to config.json.
        beside: other files, by name.

    Raises:
        ValueError: the method is missing or cannot be saved, or the directory is that of a run.
        OSError: the directory cannot be created, or the disk is full.

    Example:
        save_pretrained(net, "models/six")
    """
    folder = Path(folder)
    check_not_run(folder)
    net = cast(nn.Module, unwrap(net))
    config = json_bytes({**describe(net), **(about or {})})
    create_directory(folder)
    weights = weights_bytes(net.state_dict(), dtype)
    files = {**(beside or {}), "model.safetensors": weights, "config.json": config}
    write_atomic({folder / name: content for name, content in files.items()})


def check_not_run(folder: Path) -> None:
    """Raise ValueError if a directory is that of a run, which could not be resumed afterwards."""
    is_run = (folder / "metrics.jsonl").exists() or any(folder.glob("state-*.safetensors"))
    if not (is_run or (folder / "model.safetensors").exists()) and kind_of(folder) == "model":
        is_run = "training" in read_description(folder, "config.json", "model")  # it has begun
    if is_run:
        problem = "is the directory of a run, which could not be resumed afterwards"
        raise ValueError(f"{folder}: {problem}. Choose another directory.")


def describe(net: nn.Module) -> dict[str, Json]:
    """Return the entries of config.json for a model. Raise ValueError if it has no method."""
    check_attributes(net)
    method = method_to(cast(Method, net.method))
    return {"format": FORMAT, "model": network_entry(net), "method": method}


def network_entry(net: nn.Module) -> dict[str, Any]:
    """Return the entry of config.json that describes a network."""
    if is_transformer(net):
        entry: dict[str, Any] = {
            name: getattr(net, name) for name in (*TRANSFORMER_ENTRIES, *OPTIONAL)
        }
        entry = {name: value for name, value in entry.items() if value is not None}
        entry["size"] = asdict(net.size)
        return entry
    if isinstance(net, HuggingFaceDenoiser):
        return describe_hf_run(net)
    numbers = {name: getattr(net, name) for name in ("vocab_size", "max_length", "mask_id")}
    return {"network": OWN, "class": type(net).__name__, **numbers}


Net = TypeVar("Net", bound=nn.Module)


@overload
def from_pretrained(
    folder_or_name: str | Path, *, base: str | Path | None = None
) -> Transformer: ...


@overload
def from_pretrained(folder_or_name: str | Path, *, net: Net) -> Net: ...


def from_pretrained(
    folder_or_name: str | Path, *, net: nn.Module | None = None, base: str | Path | None = None
) -> nn.Module:
    """Return the model of a directory or of a name.

    A name is that of a bundled model or, as OWNER/NAME, of the Hugging Face Hub. A directory is a
    run directory, or one that `save_pretrained` wrote.

    The model is on the CPU, in float32 and in eval mode, with `.mask_id`, `.method` and `.folder`.
    It is a `HuggingFaceDenoiser` if that was trained, or imported.

    Args:
        folder_or_name: the directory or name.
        net: the network that receives the weights, in its precision and on its device. A run that
            trained a network of your own needs it. None builds the network.
        base: the model of transformers that a LoRA adapter belongs to, by directory or name. None
            is the one that it was trained with.

    Raises:
        ValueError: the directory is missing, incomplete, corrupt, of another version or of another
            network.

    Example:
        >>> from_pretrained("sudoku-6-scdm").max_length
        36
    """
    folder = find(folder_or_name)
    check_is_ours(folder)
    config = read_description(folder, "config.json", "model", needed=("model", "method"))
    weights = folder / "model.safetensors"
    if not weights.is_file():
        fix = "Resume its training (resume=auto) until it has saved weights."
        raise ValueError(f"{folder}: incomplete, model.safetensors is missing. {fix}")
    if base is not None and "adapter" not in config["model"]:
        raise ValueError(f"base={base}: {folder} has no LoRA adapter. Leave base out.")
    if net is not None:
        return filled(net, config, folder)
    if is_hf_run(config):
        return open_hf_run(config, folder, base)
    try:
        if config["model"].get("network") == OWN:
            problem = f"has weights of your own network {config['model'].get('class')}"
            fix = f"from_pretrained({str(folder)!r}, net=...)"
            raise ValueError(f"{folder}: {problem}. Give it in Python: {fix}")
        tensors = read_tensor_file(weights)
        if (layers := config["model"]["size"]["layers"]) > len(tensors):
            raise TypeError(f"layers={layers}: more than the weights")
        with torch.device("meta"):  # allocate no network before the weights are compared
            ours = build(config)
    except CORRUPT as error:
        raise corrupt_file(folder / "config.json", error) from None
    load_weights(ours, tensors, weights)
    check_fingerprint(ours.eval(), config.get("fingerprint"), folder)
    ours.folder = folder.absolute()
    return ours


def check_is_ours(folder: Path) -> None:
    """Raise ValueError if a directory is for `from_transformers`."""
    if kind_of(folder) == "transformers":
        fix = f"from_transformers({str(folder)!r}), or convert it with latent-tokens import."
        if published_layout(folder)[1] is None:
            fix = (
                f"from_transformers({str(folder)!r}, 'new'), "
                f"or train from it: latent-tokens train text METHOD --from {folder}."
            )
        raise ValueError(f"{folder}: is a transformers model. Open it with {fix}")


def filled(net: nn.Module, config: Entries, folder: Path) -> nn.Module:
    """Return a given network in eval mode with the weights and the method of a directory.

    Raise ValueError if the directory is corrupt or of another network.
    """
    inner: Any = unwrap(net)
    if is_for_transformers(config) or "adapter" in config["model"]:
        problem = f"{folder} has a model of transformers, or a LoRA adapter of one"
        raise ValueError(f"net={type(inner).__name__}: {problem}. Leave net out, and use base=DIR.")
    try:
        numbers = {name: config["model"][name] for name in ("vocab_size", "max_length")}
        method = method_from(config["method"])
    except CORRUPT as error:
        raise corrupt_file(folder / "config.json", error) from None
    adopt(inner, numbers, str(folder))
    if is_hf_run(config) and config["model"].get("freeze_embeddings"):
        freeze_embeddings(inner)
    weights = folder / "model.safetensors"
    try:
        check_same_function(inner, config["model"], folder)
    except CORRUPT as error:
        raise corrupt_file(folder / "config.json", error) from None
    load_weights(inner, read_tensor_file(weights), weights)
    inner.method = method
    inner.folder = folder.absolute()
    return net.eval()


def check_same_function(net: nn.Module, stored: Entries, folder: Path) -> None:
    """Raise ValueError if a network computes another function of the same weights than the stored one."""
    ours = network_entry(net)
    if ours.get("network") != stored.get("network"):
        return
    sides = [
        {**entry, "heads": entry.get("size", {}).get("heads"), **of_function(entry)}
        for entry in (ours, stored)
    ]
    first, second = (json.loads(json_bytes(side)) for side in sides)
    for name in (*OF_FUNCTION, *OF_HF_FUNCTION):
        is_stored = name in second or name in OPTIONAL
        if is_stored and first.get(name) != second.get(name):
            trained = f"{name}={second.get(name)}"
            problem = f"{folder} was trained with {trained}"
            raise ValueError(f"net.{name}={first.get(name)}: {problem}. Use a net with it.")


def adopt(net: nn.Module, numbers: Mapping[str, int], holder: str) -> None:
    """Set the attributes that a network lacks. One of transformers may have larger numbers before.

    `holder` is the name of the task or directory that they belong to. Raise ValueError if the
    network has another value, or its mask_id is a token.
    """
    is_hf = isinstance(net, HuggingFaceDenoiser)
    for name, number in numbers.items():
        value = getattr(net, name, number)
        if value < number or (value > number and not is_hf):
            must = f"at least {number}" if is_hf else f"{number}"
            raise ValueError(f"net.{name}={value}: must be {must} for {holder}. Use another net.")
        setattr(net, name, number)
    vocab_size = numbers["vocab_size"]
    mask_id = getattr(net, "mask_id", None)
    if not is_hf and not is_whole(mask_id, vocab_size):
        problem = f"{holder} has the tokens 0-{vocab_size - 1}, and MASK is none of them"
        raise ValueError(f"net.mask_id={mask_id}: {problem}. Use mask_id={vocab_size}.")


def build(config: Entries) -> Transformer:
    """Return the untrained network. Raise KeyError, TypeError or ValueError for a wrong config."""
    model = config["model"]
    for name in model:
        check_choice("entry of model", name, (*TRANSFORMER_ENTRIES, *OPTIONAL))
    check_int("vocab_size", model["vocab_size"], 1)
    check_int("max_length", model["max_length"], 1, LONGEST)
    net = Transformer(**{**model, "size": Size(**model["size"])})
    net.method = method_from(config["method"])
    return net


def open_models(
    *runs: str | Path, method: str | None = None, base: str | Path | None = None
) -> list[Transformer]:
    """Return the models of run directories or names, on the CPU, as `from_pretrained`.

    Raise ValueError if none of them has the method of the typed name.
    """
    loaded = None if method is None else load_method(method)  # before a model, which may need it
    nets = [from_pretrained(run, base=base) for run in runs]
    if loaded is not None:
        check_typed_method(str(method), loaded, *(net.method for net in nets))
    return nets


def check_typed_method(name: str, typed: Method, *trained: Method) -> None:
    """Raise ValueError if a typed method, of this name, trained no model. Weight and targets may differ."""
    if not any(
        replace(typed, weight=other.weight, targets=other.targets) == other for other in trained
    ):
        problem = f"the model has another method, {name_of(trained[0])}"
        raise ValueError(f"method={name}: {problem}. Leave it out.")
