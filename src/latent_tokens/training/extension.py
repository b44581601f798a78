"""The extension of a run to more steps, in stretches that each have a cosine schedule of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latent_tokens.checks import is_whole
from latent_tokens.configs import TrainConfig
from latent_tokens.storage import json_bytes, write_atomic


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
