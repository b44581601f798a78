"""A network of the user's own in a model directory: its entry in config.json, and its weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from latent_tokens.checkpoints.description import Entries
from latent_tokens.checkpoints.tensor_files import first_difference, read_tensor_file
from latent_tokens.checks import is_whole
from latent_tokens.network.hf import HuggingFaceDenoiser
from latent_tokens.network.transformer import Transformer, stored_name
from latent_tokens.storage import Json

OWN = "own"  # the network of config.json that only its user can build
OF_EVALUATION = ("method", "vocab_size", "max_length")


def check_attributes(net: nn.Module) -> None:
    """Raise ValueError if a network lacks an attribute that evaluation and config.json need."""
    for name in OF_EVALUATION:
        if getattr(net, name, None) is None:
            raise ValueError(f"net.{name} is None: set it to the {name} that the net was trained with")


def describe_own(net: nn.Module) -> dict[str, Json]:
    """Return the entry of config.json for a network that is not our Transformer."""
    numbers = {name: getattr(net, name) for name in ("vocab_size", "max_length", "mask_id")}
    return {"network": OWN, "class": type(net).__name__, **numbers}


def check_can_build(config: Entries, folder: Path) -> None:
    """Raise ValueError if config.json is that of a user's own network, which must be given."""
    model = config.get("model")
    if isinstance(model, dict) and model.get("network") == OWN:
        problem = f"holds weights of your own network {str(model.get('class'))[:80]}"
        raise ValueError(f"{folder}: {problem}. Give it in Python: from_pretrained({str(folder)!r}, net=...)")


def adopt(net: nn.Module, numbers: Mapping[str, int], origin: str) -> None:
    """Set the attributes that a network lacks. One of transformers may have larger numbers before.

    Args:
        net: the network, which is changed.
        numbers: the attributes, such as vocab_size.
        origin: the name of the task or directory that they belong to.

    Raises:
        ValueError: the network has another value, or its mask_id is a token.
    """
    is_of_transformers = isinstance(net, HuggingFaceDenoiser)
    for name, number in numbers.items():
        value = getattr(net, name, number)
        if value < number and is_of_transformers:
            raise ValueError(
                f"net.{name}={value}: must be at least {number} for {origin}. Use a larger model."
            )
        if value != number and not is_of_transformers:
            raise ValueError(f"net.{name}={value}: must be {number} for {origin}. Build the net for it.")
        setattr(net, name, number)
    if is_of_transformers:
        return
    vocab_size = numbers["vocab_size"]
    mask_id = getattr(net, "mask_id", None)
    if not is_whole(mask_id, vocab_size):
        problem = f"{origin} has the tokens 0-{vocab_size - 1}, and MASK is none of them"
        raise ValueError(f"net.mask_id={mask_id}: {problem}. Use mask_id={vocab_size}.")


def load_weights(net: nn.Module, weights: Path) -> None:
    """Load the weights of a .safetensors file into a network.

    Raises:
        ValueError: the file is corrupt or of another network, or two weights of the network are one tensor
            with different values in the file.
    """
    spelling = stored_name if isinstance(net, Transformer) else str
    tensors = {spelling(name): tensor for name, tensor in read_tensor_file(weights).items()}
    stored = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    if (name := first_difference(stored, shapes)) is not None:
        difference = (
            f"{name[:80]} is {shapes.get(name, 'missing')}, in the file {stored.get(name, 'missing')}"
        )
        raise ValueError(f"net={type(net).__name__}: does not fit {weights} ({difference}). Use its network.")
    net.load_state_dict(tensors)
    for name, tensor in net.state_dict().items():
        if not torch.equal(tensor.cpu(), tensors[name].to(tensor.dtype)):
            problem = f"{name} is one tensor with another weight, in {weights} they differ"
            raise ValueError(f"net={type(net).__name__}: {problem}. Use its network.")
