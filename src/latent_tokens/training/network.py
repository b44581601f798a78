"""The network that a run trains: with the weights of a seed or a model, or one that the user gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from latent_tokens import processes
from latent_tokens.checkpoints.description import Entries
from latent_tokens.checkpoints.own_network import adopt
from latent_tokens.checkpoints.pretrained import build, check_fits, find, from_pretrained
from latent_tokens.checkpoints.tensor_files import tensors_sha256
from latent_tokens.checks import first_line
from latent_tokens.configs import DEFAULT_SHAPE, TrainConfig
from latent_tokens.core.denoiser import HOLD_MODULE, Denoiser, as_denoiser, unwrap
from latent_tokens.core.method import Method
from latent_tokens.network.check import check_network
from latent_tokens.network.hf import HuggingFaceDenoiser
from latent_tokens.network.transformer import Transformer
from latent_tokens.sizes import SIZES
from latent_tokens.storage import read_description
from latent_tokens.tasks import TASKS, Language, Text, described, form
from latent_tokens.training.adaptation import (
    adapted_network,
    check_has_mask,
    check_only_for_transformers,
    prepare,
    starts_from_transformers,
)
from latent_tokens.training.data import check_tokenizer
from latent_tokens.training.resume import RESTORE_HINT

OF_TRANSFORMER = ("size", "positions", "dropout", "gelu")
"""Settings of the network that a run builds. A given network has its own."""


def build_network(
    config: TrainConfig,
    given: Denoiser | nn.Module | None,
    task: Language,
    method: Method,
    resumed: Entries | None,
) -> tuple[TrainConfig, nn.Module]:
    """Return (the config with the shape of the network that it starts from, the network of a run).

    Args:
        config: the settings.
        given: the user's network, or None.
        task: the task.
        method: how to train.
        resumed: the config.json of a run whose checkpoint has the weights, or None.

    Raises:
        ValueError: the network cannot be trained, is not of the task, or differs from the config.
    """
    if given is not None:
        start = None if resumed is not None else config.start
        return config, given_network(given, config, task, method, start)
    if config.start is not None and starts_from_transformers(config, resumed):
        return config, adapted_network(config, task, method, resumed)
    check_only_for_transformers(config)
    if config.start is None:
        return config, untrained(config, task, method)
    origin = started_from(config.start, task) if resumed is None else rebuilt(resumed, config.folder)
    net = Transformer(
        origin.size, origin.vocab_size, origin.max_length, origin.positions, config.dropout, origin.gelu,
        origin.parts, origin.answer_tokens,
    )  # fmt: skip
    net.load_state_dict(origin.state_dict())
    net.method = method
    return with_shape(config, net), net


def untrained(config: TrainConfig, task: Language, method: Method) -> Transformer:
    """Return the network with the initial weights of the config's seed."""
    assert config.size is not None  # as a run has it that starts from no model
    assert config.positions is not None
    assert config.gelu is not None
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        net = Transformer(
            SIZES[config.size], task.vocab_size, task.length, config.positions, config.dropout, config.gelu,
            getattr(task, "parts", None), getattr(task, "answer_tokens", None),
        )  # fmt: skip
    net.method = method
    return net


def started_from(start: str | Path, task: Language) -> Transformer:
    """Return the model that a run starts from. Raise ValueError if it is not of the task."""
    folder = find(start)
    check_tokenizer(start, folder, task)
    net = from_pretrained(folder)
    check_fits(net, task)
    check_form(start, folder, task)
    return net


def check_form(start: str | Path, folder: Path, task: Language) -> None:
    """Raise ValueError if a model learned another vocabulary. That of a user's own task is not known."""
    entries = read_description(folder, "config.json", "model").get("task")
    name = entries.get("name") if isinstance(entries, dict) else None
    if name not in (*TASKS, Text.name) or task.name not in (*TASKS, Text.name):
        return
    learned = form(described(entries, folder))
    if learned != form(task):
        raise ValueError(f"start={start}: learned {learned}, not {form(task)}. Use a model of {task.name}.")


def rebuilt(resumed: Entries, folder: Path) -> Transformer:
    """Return the network of a run to resume, without its weights. Raise ValueError if it is corrupt."""
    try:
        return build(resumed)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"corrupt ({first_line(error)})"
        raise ValueError(f"{folder / 'config.json'}: {problem}. {RESTORE_HINT}") from None


def with_shape(config: TrainConfig, net: Transformer) -> TrainConfig:
    """Return the config with the shape of the network. Raise ValueError if the config has another one."""
    size = next((name for name, size in SIZES.items() if size == net.size), None)
    shape: dict[str, Any] = {"size": size, "positions": net.positions, "gelu": net.gelu}
    for name, value in shape.items():
        requested = getattr(config, name)
        if requested not in (None, value):
            other = value or f"{net.size.layers} layers of width {net.size.width}"
            raise ValueError(f"{name}={requested}: {config.start} has {other}. Leave {name} out.")
    return replace(config, **shape)


def given_network(
    net: Denoiser | nn.Module, config: TrainConfig, task: Language, method: Method, start: str | Path | None
) -> nn.Module:
    """Return the network inside its wrappers, with the method, vocabulary size and length of the run.

    It gets the weights of `start`, or keeps its own if that is None.

    Raises:
        ValueError: it cannot be trained, or is not of the task.
    """
    inner = unwrap(net)
    check_trainable(net, inner, config)
    assert isinstance(inner, nn.Module)
    check_parameters(inner)
    adopt(inner, {"vocab_size": task.vocab_size, "max_length": task.length}, task.name)
    if isinstance(inner, HuggingFaceDenoiser):
        check_has_mask(inner, method)
        prepare(inner, config)
    else:
        check_only_for_transformers(config)
    if start is not None:
        folder = find(start)
        check_form(start, folder, task)
        from_pretrained(folder, net=inner)
    if not isinstance(inner, Transformer):
        check_network(as_denoiser(inner), method, task.length, task.vocab_size)
    inner.method = method  # type: ignore[assignment]  # torch allows any attribute
    return inner


def check_trainable(net: Denoiser | nn.Module, inner: Denoiser | nn.Module, config: TrainConfig) -> None:
    """Raise ValueError if `fit` cannot train a network with these settings."""
    name = type(inner).__name__
    if not isinstance(inner, nn.Module):
        raise ValueError(f"net={name}: has no weights to train. Make it a torch.nn.Module.")
    if isinstance(net, HOLD_MODULE):
        raise ValueError(f"net={type(net).__name__}: training adds DDP and EMA weights. Use net.module.")
    if config.out is None:
        raise ValueError("out=None with net: the run directory has no default name. Use out=DIR.")
    if config.compile and not isinstance(inner, Transformer):
        raise ValueError(f"compile=True with net={name}: has no blocks of ours. Use net=torch.compile(net).")
    if config.parallel == "fsdp" and inner is not net:
        raise ValueError(f"parallel=fsdp with net={type(net).__name__}: shards no wrapper. Use parallel=ddp.")
    if config.lora is not None:
        problem = "an adapter is stored with the directory of its base"
        raise ValueError(f"lora={config.lora} with net: {problem}. Use start=FOLDER.")
    for setting in (*OF_TRANSFORMER, "mask"):
        value = getattr(config, setting)
        if value not in (None, 0, DEFAULT_SHAPE.get(setting)):
            raise ValueError(f"{setting}={value} with net: the net has its own. Leave {setting} out.")


def check_parameters(net: nn.Module) -> None:
    """Raise ValueError if the weights of a network cannot be trained, averaged and stored."""
    trainable = {name: weight for name, weight in net.named_parameters() if weight.requires_grad}
    if not trainable:
        raise ValueError(f"net={type(net).__name__}: no parameter requires a gradient")
    first = dict[int, str]()
    for name, weight in trainable.items():
        if weight.dtype != torch.float32:
            problem = f"{name} is {weight.dtype}, in which small updates are lost"
            raise ValueError(f"net={type(net).__name__}: {problem}. Use net.float() and precision=bf16.")
        other = first.setdefault(weight.data_ptr(), name)
        if other != name and weight.numel():
            problem = f"{other} and {name} are two parameters with the same storage"
            raise ValueError(f"net={type(net).__name__}: {problem}. Use one nn.Parameter for both.")


def initial_sha256(net: nn.Module) -> str:
    """Return the SHA-256 of the initial weights. Raise ValueError if it differs between ranks."""
    digest = tensors_sha256(net.state_dict())
    if len(set(processes.all_gather_object(digest))) > 1:
        fix = "Call torch.manual_seed before you build it"
        raise ValueError(f"net={type(net).__name__}: its weights differ between ranks. {fix}.")
    return digest


def trainable_parameters(net: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that require a gradient, which the optimizer has."""
    return [weight for weight in net.parameters() if weight.requires_grad]
