"""A run before its first step, or at the step from which it resumes."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator
from torch import nn
from torch.optim.swa_utils import AveragedModel

from latent_tokens import processes
from latent_tokens.checkpoints.files import tensors_sha256
from latent_tokens.checkpoints.stored_methods import load_method
from latent_tokens.checks import check_out, one_line
from latent_tokens.configs import PrecisionSetting, Split
from latent_tokens.core.denoiser import Denoiser
from latent_tokens.core.method import METHODS, Method
from latent_tokens.data.loading import change_detector, fingerprint
from latent_tokens.devices import precision_reason, resolve_precision, warn_if_slow
from latent_tokens.hf.directory import describe
from latent_tokens.network.kernels import compile_blocks
from latent_tokens.progress import CONSOLE
from latent_tokens.storage import (
    Json,
    half_written,
    json_bytes,
    kind_of,
    provenance,
    read_description,
    write_atomic,
)
from latent_tokens.tasks import Examples, Language, Text, description, is_described, task_named
from latent_tokens.training.checkpoint import (
    TrainState,
    load_state,
    restore_directory,
    saved_states,
    saved_step,
)
from latent_tokens.training.config import (
    DEFAULT_SHAPE,
    LATER_DEFAULTS,
    MAY_CHANGE_ON_RESUME,
    TrainConfig,
)
from latent_tokens.training.data import check_examples, num_train_of, training_data
from latent_tokens.training.network import (
    OF_TRANSFORMER,
    RESTORE_HINT,
    Origin,
    build_network,
    check_mask_unused,
    start_folder,
    trainable_parameters,
)
from latent_tokens.training.run import LOCK, Run, Stretch
from latent_tokens.training.sharding import shard
from latent_tokens.training.step import ema_update, place_ema
from latent_tokens.training.tracking import start_tracker

SAME_IN_FIRST = ("order", "window", "readout")
"""Fields in which the method of the first steps agrees with that of the others."""


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

    # Check the config, and the run that it resumes.
    named = load_method(config.method) if method is None else method
    method = as_configured(named, config)
    first = first_method(config, method)
    wanted = task_named(config.task) if task is None else task
    requested = config.precision
    config, started = resumed_config(config, wanted, accelerator.device, ignored)
    has_checkpoint = bool(saved_states(folder))
    origin: Origin = None
    if config.start is not None:  # a missing model is refused before examples are generated
        origin = started if has_checkpoint else start_folder(config)

    # Load the examples, or generate them.
    # Before the files are read, so that a change meanwhile is noticed.
    unchanged = change_detector(config.data)
    task, splits = training_data(config, wanted, method, is_object=task is not None)
    check_examples(config, method, task, splits)
    print_precision(config.precision, requested, started is not None, accelerator.device)

    # Build the network, and write or compare its description.
    needs_checkpoint = not has_checkpoint and (given is not None or config.start is not None)
    config, net = build_network(config, given, task, method, origin)
    check_mask_unused(net, splits["train"])
    contents = describe_run(config, task, net, splits, ignored)
    if needs_checkpoint:
        contents["start"] = describe_start(config, net)
    files = task.files() if isinstance(task, Text) else {}
    task_files = {folder / name: content for name, content in files.items()}
    check_or_write(folder, started, contents, task, task_files)

    # Load the latest checkpoint. All ranks read theirs before files of later steps are removed.
    ema, optimizer = ema_and_optimizer(net, config, accelerator.device)
    state = TrainState() if started is None else load_state(folder, net, ema, optimizer)
    check_same_step(folder, state)
    if started is not None and processes.is_main():
        restore_directory(folder, state, config.keep, task_files)

    # Move everything to the device, and share the network between the ranks.
    model: Any = net if given is None else given
    # FSDP has sharded both already.
    if config.parallel != "fsdp":
        model, optimizer = accelerator.prepare(model, optimizer)
    place_ema(ema, net, accelerator.device)
    if config.compile:
        compile_blocks(net)  # after the EMA weights were copied, which are validated as they are
    if config.track is not None:
        values = stored_settings(config, ignored)
        new_files = (folder / "config.json", *task_files) if started is None else ()
        start_tracker(accelerator, config.track, folder, state.step, values, new_files)
    run = Run(
        config, method, splits, net, ema, optimizer, model, accelerator, state, unchanged,
        pad=getattr(task, "pad", None), first=first,
    )  # fmt: skip
    if needs_checkpoint:
        run.save()  # a resumed run does not need the initial weights again
    if started is not None:
        set_stretches(run, started)
    return run


def is_finished(config: TrainConfig) -> bool:
    """Return whether a config's run directory has a checkpoint of its last step.

    Raise ValueError if the directory is of another run, or a setting differs from that of its run.
    """
    if config.resume in ("no", "auto") and not config.folder.exists():
        return False
    _, started = resumed_config(config, task_named(config.task), processes.join().device)
    return started is not None and saved_step(config.folder) == config.steps


def as_configured(method: Method, config: TrainConfig) -> Method:
    """Return a method with the config's loss weight and targets, if it has them."""
    weight = config.weight or method.weight
    return replace(method, weight=weight, targets=config.targets or method.targets)


def first_method(config: TrainConfig, method: Method) -> Method | None:
    """Return the method of the first steps, with the config's loss weight and targets, or None.

    Raise ValueError if its sequences or its readout are not those of the method.
    """
    if config.first is None:
        return None

    def fits(first: Method) -> bool:
        return all(getattr(first, name) == getattr(method, name) for name in SAME_IN_FIRST)

    first = load_method(config.first_name)
    if not fits(first):
        allowed = ", ".join(name for name, other in METHODS.items() if fits(other))
        problem = f"its order, window or readout is not that of {config.method}"
        raise ValueError(f"first={config.first}: {problem}. Use one of {allowed}.")
    return as_configured(first, config)


def ema_and_optimizer(
    net: nn.Module, config: TrainConfig, device: torch.device
) -> tuple[AveragedModel, torch.optim.Optimizer]:
    """Return the EMA weights and the optimizer of a network, which FSDP shards."""
    ema = AveragedModel(net, multi_avg_fn=ema_update(config.ema))
    if config.parallel == "fsdp":
        for module in (net, ema.module):
            shard(module.to(device), device)
    weights = trainable_parameters(net)
    return ema, torch.optim.AdamW(weights, config.lr, weight_decay=config.weight_decay, fused=True)


def check_same_step(folder: Path, state: TrainState) -> None:
    """Raise ValueError if ranks have read checkpoints of different steps. All ranks call it."""
    if len(set(processes.all_gather_object(state.step))) > 1:
        fix = "Make sure that all ranks see the same files, then resume again"
        raise ValueError(f"{folder}: ranks read checkpoints of different steps. {fix}")


def read_started(config: TrainConfig) -> dict[str, Any] | None:
    """Return the config.json of the run to resume, or None to start one.

    Raise ValueError if the directory can do neither.
    """
    folder = config.folder
    is_run = kind_of(folder) in ("model", "others", "corrupt")
    if config.resume in ("yes", "extend") or (config.resume == "auto" and is_run):
        return read_description(folder, "config.json", "run to resume", hint=RESTORE_HINT)
    temporary = set(half_written(folder))  # what a killed start left
    allowed = {folder / LOCK} | (temporary if config.resume == "auto" else set())
    if folder.resolve() == Path.cwd() or set(folder.iterdir()) - allowed:
        can_resume = config.resume == "no" and (temporary or is_run)
        check_out(folder, "Add resume=auto to continue an interrupted run. " if can_resume else "")
    return None


def resumed_config(
    config: TrainConfig, task: Language, device: torch.device, ignored: Collection[str] = ()
) -> tuple[TrainConfig, dict[str, Any] | None]:
    """Return the config with all that the run decides, and the config.json of the run to resume, or None.

    The run decides its shape, its number of examples and, on rank 0, its precision. `ignored` are
    settings without influence on it. Raise ValueError if another setting differs from that of the
    run, or its directory can neither be resumed nor started.
    """
    config = replace(config, num_train=num_train_of(config, task))
    started = read_started(config)
    if started is None:
        chosen = resolve_precision(config.precision, device)
        return replace(config, precision=processes.all_gather_object(chosen)[0]), None
    stored = started.get("training")
    if not isinstance(stored, dict) or stored.get("precision") not in ("fp32", "bf16"):
        raise ValueError(f"{config.folder / 'config.json'}: corrupt. {RESTORE_HINT}")
    if config.precision == "auto":
        config = replace(config, precision=stored["precision"])

    # Settings that the run has from the model that it started from.
    if config.start is not None:
        shape = {name: stored.get(name) for name in DEFAULT_SHAPE if getattr(config, name) is None}
        config = replace(config, **cast(Any, shape))

    # All others are equal, but for those that may change.
    values = {**LATER_DEFAULTS, **stored_settings(config, ignored)}
    if config.resume == "extend":
        if config.steps < stored["steps"]:
            problem = f"{config.folder} has {stored['steps']}, and resume=extend adds steps"
            fix = f"Use steps={stored['steps']} or more"
            raise ValueError(f"steps={config.steps}: {problem}. {fix}.")
        del values["steps"]
    if config.data is not None and stored.get("data") is not None:
        del values["data"]  # a data set may have moved: its checksums are compared
    if config.lora is not None and config.start is not None:
        del values["start"]  # the base of an adapter may have moved: its weights are compared
    check_same(config.folder, stored, values)
    return config, started


def print_precision(
    precision: PrecisionSetting, requested: PrecisionSetting, resumes: bool, device: torch.device
) -> None:
    """Print the precision that auto is, and a warning if it is slow on the device."""
    if requested == "auto":
        reason = "as the run was started" if resumes else f"auto: {precision_reason(device)}"
        CONSOLE.print(f"precision {precision} ({reason})")
    warn_if_slow(resolve_precision(precision, device), device)


def stored_settings(config: TrainConfig, ignored: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings that a resumed run must not change, as JSON stores them.

    Those of LATER_DEFAULTS are left out at their default.
    """
    values = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(config).items()
        if name not in (*MAY_CHANGE_ON_RESUME, *ignored)
    }
    return {name: value for name, value in values.items() if LATER_DEFAULTS.get(name, ...) != value}


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
        "training": stored_settings(config, ignored),
        "data_sha256": {str(split): fingerprint(examples) for split, examples in splits.items()},
    }
    return dict(json.loads(json_bytes(contents)))


def describe_start(config: TrainConfig, net: nn.Module) -> dict[str, Json]:
    """Return the entry of config.json for initial weights that are not those of the seed.

    Raise ValueError if they differ between ranks.
    """
    source: dict[str, Json] = {} if config.start is None else {"from": str(config.start)}
    digest = tensors_sha256(net.state_dict())
    if len(set(processes.all_gather_object(digest))) > 1:
        fix = "Call torch.manual_seed before you build it"
        raise ValueError(f"net={type(net).__name__}: its weights differ between ranks. {fix}.")
    return {**source, "weights_sha256": digest}


def check_or_write(
    folder: Path,
    started: dict[str, Any] | None,
    contents: dict[str, Any],
    task: Language,
    task_files: dict[Path, bytes],
) -> None:
    """Compare config.json of the run to resume with what it would be now, or write it on rank 0.

    The files that the task needs are written with it. Raise ValueError if a value differs.
    """
    processes.barrier()  # all ranks have seen an empty directory before rank 0 writes to it
    if started is not None:
        data: Any = started.get("data_sha256")
        check_same(folder, data, {})  # that it is an object
        for split, digest in contents["data_sha256"].items():
            if data.get(split) != digest:
                problem = f"{folder} was started with other {split} examples"
                fix = "Restore the data set, or choose another directory"
                raise ValueError(
                    f"{problem}. {fix}. A task generates equal examples for equal seeds."
                )
        check_same(folder, started.get("model"), contents["model"])
        check_same(folder, started, {"method": contents["method"]})
        if not is_described(task, started.get("task")):
            check_same(folder, started, {"task": contents["task"]})
        # A run without a checkpoint also starts from the same weights.
        check_same(folder, started.get("start", {}), contents.get("start", {}))
    elif processes.is_main():
        for path in half_written(folder):
            path.unlink()
        config = json_bytes({**contents, "made_with": provenance()})
        write_atomic({folder / "config.json": config, **task_files})


def check_same(folder: Path, started: Mapping[str, Any] | None, values: Mapping[str, Any]) -> None:
    """Raise ValueError with the first value that differs from that of the start."""
    if not isinstance(started, dict):
        raise ValueError(f"{folder / 'config.json'}: corrupt. {RESTORE_HINT}")
    started = LATER_DEFAULTS | started
    for name, value in values.items():
        if started.get(name) != value:
            before = one_line(str(started.get(name)), 99)
            problem = f"{folder} was started with {before}"
            fix = f"Leave {name} out" if before == "None" else f"Use {name}={before}"
            other = "resume=extend for more" if name == "steps" else "choose another directory"
            raise ValueError(f"{name}={value}: {problem}. {fix}, or {other}.")


def set_stretches(run: Run, started: Mapping[str, Any]) -> None:
    """Set the stretches of a run that is resumed, and store one that this call adds."""
    config, before = run.config, started["training"]["steps"]
    run.stretches = tuple(
        Stretch(entry["from"], entry["to"]) for entry in started.get("stretches", ())
    )
    if config.steps == before:
        return
    run.stretches = (
        *(run.stretches or (Stretch(0, before),)),
        Stretch(run.state.step, config.steps),
    )
    if processes.is_main():
        training = {**started["training"], "steps": config.steps}
        entries = [{"from": stretch.begin, "to": stretch.end} for stretch in run.stretches]
        content = {**started, "training": training, "stretches": entries}
        write_atomic({config.folder / "config.json": json_bytes(content)})
    run.log({"extended_to": config.steps})
