"""The start of a run directory, and the checks of a config against the run that it resumes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch

from latent_tokens import processes
from latent_tokens.checks import check_out, is_whole, one_line
from latent_tokens.configs import (
    DEFAULT_SHAPE,
    LATER_DEFAULTS,
    MAY_CHANGE_ON_RESUME,
    PrecisionSetting,
    TrainConfig,
)
from latent_tokens.network.kernels import precision_reason, resolve_precision, warn_if_slow
from latent_tokens.progress import CONSOLE
from latent_tokens.storage import half_written, json_bytes, provenance, read_description, write_atomic
from latent_tokens.training.locking import LOCK

LEGACY_DEFAULTS = {"gelu": "tanh"}  # settings of runs that started before the setting existed


RESTORE_HINT = "Start the same run in another directory, and copy its config.json here."


def read_started(config: TrainConfig) -> dict[str, Any] | None:
    """Return the config.json of the run to resume, or None to start one.

    Raises:
        ValueError: the directory cannot start or resume a run.
    """
    folder = config.folder
    is_run = (folder / "config.json").is_file()
    resuming = config.resume in ("yes", "extend") or (config.resume == "auto" and is_run)
    if not resuming:
        check_start(config)
        return None
    return read_description(folder, "config.json", "run to resume", hint=RESTORE_HINT)


def resume_config(
    config: TrainConfig, started: dict[str, Any] | None, device: torch.device, ignored: Collection[str]
) -> TrainConfig:
    """Return the config with the precision of the run, which is never auto, and its shape. Rank 0 decides.

    Args:
        config: the settings.
        started: the config.json of the run to resume, or None to start one.
        device: the device of this rank.
        ignored: settings without influence on the run.

    Raises:
        ValueError: a setting differs from that of the run to resume.
    """
    stored = None if started is None else stored_settings(config.folder, started, device)
    if config.precision == "auto":
        chosen = resolve_precision("auto", device) if stored is None else stored["precision"]
        config = replace(config, precision=processes.all_gather_object(chosen)[0])
    if stored is not None and config.start is not None:
        unset = [name for name in DEFAULT_SHAPE if getattr(config, name) is None]
        shape: dict[str, Any] = {name: stored.get(name) for name in unset}
        config = replace(config, **shape)
    if stored is not None and config.resume == "extend":
        check_extension(config, stored.get("steps"))
        stored = {**stored, "steps": config.steps}
    if stored is not None:
        values = {"start": None, **LATER_DEFAULTS, **settings(config, ignored)}
        if config.lora is not None and config.start is not None:
            del values["start"]  # the base of an adapter may have moved: its weights are compared
        check_same(config.folder, stored, values)
    return config


def print_precision(
    precision: PrecisionSetting, requested: PrecisionSetting, resumes: bool, device: torch.device
) -> None:
    """Print the precision of a run if auto was asked for, and a warning if it is slow on the device."""
    if requested == "auto":
        reason = "as the run was started" if resumes else f"auto: {precision_reason(device)}"
        CONSOLE.print(f"precision {precision} ({reason})", highlight=False, soft_wrap=True)
    warn_if_slow(resolve_precision(precision, device), device)


def stored_settings(folder: Path, started: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Return the settings that a run was started with. Raise ValueError if they are corrupt.

    Version 0.1 stored auto, which was fp32 on every CPU.
    """
    stored = started.get("training")
    if not isinstance(stored, dict) or stored.get("precision") not in get_args(PrecisionSetting):
        raise ValueError(f"{folder / 'config.json'}: corrupt. {RESTORE_HINT}")
    if stored["precision"] == "auto":
        return {**stored, "precision": "fp32" if device.type == "cpu" else "bf16"}
    return stored


def check_start(config: TrainConfig) -> None:
    """Raise as `check_out`, except for what a killed start left if `resume` is auto."""
    folder = config.folder
    temporary = set(half_written(folder))
    allowed = {folder / LOCK}
    if config.resume == "auto":
        allowed |= temporary
    if folder.resolve() == Path.cwd() or set(folder.iterdir()) - allowed:
        is_run = temporary or (folder / "config.json").is_file()
        hint = "Add resume=auto to continue an interrupted run. " if is_run and config.resume == "no" else ""
        check_out(folder, hint)


def write_start(folder: Path, description: dict[str, Any], task_files: dict[Path, bytes]) -> None:
    """Write the first files of a run directory: config.json, and then those that its task needs."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in half_written(folder):
        path.unlink()
    config = json_bytes({**description, "made_with": provenance()})
    write_atomic({folder / "config.json": config, **task_files})


def settings(config: TrainConfig, ignored: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings that a resumed run must not change, as JSON stores them."""
    left_out = (*MAY_CHANGE_ON_RESUME, *ignored)
    values = {name: value for name, value in asdict(config).items() if name not in left_out}
    if config.start is None:
        del values["start"]  # as in the runs of earlier versions
    for name, default in LATER_DEFAULTS.items():  # likewise
        if values.get(name) == default:
            values.pop(name, None)
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def check_started(folder: Path, started: Mapping[str, Any], contents: Mapping[str, Any]) -> None:
    """Raise ValueError if config.json of the run to resume differs from what it would be now."""
    check_same(folder, started.get("data_sha256"), contents["data_sha256"])
    check_same(folder, started.get("model"), contents["model"])
    check_same(folder, started, {name: contents[name] for name in ("method", "task")})
    check_same(folder, started.get("start", {}), contents.get("start", {}))  # without a checkpoint


def check_same(folder: Path, started: Mapping[str, Any] | None, values: Mapping[str, Any]) -> None:
    """Raise ValueError with the first value that differs from the one that the run was started with."""
    if not isinstance(started, dict):
        raise ValueError(f"{folder / 'config.json'}: corrupt. {RESTORE_HINT}")
    started = LEGACY_DEFAULTS | LATER_DEFAULTS | started
    for name, value in values.items():
        if started.get(name) != value:
            before = one_line(str(started.get(name)), 99)
            problem = f"{folder} was started with {before}"
            fix = f"Leave {name} out" if before == "None" else f"Use {name}={before}"
            other = "resume=extend for more" if name == "steps" else "choose another directory"
            raise ValueError(f"{name}={value}: {problem}. {fix}, or {other}.")


@dataclass(frozen=True)
class Stretch:
    """Steps with one learning rate schedule. It lasts until the next stretch begins."""

    begin: int  # steps before it
    end: int  # the step at which its schedule ends


def schedule_of(config: TrainConfig, step: int, stretches: tuple[Stretch, ...]) -> Stretch:
    """Return the stretch of a step. A constant schedule has one stretch, of all steps."""
    all_steps = Stretch(0, config.steps)
    if config.schedule == "constant":
        return all_steps
    return next((stretch for stretch in reversed(stretches) if stretch.begin <= step), all_steps)


def check_extension(config: TrainConfig, stored_steps: object) -> None:
    """Raise ValueError if a run cannot be extended to the config's steps."""
    if not is_whole(stored_steps, 1):
        raise ValueError(f"{config.folder / 'config.json'}: corrupt (steps is {stored_steps})")
    assert isinstance(stored_steps, int)
    if config.steps < stored_steps:
        problem = f"{config.folder} has {stored_steps}, and resume=extend adds steps"
        raise ValueError(f"steps={config.steps}: {problem}. Use steps={stored_steps} or more.")


def stretches_of(started: Mapping[str, Any], config: TrainConfig) -> tuple[Stretch, ...]:
    """Return the stretches of a run to resume, none if it was never extended.

    Raises:
        ValueError: config.json is corrupt.
    """
    try:
        return tuple(Stretch(entry["from"], entry["to"]) for entry in started.get("stretches", ()))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{config.folder / 'config.json'}: corrupt (stretches: {error!r})") from None


def extended(started: Mapping[str, Any], config: TrainConfig, step: int) -> tuple[Stretch, ...]:
    """Return the stretches of a run with one more, from `step` to the config's steps."""
    before = stretches_of(started, config) or (Stretch(0, started["training"]["steps"]),)
    return (*before, Stretch(step, config.steps))


def write_extension(
    folder: Path, started: Mapping[str, Any], config: TrainConfig, stretches: tuple[Stretch, ...]
) -> None:
    """Write the number of steps and the stretches to config.json."""
    training = {**started["training"], "steps": config.steps}
    entries = [{"from": stretch.begin, "to": stretch.end} for stretch in stretches]
    content = {**started, "training": training, "stretches": entries}
    write_atomic({folder / "config.json": json_bytes(content)})
