"""Model directories with model.safetensors and config.json, and the bundled models."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar, overload

import torch
from safetensors import SafetensorError
from torch import nn

from latent_tokens.checkpoints.adapted import is_adapted, is_for_transformers, open_adapted
from latent_tokens.checkpoints.description import Entries, check_model
from latent_tokens.checkpoints.finding import SHIPPED, find, shipped_names
from latent_tokens.checkpoints.fingerprint import check_fingerprint, fingerprint
from latent_tokens.checkpoints.hugging_face import is_of_transformers
from latent_tokens.checkpoints.own_network import (
    adopt,
    check_attributes,
    check_can_build,
    load_weights,
)
from latent_tokens.checkpoints.saving import describe, has_lora, save_pretrained
from latent_tokens.checkpoints.stored_methods import ORDERS, RULES, check_loaded, method_from, method_to
from latent_tokens.checkpoints.tensor_files import (
    first_difference,
    read_tensor_file,
    shapes_of,
    weights_bytes,
)
from latent_tokens.checks import first_line
from latent_tokens.core.denoiser import unwrap
from latent_tokens.network.hf import freeze_embeddings
from latent_tokens.network.transformer import Transformer, stored_name
from latent_tokens.sizes import Size
from latent_tokens.storage import read_description
from latent_tokens.tasks import Language

Net = TypeVar("Net", bound=nn.Module)

__all__ = [
    "ORDERS",
    "RULES",
    "SHIPPED",
    "build",
    "check_fingerprint",
    "check_fits",
    "describe",
    "find",
    "fingerprint",
    "from_pretrained",
    "method_from",
    "method_to",
    "save_pretrained",
    "shapes_of",
    "shipped_names",
    "weights_bytes",
]


@overload
def from_pretrained(folder_or_name: str | Path, *, base: str | Path | None = None) -> Transformer: ...


@overload
def from_pretrained(folder_or_name: str | Path, *, net: Net) -> Net: ...


def from_pretrained(
    folder_or_name: str | Path, *, net: nn.Module | None = None, base: str | Path | None = None
) -> nn.Module:
    """Return the model of a directory or of a name.

    A name is that of a bundled model or, as OWNER/NAME, of the Hugging Face Hub. A directory is a run
    directory, or one that `save_pretrained` wrote.

    The model is on the CPU, in float32 and in eval mode, with `.mask_id`, `.method` and `.folder`. It is a
    `HuggingFaceDenoiser` if that was trained, or imported.

    Args:
        folder_or_name: the directory or name.
        net: the network that receives the weights, in its precision and on its device. A run that trained a
            network of your own needs it. None builds the network.
        base: the model of transformers that a LoRA adapter belongs to, by directory or name. None is the one
            that it was trained with.

    Raises:
        ValueError: the directory is missing, incomplete, corrupt, of another version or of another network.

    Example:
        >>> from_pretrained("sudoku-6-scdm").max_length
        36
    """
    folder = find(folder_or_name)
    check_is_ours(folder)
    config = read_description(folder, "config.json", "model")
    check_loaded(config.get("method"))
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise ValueError(
            f"{folder}: incomplete, model.safetensors is missing. "
            "Resume its training (resume=auto) until it has saved weights."
        )
    if base is not None and "adapter" not in config["model"]:
        raise ValueError(f"base={base}: {folder} has no LoRA adapter. Leave base out.")
    if net is not None:
        return filled(net, config, folder)
    check_can_build(config, folder)
    if is_adapted(config):
        return open_adapted(config, folder, base)
    try:
        stored = {stored_name(name): shape for name, shape in shapes_of(weights).items()}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{weights}: corrupt ({first_line(error)}). Save the model again.") from None
    try:
        layers = config["model"]["size"]["layers"]
        if isinstance(layers, int) and layers > len(stored):
            raise ValueError(f"{layers} layers of {len(stored)} weights")
        with torch.device("meta"):  # allocate nothing before the size is checked
            ours = build(config)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"{folder / 'config.json'}: corrupt ({first_line(error)}). Save the model again."
        ) from None
    shapes = {name: tuple(tensor.shape) for name, tensor in ours.state_dict().items()}
    if has_lora(stored):
        raise ValueError(f"{weights}: has a LoRA adapter of peft. Give its network in Python: net=...")
    if (name := first_difference(stored, shapes)) is not None:
        difference = (
            f"{name[:80]} is {stored.get(name, 'missing')}, and {shapes.get(name, 'nothing')} by its config"
        )
        raise ValueError(f"{weights}: corrupt, or not of this config ({difference}). Save the model again.")
    tensors = read_tensor_file(weights)
    try:
        ours.to_empty(device="cpu").load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(
            f"{weights}: corrupt, or not of this config ({first_line(error)}). Save the model again."
        ) from None
    check_fingerprint(ours.eval(), config.get("fingerprint"), folder)
    ours.folder = folder.absolute()
    return ours


def check_is_ours(folder: Path) -> None:
    """Raise ValueError if a directory is a model of transformers, which `from_transformers` opens."""
    if is_of_transformers(folder):
        raise ValueError(
            f"{folder}: is a transformers model. Open it with from_transformers({str(folder)!r}), "
            "or convert a published masked diffusion model with latent-tokens import."
        )


def filled(net: nn.Module, config: Entries, folder: Path) -> nn.Module:
    """Return a given network in eval mode with the weights and the method of a directory.

    Raises:
        ValueError: the directory is corrupt or of another network.
    """
    inner: Any = unwrap(net)
    if is_adapted(config) and "adapter" in config["model"]:
        raise ValueError(f"net={type(inner).__name__}: {folder} has a LoRA adapter. Use base=DIR instead.")
    if is_for_transformers(config):
        raise ValueError(f"net={type(inner).__name__}: {folder} has a model of transformers. Leave net out.")
    try:
        numbers = {name: config["model"][name] for name in ("vocab_size", "max_length")}
        method = method_from(config["method"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"corrupt ({first_line(error)})"
        raise ValueError(f"{folder / 'config.json'}: {problem}. Save the model again.") from None
    adopt(inner, numbers, str(folder))
    if is_adapted(config) and config["model"].get("freeze_embeddings"):
        freeze_embeddings(inner)
    load_weights(inner, folder / "model.safetensors")
    inner.method = method
    inner.folder = folder.absolute()
    return net.eval()


def build(config: Entries) -> Transformer:
    """Return the untrained network of a config. Raise KeyError, TypeError or ValueError if it is wrong."""
    model = config["model"]
    method = method_from(config["method"])
    check_model(model)
    net = Transformer(
        Size(**model["size"]),
        model["vocab_size"],
        model["max_length"],
        model["positions"],
        model["dropout"],
        model.get("gelu", "tanh"),
        model.get("parts"),
        model.get("answer_tokens"),
    )
    net.method = method
    return net


def check_fits(net: Transformer, task: Language) -> None:
    """Raise ValueError if the net has no method, or another length or vocabulary than the task."""
    check_attributes(net)
    if (net.max_length, net.vocab_size) != (task.length, task.vocab_size):
        learned = f"this model learned sequences of {net.max_length} over {net.vocab_size} tokens"
        raise ValueError(
            f"{task.name} has {task.length} positions over {task.vocab_size} tokens, {learned}. "
            f"Use a run of {task.name}."
        )
