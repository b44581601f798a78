"""A run before its first step, or at the step from which it resumes."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator
from torch import nn
from torch.optim.swa_utils import AveragedModel

from latent_tokens import processes
from latent_tokens.checkpoints.directory import describe
from latent_tokens.checkpoints.stored_methods import load_method
from latent_tokens.configs import Split, TrainConfig
from latent_tokens.core.denoiser import Denoiser
from latent_tokens.core.method import Method
from latent_tokens.core.objective import check_anneal
from latent_tokens.data.loading import change_detector, fingerprint
from latent_tokens.network.kernels import compile_blocks
from latent_tokens.storage import Json, json_bytes, restore_files
from latent_tokens.tasks import Examples, Language, Text, description, named
from latent_tokens.training.checkpoint import State, discard_after, load_state, saved_states
from latent_tokens.training.data import check_examples, num_train_of, training_data
from latent_tokens.training.network import (
    OF_TRANSFORMER,
    build_network,
    check_mask_unused,
    initial_sha256,
    shard,
    trainable_parameters,
)
from latent_tokens.training.resume import (
    check_started,
    extended,
    print_precision,
    read_started,
    resume_config,
    settings,
    stretches_of,
    write_extension,
    write_start,
)
from latent_tokens.training.run import Run
from latent_tokens.training.step import ema_update, place_ema, restore_best
from latent_tokens.training.tracking import check_installed, start_tracker


def setup(
    config: TrainConfig,
    given: Denoiser | nn.Module | None,
    task: Language | None,
    method: Method | None,
    accelerator: Accelerator,
) -> Run:
    """Return a run at its first step, or at that of its latest checkpoint. Raises as `fit`."""
    folder = config.folder
    ignored = () if given is None else OF_TRANSFORMER
    method = load_method(config.method) if method is None else method
    method = with_settings(method, config)

    # Check the config, and the run that it resumes.
    wanted = named(config.task) if task is None else task
    config = replace(config, num_train=num_train_of(config, wanted))
    started = read_started(config)
    requested = config.precision
    config = resume_config(config, started, accelerator.device, ignored)
    unchanged = change_detector(config.data)
    task, splits = training_data(config, wanted, method, is_object=task is not None)
    check_examples(config, method, task, splits)
    print_precision(config.precision, requested, started is not None, accelerator.device)

    # Build the network, and write or compare its description.
    has_checkpoint = bool(saved_states(folder))
    needs_checkpoint = not has_checkpoint and (given is not None or config.start is not None)
    config, net = build_network(config, given, task, method, started if has_checkpoint else None)
    check_mask_unused(net, splits["train"])
    contents = describe_run(config, task, net, splits, ignored)
    if needs_checkpoint:
        contents["start"] = describe_start(config, net)
    files = {folder / name: content for name, content in files_of(task).items()}
    processes.barrier()  # all ranks have seen an empty directory before rank 0 writes to it
    if started is not None:
        check_started(folder, started, contents)
    elif processes.is_main():
        write_start(folder, contents, files)

    # EMA weights and optimizer, on sharded weights with FSDP.
    ema = AveragedModel(net, multi_avg_fn=ema_update(config.ema))
    if config.parallel == "fsdp":
        for module in (net, ema.module):
            shard(module.to(accelerator.device), accelerator.device)
    optimizer = torch.optim.AdamW(
        trainable_parameters(net), config.lr, weight_decay=config.weight_decay, fused=True
    )

    # Load the latest checkpoint. No file of a later step is removed until all ranks have read theirs.
    state = State() if started is None else load_state(folder, net, ema, optimizer)
    check_same_step(folder, state)
    if started is not None and processes.is_main():
        restore_directory(config, state, files)

    # Move everything to the device, and share the network between the ranks.
    model = net if given is None else cast(nn.Module, given)
    if config.parallel != "fsdp":
        model, optimizer = accelerator.prepare(model, optimizer)
    place_ema(ema, net, accelerator.device)
    if config.compile:
        compile_blocks(net)  # after the EMA weights were copied, which are validated as they are
    if config.track is not None:
        values = {name: value for name, value in settings(config, ignored).items() if value is not None}
        start_tracker(accelerator, config.track, folder, state.step, values)
    pad = getattr(task, "pad", None)
    run = Run(config, method, splits, net, ema, optimizer, model, accelerator, state, unchanged, pad)
    if needs_checkpoint:
        run.save()  # a resumed run does not need the initial weights again
    if started is not None:
        extend(run, started)
    return run


def files_of(task: Language) -> dict[str, bytes]:
    """Return the files of a task, by name, that a run directory needs."""
    return task.files() if isinstance(task, Text) else {}


def restore_directory(config: TrainConfig, state: State, task_files: dict[Path, bytes]) -> None:
    """Bring the files of a run directory to the step of a checkpoint."""
    discard_after(config.folder, state.step, config.keep)
    restore_files(task_files)
    restore_best(config.folder, state)


def extend(run: Run, started: Mapping[str, Any]) -> None:
    """Set the stretches of a run that is resumed, and record one that this call adds."""
    config = run.config
    if config.steps == started["training"]["steps"]:
        run.stretches = stretches_of(started, config)
        return
    run.stretches = extended(started, config, run.state.step)
    if processes.is_main():
        write_extension(config.folder, started, config, run.stretches)
    run.log({"extended_to": config.steps})


def join_ranks(config: TrainConfig) -> Accelerator:
    """Join the other ranks, with the config's tracker. Raise ValueError if the tracker is not installed."""
    check_installed(config.track)
    return processes.join(config.track, config.folder)


def with_settings(method: Method, config: TrainConfig) -> Method:
    """Return the method with the config's loss weight and targets.

    Raises:
        ValueError: the config anneals a mask that is causal.
    """
    check_anneal(config.anneal, method.attention)
    weight = config.weight or method.weight
    targets = config.targets or method.targets
    return replace(method, weight=weight, targets=targets)


def describe_run(
    config: TrainConfig,
    task: Language,
    net: nn.Module,
    splits: dict[Split, Examples],
    ignored: Collection[str],
) -> dict[str, Any]:
    """Return the content of config.json, as JSON stores it."""
    contents = {
        **describe(net),
        "task": description(task),
        "name": config.method,
        "training": settings(config, ignored),
        "data_sha256": {str(split): fingerprint(examples) for split, examples in splits.items()},
    }
    return dict(json.loads(json_bytes(contents)))


def describe_start(config: TrainConfig, net: nn.Module) -> dict[str, Json]:
    """Return the entry of config.json for initial weights that are not those of the seed."""
    origin: dict[str, Json] = {} if config.start is None else {"from": str(config.start)}
    return {**origin, "weights_sha256": initial_sha256(net)}


def check_same_step(folder: Path, state: State) -> None:
    """Raise ValueError if ranks have read checkpoints of different steps. It waits for all ranks."""
    if len(set(processes.all_gather_object(state.step))) > 1:
        fix = "Make sure that all ranks see the same files, then resume again"
        raise ValueError(f"{folder}: ranks read checkpoints of different steps. {fix}")
