"""The network that a run trains: ours with the weights of a seed, or one that the user gives."""

from __future__ import annotations

import torch
from torch import nn

from latent_tokens import processes
from latent_tokens.checkpoints.own_network import adopt
from latent_tokens.checkpoints.tensor_files import tensors_sha256
from latent_tokens.configs import TrainConfig
from latent_tokens.core.methods import Denoiser, Method
from latent_tokens.core.wrappers import HOLD_MODULE, unwrap
from latent_tokens.network.transformer import Transformer
from latent_tokens.sizes import SIZES
from latent_tokens.tasks import Language

OF_TRANSFORMER = ("size", "positions", "dropout", "gelu")
"""Settings of the network that a run builds. A given network has its own."""


def untrained(config: TrainConfig, task: Language, method: Method) -> Transformer:
    """Return the network with the initial weights of the config's seed."""
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        net = Transformer(
            SIZES[config.size], task.vocab_size, task.length, config.positions, config.dropout, config.gelu
        )
    net.method = method
    return net


def given_network(
    net: Denoiser | nn.Module, config: TrainConfig, task: Language, method: Method
) -> nn.Module:
    """Return the network inside its wrappers, with the method, vocabulary size and length of the run.

    Raises:
        ValueError: it cannot be trained, or is not of the task.
    """
    inner = unwrap(net)
    check_trainable(net, inner, config)
    assert isinstance(inner, nn.Module)
    check_parameters(inner)
    adopt(inner, {"vocab_size": task.vocab_size, "max_length": task.length}, task.name)
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
    for setting in OF_TRANSFORMER:
        value = getattr(config, setting)
        if value != getattr(TrainConfig, setting):
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
