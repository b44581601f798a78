"""The trained part of a network of `transformers` whose other weights stay as they are: LoRA and MASK."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from latent_tokens.configs import LoraTargets
from latent_tokens.network.hf import HuggingFaceDenoiser

if TYPE_CHECKING:
    from torch.nn.modules.module import _IncompatibleKeys
    from transformers import PreTrainedModel

OF_ATTENTION = {"attn", "self_attn", "attention"}
"""Names of modules whose linear layers are the projections of attention, in every tested family."""


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter, and the model that it belongs to."""

    rank: int
    targets: LoraTargets
    base: str  # the directory or the name of the model
    base_sha256: str  # of its weights


def freeze_embeddings(net: HuggingFaceDenoiser) -> None:
    """Freeze the embeddings and the head of a network, except for the embedding of MASK.

    Its gradient alone is computed, not that of the other rows. If they are frozen, nothing changes.
    """
    if net.has_frozen_embeddings:
        return
    net.has_frozen_embeddings = True
    embeddings = net.model.get_input_embeddings()
    for layer in (embeddings, net.model.get_output_embeddings()):  # type: ignore[no-untyped-call]
        layer.requires_grad_(False)
    if net.readout != "shifted":
        weight = cast(Tensor, embeddings.weight)
        net.mask_row = nn.Parameter(weight[net.mask_id].detach().clone())


def add_lora(net: HuggingFaceDenoiser, adapter: Adapter) -> None:
    """Freeze a network, and add a LoRA adapter (arXiv 2106.09685) to its linear layers.

    The adapter changes nothing before it is trained. Its scale is 1. `state_dict` then has the adapter and
    the row of MASK alone, and `load_state_dict` leaves out the rest.

    Raises:
        ValueError: peft is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise ValueError(
            f"lora={adapter.rank}: peft is not installed. Install it from a clone (pip install -e '.[lora]')."
        ) from None
    layers = linear_layers(net.model, adapter.targets)
    is_transposed = not isinstance(next(iter(layers.values())), nn.Linear)
    config = LoraConfig(
        r=adapter.rank, lora_alpha=adapter.rank, target_modules=list(layers), fan_in_fan_out=is_transposed
    )
    inject_adapter_in_model(config, net.model)
    freeze_embeddings(net)
    net.adapter = adapter
    net.register_state_dict_post_hook(keep_adapter)  # type: ignore[no-untyped-call]
    net.register_load_state_dict_post_hook(expect_adapter)  # type: ignore[no-untyped-call]


def linear_layers(model: PreTrainedModel, targets: LoraTargets) -> dict[str, nn.Module]:
    """Return the linear layers of a model by name, without its head: those of attention, or all."""
    from transformers.pytorch_utils import Conv1D

    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    layers: dict[str, nn.Module] = {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear | Conv1D) and layer is not head
    }
    if targets == "all":
        return layers
    return {name: layer for name, layer in layers.items() if OF_ATTENTION & set(name.split("."))}


def is_of_adapter(name: str) -> bool:
    """Return whether a weight is one of an adapter, or the row of MASK."""
    return ".lora_" in name or name.endswith("mask_row")


def keep_adapter(net: nn.Module, tensors: dict[str, Tensor], prefix: str, metadata: dict[str, int]) -> None:
    """Remove the weights of the base from a state_dict."""
    for name in [name for name in tensors if name.startswith(prefix) and not is_of_adapter(name)]:
        del tensors[name]


def expect_adapter(net: nn.Module, keys: _IncompatibleKeys) -> None:
    """Remove the weights of the base from those that load_state_dict misses."""
    keys.missing_keys[:] = [name for name in keys.missing_keys if is_of_adapter(name)]


@torch.no_grad()
def merged(net: HuggingFaceDenoiser) -> PreTrainedModel:
    """Return a copy of a network's model, with an adapter and the row of MASK merged into its weights."""
    model = deepcopy(net.model)
    if net.adapter is not None:
        from peft.tuners.tuners_utils import BaseTunerLayer

        layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, BaseTunerLayer)]
        for name, layer in layers:
            layer.merge()
            model.set_submodule(name, layer.get_base_layer())
    if net.mask_row is not None:
        weight = cast(Tensor, model.get_input_embeddings().weight)
        weight[net.mask_id] = net.mask_row
    return model
