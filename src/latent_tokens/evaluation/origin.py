"""The training run of a model: what a result row stores of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from latent_tokens.evaluation.rows import TrainedRun
from latent_tokens.storage import read_description

if TYPE_CHECKING:
    from latent_tokens.core.denoiser import Denoiser

KEYS: Final = {"size": "size", "train_seed": "seed", "train_steps": "steps"}
"""Keys of a row, and the settings of `TrainConfig` that they store."""


def trained_run(net: Denoiser) -> TrainedRun:
    """Return the training run of a model, by the directory that it was read from. Without one it is empty.

    Raises:
        ValueError: config.json is missing or corrupt.
    """
    folder: Path | None = getattr(net, "folder", None)  # a network of another package has no such attribute
    return {} if folder is None else described_run(folder, read_description(folder, "config.json", "model"))


def described_run(folder: Path, description: Mapping[str, Any]) -> TrainedRun:
    """Return the training run of a directory by its config.json. An imported model has no settings."""
    training = entries(description, "training")
    values = {"run": folder.absolute().name, "method_name": description.get("name")}
    values |= {key: training.get(name) for key, name in KEYS.items()}
    values["length"] = entries(description, "model").get("max_length")
    return cast(TrainedRun, {key: value for key, value in values.items() if value is not None})


def entries(description: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an object of a config.json by its name. If it is missing or not an object, it is empty."""
    value = description.get(name)
    return value if isinstance(value, dict) else {}
