"""The settings of the demonstration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from latent_tokens.configs.names import Precision


@dataclass(frozen=True)
class DemoConfig:
    """The paper's central curve on two CPU cores.

    Train a 6x6 Sudoku model, then vary the number of latent tokens.
    """

    out: Path = Path("runs/demo")
    """Directory to write. It must be missing or empty."""
    scale: Literal["full", "smoke"] = "full"
    """Size of the run. full takes minutes. smoke takes seconds, checks that everything runs, and trains next
    to nothing."""
    every_method: bool = False
    """Train and evaluate the reference models too, instead of showing their stored rows."""
    precision: Precision = "bf16"
    """Floating-point format of sampling. bf16 is faster on a CPU that supports it."""
    seed: int = 0
    """Random seed of training and samples."""
