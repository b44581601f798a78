"""The network that a run trains: of a seed, of a model, or one that the user gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import torch
from torch import nn

from latent_tokens.checkpoints.files import Entries, find, tensors_sha256
from latent_tokens.checkpoints.learned import check_fits
from latent_tokens.checks import check_package, first_line
from latent_tokens.core.denoiser import HOLD_MODULE, Denoiser, as_denoiser, unwrap
from latent_tokens.core.method import Method, name_of
from latent_tokens.data.splits import chunks_of
from latent_tokens.hf.adapting import add_lora, checkpoint_activations, freeze_embeddings
from latent_tokens.hf.directory import adopt, build, from_pretrained
from latent_tokens.hf.language_models import Adapter, HuggingFaceDenoiser, check_mask_id
from latent_tokens.hf.reading import BASE_FILES, build_hf_run, is_hf_run, mask_id_of, read_model
from latent_tokens.hub import fetch
from latent_tokens.network.check import check_network
from latent_tokens.network.transformer import Transformer, is_transformer
from latent_tokens.sizes import SIZES
from latent_tokens.storage import kind_of, read_description
from latent_tokens.tasks import Examples, Language
from latent_tokens.training.config import DEFAULT_SHAPE, TrainConfig
from latent_tokens.training.data import CHECKED_AT_ONCE, check_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RESTORE_HINT = "Start the same run in another directory, and copy its config.json here."
OF_ADAPTATION = ("mask", "lora", "freeze_embeddings", "gradient_checkpointing")
"""Settings that only a model of transformers has."""
FOR_TRANSFORMERS = "is for a model of transformers. Name one with start=FOLDER."
OF_TRANSFORMER = ("size", "positions", "dropout", "gelu")
"""Settings of the network that a run builds. A given network has its own."""
Origin = Path | Entries | None
"""A model whose weights a network has: its directory, or, if the checkpoint of the run has them, the
config.json of the run. None: those of the seed."""


def build_network(
    config: TrainConfig,
    given: Denoiser | nn.Module | None,
    task: Language,
    method: Method,
    origin: Origin,
) -> tuple[TrainConfig, nn.Module]:
    """Return (the config with the shape of the network that it starts from, the network of a run).

    `given` is the user's network. Raise ValueError if it cannot be trained, is not of the task, or
    differs from the config.
    """
    if given is not None:
        return config, given_network(given, config, task, method, origin)
    try:
        if is_of_transformers(origin):
            return config, hf_network(config, task, method, origin)
        check_unset(config, OF_ADAPTATION, FOR_TRANSFORMERS)
        if origin is None:
            return config, untrained(config, task, method)
        source = started_from(config, origin, task) if isinstance(origin, Path) else build(origin)
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        if not isinstance(origin, Mapping) or isinstance(error, torch.OutOfMemoryError):
            raise
        file = config.folder / "config.json"
        raise ValueError(f"{file}: corrupt ({first_line(error)}). {RESTORE_HINT}") from None
    net = Transformer(
        source.size, source.vocab_size, source.max_length, source.positions, config.dropout, source.gelu,
        source.parts, source.answer_tokens,
    )  # fmt: skip
    net.load_state_dict(source.state_dict())
    net.method = method
    return with_shape(config, net), net


def check_unset(config: TrainConfig, names: tuple[str, ...], problem: str) -> None:
    """Raise ValueError with the first setting that is set, and the problem that it is."""
    for name in names:
        value = getattr(config, name)
        if value or (name == "mask" and value is not None):  # 0 is an id
            raise ValueError(f"{name}={value}: {problem}")


def untrained(config: TrainConfig, task: Language, method: Method) -> Transformer:
    """Return the network with the initial weights of the config's seed."""
    shape: Any = {"positions": config.positions, "dropout": config.dropout, "gelu": config.gelu}
    of_task: Any = {name: getattr(task, name, None) for name in ("parts", "answer_tokens")}
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        net = Transformer(SIZES[str(config.size)], task.vocab_size, task.length, **shape, **of_task)
    net.method = method
    return net


def started_from(config: TrainConfig, folder: Path, task: Language) -> Transformer:
    """Return the model that a run starts from. Raise ValueError if it is not of the task."""
    check_tokenizer(str(config.start), folder, task)
    net = from_pretrained(folder)
    check_fits(net, task)
    return net


def with_shape(config: TrainConfig, net: Transformer) -> TrainConfig:
    """Return the config with the shape of the network. Raise ValueError if it has another one."""
    size = next((name for name, size in SIZES.items() if size == net.size), None)
    shape: dict[str, Any] = {"size": size, "positions": net.positions, "gelu": net.gelu}
    for name, value in shape.items():
        requested = getattr(config, name)
        if requested not in (None, value):
            other = value or f"{net.size.layers} layers of width {net.size.width}"
            raise ValueError(f"{name}={requested}: {config.start} has {other}. Leave {name} out.")
    return replace(config, **shape)


def start_folder(config: TrainConfig) -> Path:
    """Return the directory of the model that a run starts from."""
    return find(str(config.start), partial(fetch, files=BASE_FILES))


def is_of_transformers(origin: Origin) -> TypeGuard[Path | Entries]:
    """Return whether the weights are of a model of transformers, or of one adapted from it."""
    if origin is None:
        return False
    if isinstance(origin, Path):
        if kind_of(origin) == "transformers":
            return True
        origin = read_description(origin, "config.json", "model")
    return is_hf_run(origin)


def hf_network(
    config: TrainConfig, task: Language, method: Method, origin: Path | Entries
) -> HuggingFaceDenoiser:
    """Return the network of a run that starts from a model of transformers, as `build_network`."""
    problem = f"is not for {config.start}, which has its own network. Leave it out."
    check_unset(config, (*OF_TRANSFORMER, "compile"), problem)
    if isinstance(origin, Path):
        check_tokenizer(str(config.start), origin, task)
        net = opened(config, origin, method)
        adopt(net, {"vocab_size": task.vocab_size, "max_length": task.length}, task.name)
    else:
        net = build_hf_run(origin["model"], config.folder, config.start)
    prepare(net, config)
    net.method = method
    return net


def prepare(net: HuggingFaceDenoiser, config: TrainConfig) -> None:
    """Freeze the embeddings, and compute activations again, if the config says so."""
    if config.freeze_embeddings:
        freeze_embeddings(net)
    if config.gradient_checkpointing:
        checkpoint_activations(net)


def opened(config: TrainConfig, folder: Path, method: Method) -> HuggingFaceDenoiser:
    """Return the model that a run starts from, with an untrained adapter if the config has one."""
    if kind_of(folder) == "transformers":
        check_package("transformers", "text", config.start)
        model = read_model(folder)
        # Before a row is added
        base_sha256 = tensors_sha256(model.state_dict()) if config.lora else ""
        net = HuggingFaceDenoiser(model, typed_mask(config, folder, model, method), method.readout)
    else:
        check_unset(config, ("mask",), f"{config.start} has its own MASK. Leave mask out.")
        net = cast(HuggingFaceDenoiser, from_pretrained(folder))
        entry = read_description(folder, "config.json", "model")["model"]
        problem = ""
        if net.adapter is not None or net.has_frozen_embeddings:
            problem = "is a run whose weights are not merged"
        elif config.lora is not None and "config" in entry:
            problem = "is a run, and an adapter needs a model directory"
        if problem:
            fix = f"Export it (latent-tokens export {config.start} DIR), and use start=DIR"
            raise ValueError(f"start={config.start}: {problem}. {fix}.")
        base_sha256 = tensors_sha256(net.model.state_dict()) if config.lora else ""
        # An autoregressive model has no MASK
        if net.readout == "shifted" and method.readout != "shifted":
            net = HuggingFaceDenoiser(net.model, None, method.readout)
    if config.lora is not None:
        targets = config.lora_targets or "attention"
        with torch.random.fork_rng():
            torch.manual_seed(config.seed)
            adapter = Adapter(
                config.lora, targets, str(config.start), base_sha256, config.lora_alpha
            )
            add_lora(net, adapter)
    return net


def typed_mask(
    config: TrainConfig, folder: Path, model: PreTrainedModel, method: Method
) -> int | None:
    """Return the named id of MASK, or None for a new row. Raise ValueError if it is used."""
    if config.mask in (None, "new"):
        return None
    if method.readout == "shifted":
        problem = f"{config.method} has the BOS token for MASK"
        raise ValueError(f"mask={config.mask}: {problem}. Leave mask out.")
    mask_id = mask_id_of(folder, config.mask, "mask")
    check_mask_id(model, mask_id, "mask", "Use the id of a reserved one, or mask=new.")
    return mask_id


def check_mask_unused(net: nn.Module, examples: Examples) -> None:
    """Raise ValueError if MASK of a model of transformers is a token of the examples."""
    if isinstance(net, HuggingFaceDenoiser) and any(
        (part.tokens == net.mask_id).any() for part in chunks_of(examples, CHECKED_AT_ONCE)
    ):
        fix = "Use a reserved one, or mask=new"
        raise ValueError(f"mask={net.mask_id}: is a token of the data set. {fix}.")


def given_network(
    net: Denoiser | nn.Module, config: TrainConfig, task: Language, method: Method, origin: Origin
) -> nn.Module:
    """Return the network in its wrappers, with the method and numbers of the run.

    It gets the weights of the model that the run starts from, or keeps its own. Raise ValueError if
    it cannot be trained, or is not of the task.
    """
    inner = unwrap(net)
    problem = untrainable(net, inner, config)
    if isinstance(inner, HuggingFaceDenoiser):
        if inner.readout == "shifted" and method.readout != "shifted":
            needs = f"it has no MASK, and {name_of(method)} needs one"
            problem = f"with readout=shifted {needs}. Use readout={method.readout}."
    elif problem is None:
        check_unset(config, OF_ADAPTATION, FOR_TRANSFORMERS)
    if problem is not None:
        raise ValueError(f"net={type(inner).__name__}: {problem}")
    assert isinstance(inner, nn.Module)
    adopt(inner, {"vocab_size": task.vocab_size, "max_length": task.length}, task.name)
    if isinstance(inner, HuggingFaceDenoiser):
        prepare(inner, config)
    # Rows and exports would name its directory: that of a base, which has the tokenizer, stays.
    folder = inner.folder if isinstance(inner, HuggingFaceDenoiser) else None
    if isinstance(origin, Path):
        from_pretrained(origin, net=inner)
    if not is_transformer(inner):
        check_network(as_denoiser(inner), method, task.length, task.vocab_size)
    inner.method = method
    inner.folder = folder
    return inner


def untrainable(
    net: Denoiser | nn.Module, inner: Denoiser | nn.Module, config: TrainConfig
) -> str | None:
    """Return why `fit` cannot train a network with these settings, or None."""
    if not isinstance(inner, nn.Module):
        return "has no weights to train. Make it a torch.nn.Module."
    for name in (*OF_TRANSFORMER, "mask"):
        value = getattr(config, name)
        if value not in (None, DEFAULT_SHAPE.get(name)) and (value or name == "mask"):
            return f"{name}={value} is for a network that is built. Leave {name} out."
    weights = dict(inner.named_parameters())
    trained = {name: weight.dtype for name, weight in weights.items() if weight.requires_grad}
    other = next((name for name, dtype in trained.items() if dtype != torch.float32), None)
    is_own = not is_transformer(inner)
    problems = {
        "training adds DDP and EMA weights. Use net.module.": isinstance(net, HOLD_MODULE),
        "out=None has no default name for it. Use out=DIR.": config.out is None,
        "compile=True is for a Transformer. Use net=torch.compile(net).": config.compile and is_own,
        "parallel=fsdp shards no wrapper. Use parallel=ddp.": (
            config.parallel == "fsdp" and inner is not net
        ),
        f"lora={config.lora} needs the directory of its base. Use start=FOLDER.": config.lora,
        "no parameter requires a gradient": not trained,
        f"{other} is not float32, so small updates are lost. Use net.float() and precision=bf16.": other,
    }
    return next((problem for problem, is_wrong in problems.items() if is_wrong), None)


def trainable_parameters(net: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that require a gradient, which the optimizer has."""
    return [weight for weight in net.parameters() if weight.requires_grad]
