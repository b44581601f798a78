"""The training run of a model: what a result row stores of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from latent_tokens.evaluation.rows import TrainedRun
from latent_tokens.storage import read_description

KEYS: Final = {"size": "size", "train_seed": "seed", "train_steps": "steps"}
"""Keys of a row, and the settings of `TrainConfig` that they store."""


def trained_run(folder: Path | None) -> TrainedRun:
    """Return the training run of a model's directory. A network that was not read from one has no entries.

    Raises:
        ValueError: config.json is missing or corrupt.
    """
    return {} if folder is None else described_run(folder, read_description(folder, "config.json", "model"))


def described_run(folder: Path, description: Mapping[str, Any]) -> TrainedRun:
    """Return the training run of a directory by its config.json. An imported model has no settings."""
    training = description.get("training") or {}
    values = {"run": folder.absolute().name, "method_name": description.get("name")}
    values |= {key: training.get(name) for key, name in KEYS.items()}
    values["length"] = description.get("model", {}).get("max_length")
    return cast(TrainedRun, {key: value for key, value in values.items() if value is not None})
