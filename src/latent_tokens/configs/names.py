"""The closed sets of words that several configs share, and paths given as text."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

SizeName = Literal["pico", "nano", "tiny", "mini", "sminy", "small"]
Precision = Literal["fp32", "bf16"]
PrecisionSetting = Literal["auto", "fp32", "bf16"]
PositionName = Literal["both", "rotary", "learned"]
ScaleName = Literal["smoke", "cpu", "paper"]


def set_paths(config: object, *names: str) -> None:
    """Make the texts among the path settings of a frozen config paths."""
    for name in names:
        if isinstance(getattr(config, name), str):
            object.__setattr__(config, name, Path(getattr(config, name)))
