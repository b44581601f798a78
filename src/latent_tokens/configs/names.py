"""The closed sets of words that several configs share."""

from __future__ import annotations

from typing import Literal

SizeName = Literal["pico", "nano", "tiny", "mini", "sminy", "small"]
Precision = Literal["fp32", "bf16"]
PrecisionSetting = Literal["auto", "fp32", "bf16"]
LoraTargets = Literal["attention", "all"]
PositionName = Literal["both", "rotary", "learned"]
ScaleName = Literal["smoke", "cpu", "paper"]
