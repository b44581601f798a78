"""A model of `transformers` as the network that a run trains."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from latent_tokens.checkpoints.adapted import build_adapted, is_adapted
from latent_tokens.checkpoints.description import Entries
from latent_tokens.checkpoints.finding import find
from latent_tokens.checkpoints.hub import fetch
from latent_tokens.checkpoints.hugging_face import (
    FILES,
    check_installed,
    is_of_transformers,
    mask_id_of,
    read_model,
)
from latent_tokens.checkpoints.own_network import adopt
from latent_tokens.checkpoints.pretrained import from_pretrained
from latent_tokens.checkpoints.tensor_files import tensors_sha256
from latent_tokens.checks import first_line
from latent_tokens.configs import TrainConfig
from latent_tokens.core.method import Method, name_of
from latent_tokens.data.splits import chunks_of
from latent_tokens.network.hf import Adapter, HuggingFaceDenoiser, add_lora, check_mask_id, freeze_embeddings
from latent_tokens.storage import read_description
from latent_tokens.tasks import Examples, Language
from latent_tokens.training.data import check_tokenizer
from latent_tokens.training.resume import RESTORE_HINT

if TYPE_CHECKING:
    from transformers import PreTrainedModel

OF_ADAPTATION = ("mask", "lora", "freeze_embeddings", "gradient_checkpointing")
"""Settings that only a model of transformers has."""
CHECKED_AT_ONCE = 10_000  # examples


def starts_from_transformers(config: TrainConfig, resumed: Entries | None) -> bool:
    """Return whether a run that starts from a model starts from one of transformers."""
    if resumed is not None:
        return is_adapted(resumed)
    folder = start_folder(config)
    if is_of_transformers(folder):
        return True
    return is_adapted(read_description(folder, "config.json", "model"))


def start_folder(config: TrainConfig) -> Path:
    """Return the directory of the model that a run starts from."""
    assert config.start is not None
    return find(config.start, partial(fetch, files=FILES))


def adapted_network(
    config: TrainConfig, task: Language, method: Method, resumed: Entries | None
) -> HuggingFaceDenoiser:
    """Return the network of a run that starts from a model of transformers.

    Args:
        config: the settings.
        task: the task, whose length and vocabulary it gets.
        method: how to train.
        resumed: the config.json of a run whose checkpoint has the weights, or None.

    Raises:
        ValueError: the model is not supported, is too small for the task, or a setting is not for it.
    """
    check_settings(config)
    if resumed is None:
        check_tokenizer(str(config.start), start_folder(config), task)
        net = opened(config, method)
        adopt(net, {"vocab_size": task.vocab_size, "max_length": task.length}, task.name)
    else:
        net = rebuilt(resumed, config)
    prepare(net, config)
    net.method = method
    return net


def prepare(net: HuggingFaceDenoiser, config: TrainConfig) -> None:
    """Freeze the embeddings, and compute activations again, if the config says so."""
    if config.freeze_embeddings:
        freeze_embeddings(net)
    if config.gradient_checkpointing:
        enable_checkpointing(net)


def opened(config: TrainConfig, method: Method) -> HuggingFaceDenoiser:
    """Return the model that a run starts from, with an untrained adapter if the config has one."""
    folder = start_folder(config)
    if is_of_transformers(folder):
        check_installed(str(config.start))
        model = read_model(folder)
        base_sha256 = tensors_sha256(model.state_dict()) if config.lora else ""  # before a row is added
        net = HuggingFaceDenoiser(model, typed_mask(config, folder, model, method), method.readout)
    else:
        check_start(config, folder)
        net = cast(HuggingFaceDenoiser, from_pretrained(folder))
        base_sha256 = tensors_sha256(net.model.state_dict()) if config.lora else ""
        if net.readout == "shifted" and method.readout != "shifted":  # an autoregressive model has no MASK
            net = HuggingFaceDenoiser(net.model, None, method.readout)
    if config.lora is not None:
        targets = config.lora_targets or "attention"
        with torch.random.fork_rng():
            torch.manual_seed(config.seed)
            add_lora(net, Adapter(config.lora, targets, str(config.start), base_sha256))
    return net


def typed_mask(config: TrainConfig, folder: Path, model: PreTrainedModel, method: Method) -> int | None:
    """Return the id of MASK that the config names, or None for a new row. Raise ValueError if it is used."""
    if config.mask in (None, "new"):
        return None
    if method.readout == "shifted":
        raise ValueError(f"mask={config.mask}: {config.method} has the BOS token for MASK. Leave mask out.")
    mask_id = mask_id_of(folder, config.mask, "mask")
    check_mask_id(model, mask_id, "mask", "Use the id of a reserved one, or mask=new.")
    return mask_id


def check_start(config: TrainConfig, folder: Path) -> None:
    """Raise ValueError if a run cannot start from a directory of this package with its settings."""
    if config.mask is not None:
        raise ValueError(f"mask={config.mask}: {config.start} has its own MASK. Leave mask out.")
    entry = read_description(folder, "config.json", "model")["model"]
    is_in_parts = "adapter" in entry or "freeze_embeddings" in entry
    if is_in_parts or (config.lora is not None and "config" in entry):
        fix = f"Export it (latent-tokens export {config.start} DIR), and use start=DIR"
        raise ValueError(f"start={config.start}: is a run whose weights are not merged. {fix}.")


def rebuilt(resumed: Entries, config: TrainConfig) -> HuggingFaceDenoiser:
    """Return the network of a run to resume, without its trained weights. Its base may have moved."""
    try:
        return build_adapted(resumed["model"], config.folder, config.start)
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"{config.folder / 'config.json'}: corrupt ({first_line(error)}). {RESTORE_HINT}"
        ) from None


def enable_checkpointing(net: HuggingFaceDenoiser) -> None:
    """Compute activations again for the gradient. transformers 5 has another name for it."""
    model = net.model
    newer = getattr(model, "activation_checkpointing_enable", None)
    (newer or model.gradient_checkpointing_enable)({"use_reentrant": False})


def check_settings(config: TrainConfig) -> None:
    """Raise ValueError for a setting of a network that is not of transformers."""
    for name in ("size", "positions", "gelu", "dropout", "compile"):
        value = getattr(config, name)
        if value not in (None, 0):
            raise ValueError(f"{name}={value}: {config.start} has its own network. Leave {name} out.")


def check_only_for_transformers(config: TrainConfig) -> None:
    """Raise ValueError for a setting of adaptation, which another network does not have."""
    for name in OF_ADAPTATION:
        value = getattr(config, name)
        if value not in (None, False):
            raise ValueError(f"{name}={value}: is for a model of transformers. Name one with start=FOLDER.")


def check_has_mask(net: HuggingFaceDenoiser, method: Method) -> None:
    """Raise ValueError if a method has masked tokens, and a network receives its BOS token for MASK."""
    if net.readout == "shifted" and method.readout != "shifted":
        problem = f"with readout=shifted it has no MASK, and {name_of(method)} needs one"
        raise ValueError(f"net={type(net).__name__}: {problem}. Use readout={method.readout}.")


def check_mask_unused(net: nn.Module, examples: Examples) -> None:
    """Raise ValueError if MASK of a model of transformers is a token of the examples."""
    if not isinstance(net, HuggingFaceDenoiser):
        return
    for part in chunks_of(examples, CHECKED_AT_ONCE):
        if (part.tokens == net.mask_id).any():
            raise ValueError(
                f"mask={net.mask_id}: is a token of the data set. Use a reserved one, or mask=new."
            )
