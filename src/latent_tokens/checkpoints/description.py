"""Checks of the entries of config.json that describe a model's origin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

KINDS = {
    "task": dict,
    "name": str,
    "training": dict,
    "data_sha256": dict,
    "made_with": dict,
    "imported": dict,
}  # the entries other than format, model and method


def check_about(about: dict[str, Any], file: Path) -> None:
    """Raise ValueError if an entry of config.json has another type than training writes."""
    for name, kind in KINDS.items():
        if name in about and not isinstance(about[name], kind):
            raise ValueError(
                f"{file}: damaged ({name} is a {type(about[name]).__name__}, must be a {kind.__name__}). "
                "Save the model again"
            )
    for holder, name in (("task", "name"), ("data_sha256", "train")):
        value = about.get(holder, {}).get(name, "")
        if not isinstance(value, str):
            raise ValueError(
                f"{file}: damaged ({holder}.{name} is a {type(value).__name__}, must be a str). "
                "Save the model again"
            )
