"""Checks of the entries of config.json that describe a model and its origin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from latent_tokens.checks import check_choice, check_int, check_min
from latent_tokens.sizes import LONGEST
from latent_tokens.storage import Json

Entries = Mapping[str, Any]
"""The entries of a JSON file, or of an object in it."""


class Origin(TypedDict, total=False):
    """The entries of config.json on the origin of a model."""

    task: dict[str, Json]
    name: str  # of its method
    training: dict[str, Json]  # the settings of TrainConfig
    data_sha256: dict[str, str]  # by split
    made_with: dict[str, str | None]
    imported: dict[str, Json]
    fingerprint: list[float]
    auto_map: dict[str, str]


KINDS = {
    "task": dict,
    "name": str,
    "training": dict,
    "data_sha256": dict,
    "made_with": dict,
    "imported": dict,
}  # the entries other than format, model and method


def check_about(about: Mapping[str, Json], file: Path) -> None:
    """Raise ValueError if an entry of config.json has another type than training writes."""
    for name, kind in KINDS.items():
        if name in about and not isinstance(about[name], kind):
            raise ValueError(
                f"{file}: corrupt ({name} is a {type(about[name]).__name__}, must be a {kind.__name__}). "
                "Save the model again"
            )
    for holder, name in (("task", "name"), ("data_sha256", "train")):
        entries = about.get(holder)
        value = entries.get(name, "") if isinstance(entries, dict) else ""
        if not isinstance(value, str):
            raise ValueError(
                f"{file}: corrupt ({holder}.{name} is a {type(value).__name__}, must be a str). "
                "Save the model again"
            )


def check_model(model: Entries) -> None:
    """Raise ValueError if a config describes an impossible network."""
    check_numbers(model)
    check_choice("positions", model["positions"], ("both", "rotary", "learned"))
    check_choice("gelu", model.get("gelu", "tanh"), ("exact", "tanh"))
    check_min("dropout", model["dropout"], 0)


def check_numbers(model: Entries) -> None:
    """Raise ValueError if a config has an impossible number of tokens or positions."""
    for name in ("vocab_size", "max_length"):
        check_int(name, model[name], 1)
    if model["max_length"] > LONGEST:
        raise ValueError(f"max_length={model['max_length']}: must be at most {LONGEST:,}")
