"""Experiment trackers: a run has the name of its directory, and the id that is stored there."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

from accelerate import Accelerator

from latent_tokens import processes
from latent_tokens.checks import first_line, one_line
from latent_tokens.configs import TrackerName
from latent_tokens.storage import Json, json_bytes, write_atomic

PROJECT = "latent-tokens"
# In the run directory: the name of its tracker, and the id of the run in it.
TRACKER_FILE = "tracker.json"

Log = Callable[[Mapping[str, float], int | None], None]


def check_installed(tracker: str | None) -> None:
    """Raise ValueError if a tracker is not installed."""
    if tracker is not None and find_spec(tracker) is None:
        fix = f"Use pip install {tracker}, or leave it out: metrics.jsonl is always written."
        raise ValueError(f"track={tracker}: is not installed. {fix}")


def start_tracker(
    accelerator: Accelerator,
    tracker: TrackerName,
    folder: Path,
    step: int,
    config: Mapping[str, Json],
    new_files: Sequence[Path],
) -> None:
    """Start the tracker of a run at a step, under the id of its directory, or a new one.

    Raise ValueError if it does not start, as without a server. A new tracker.json is then removed,
    and so are the files that this start wrote, so that the next one finds an empty directory.
    """
    stored = None
    run_id = ""
    if processes.is_main():
        stored = read_tracker(folder)
        run_id = secrets.token_hex(4) if stored is None else stored["id"]
        write_atomic({folder / TRACKER_FILE: json_bytes({"tracker": tracker, "id": run_id})})
    values = {name: value for name, value in config.items() if value is not None}
    try:
        accelerator.init_trackers(
            PROJECT, values, {tracker: tracker_settings(tracker, folder, run_id, step)}
        )
    except Exception as error:  # of another library, any
        if stored is None and processes.is_main():
            for path in (folder / TRACKER_FILE, *new_files):
                path.unlink()
        problem = one_line(f"{type(error).__name__}: {first_line(error)}", 300)
        fix = "Set it up, or leave it out: metrics.jsonl is always written."
        raise ValueError(f"track={tracker}: does not start ({problem}). {fix}") from error


def tracker_settings(
    tracker: TrackerName, folder: Path, run_id: str, step: int = 0
) -> dict[str, Json]:
    """Return the arguments with which a tracker starts a run, or resumes it at a step."""
    name = folder.absolute().name
    settings: dict[TrackerName, dict[str, Json]] = {
        "wandb": {"name": name, "dir": str(folder), "id": run_id, "resume": "allow"},
        "trackio": {"name": f"{name}-{run_id}", "resume": "allow"},  # it has no id but the name
        # Hides what was logged after a checkpoint
        "tensorboard": {"purge_step": step + 1 if step else None},
        "mlflow": {"run_name": name},
    }
    return settings[tracker]


def read_tracker(folder: Path) -> dict[str, str] | None:
    """Return the tracker and the id of a run, or None without one. Raise ValueError for a corrupt file."""
    path = folder / TRACKER_FILE
    if not path.is_file():
        return None
    try:
        stored = json.loads(path.read_text())
        if stored["tracker"] in get_args(TrackerName) and isinstance(stored["id"], str):
            return dict(stored)
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path}: corrupt. Remove it, and the run has a new id in its tracker.")


@contextmanager
def resumed_tracker(folder: Path, tracker: TrackerName) -> Iterator[Log]:
    """Yield log(values, step), which logs to the tracker that a run was trained with.

    Raise ValueError if it was trained without it, or it is not installed.
    """
    stored = read_tracker(folder)
    if stored is None or stored["tracker"] != tracker:
        trained = "without a tracker" if stored is None else f"with track={stored['tracker']}"
        fix = "Use the same, or leave it out."
        raise ValueError(f"track={tracker}: {folder} was trained {trained}. {fix}")
    check_installed(tracker)
    accelerator = processes.join(tracker, folder)
    accelerator.init_trackers(
        PROJECT, init_kwargs={tracker: tracker_settings(tracker, folder, stored["id"])}
    )

    def log(values: Mapping[str, float], step: int | None) -> None:
        # wandb drops values at a step before its last one, and counts on without a step.
        accelerator.log(dict(values), step=None if tracker == "wandb" else step)

    try:
        yield log
    finally:
        finish_trackers(accelerator)


def finish_trackers(accelerator: Accelerator) -> None:
    """Finish the trackers of a run. Unlike after `Accelerator.end_training` the ranks stay joined."""
    for each in accelerator.trackers:
        each.finish()
