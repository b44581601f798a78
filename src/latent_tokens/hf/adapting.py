"""How a language model of transformers is adapted: LoRA, frozen embeddings, gradient checkpointing."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from latent_tokens.checks import check_choice, check_package
from latent_tokens.hf.language_models import Adapter, HuggingFaceDenoiser

if TYPE_CHECKING:
    from torch.nn.modules.module import _IncompatibleKeys
    from transformers import PreTrainedModel

OF_ATTENTION = {"attn", "self_attn", "attention"}
"""Names of modules whose linear layers are the projections of attention, in every tested family."""


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


def checkpoint_activations(net: HuggingFaceDenoiser) -> None:
    """Compute the activations of a network again for the gradient, instead of storing them."""
    # Its name in transformers 5
    newer = getattr(net.model, "activation_checkpointing_enable", None)
    (newer or net.model.gradient_checkpointing_enable)({"use_reentrant": False})


def add_lora(net: HuggingFaceDenoiser, adapter: Adapter) -> None:
    """Freeze a network, and add a LoRA adapter (arXiv 2106.09685) to its linear layers.

    The adapter changes nothing before it is trained. `state_dict` then has the
    adapter and the row of MASK alone, and `load_state_dict` leaves out the rest.

    Raises:
        ValueError: peft is not installed, or no layer has the name of a target.
    """
    check_package("peft", "lora", f"lora={adapter.rank}")
    from peft import LoraConfig, inject_adapter_in_model

    layers = linear_layers(net.model, adapter.targets)
    is_transposed = not isinstance(next(iter(layers.values())), nn.Linear)
    rank, names = adapter.rank, list(layers)
    alpha = cast(int, adapter.alpha or rank)  # peft divides it by the rank
    config = LoraConfig(
        r=rank, lora_alpha=alpha, target_modules=names, fan_in_fan_out=is_transposed
    )
    inject_adapter_in_model(config, net.model)
    freeze_embeddings(net)
    net.adapter = adapter
    net.register_state_dict_post_hook(keep_adapter)  # type: ignore[no-untyped-call]
    net.register_load_state_dict_post_hook(expect_adapter)  # type: ignore[no-untyped-call]


def linear_layers(model: PreTrainedModel, targets: str) -> dict[str, nn.Module]:
    """Return the linear layers of a model by name, without its head: of attention, all, or of some names.

    A name is that of a module, as in peft: `q_proj`, or `mlp.up_proj`. Raise ValueError if it is none.
    """
    from transformers.pytorch_utils import Conv1D

    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    layers: dict[str, nn.Module] = {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear | Conv1D) and layer is not head
    }
    if targets == "all":
        return layers
    if targets == "attention":
        return {name: layers[name] for name in layers if OF_ATTENTION & set(name.split("."))}
    chosen: dict[str, nn.Module] = {}
    for target in targets.split(","):
        of_target = {name: layers[name] for name in layers if f".{name}".endswith(f".{target}")}
        if not of_target:
            groups = ("attention", "all") if target == targets else ()
            names = dict.fromkeys(name.rpartition(".")[2] for name in layers)
            check_choice("lora_targets", target, (*groups, *names))
        chosen |= of_target
    return chosen


def is_of_adapter(name: str) -> bool:
    """Return whether a weight is one of an adapter, or the row of MASK."""
    return ".lora_" in name or name.endswith("mask_row")


def keep_adapter(
    net: nn.Module, tensors: dict[str, Tensor], prefix: str, metadata: dict[str, int]
) -> None:
    """Remove the weights of the base from a state_dict."""
    for name in [name for name in tensors if name.startswith(prefix) and not is_of_adapter(name)]:
        del tensors[name]


def expect_adapter(net: nn.Module, keys: _IncompatibleKeys) -> None:
    """Remove the weights of the base from those that load_state_dict misses."""
    keys.missing_keys[:] = [name for name in keys.missing_keys if is_of_adapter(name)]


@torch.no_grad()
def merged(net: HuggingFaceDenoiser) -> PreTrainedModel:
    """Return a copy of the model, with an adapter and the row of MASK merged into it."""
    model = deepcopy(net.model)
    if net.adapter is not None:
        from peft.tuners.tuners_utils import BaseTunerLayer

        for name, layer in [*model.named_modules()]:
            if isinstance(layer, BaseTunerLayer):
                layer.merge()
                model.set_submodule(name, layer.get_base_layer())
    if net.mask_row is not None:
        weight = cast(Tensor, model.get_input_embeddings().weight)
        weight[net.mask_id] = net.mask_row
    return model
