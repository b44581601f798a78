"""The settings of the demonstration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from latent_tokens.checks import check_choice, check_int, check_threads
from latent_tokens.configs.forms import set_paths
from latent_tokens.configs.names import PrecisionSetting

DemoScale = Literal["full", "smoke"]


@dataclass(frozen=True)
class DemoConfig:
    """The paper's central curve on two CPU cores.

    Train a 6x6 Sudoku model, then vary the number of latent tokens.
    """

    out: Path = Path("runs/demo")
    """Directory to write. It must be missing or empty."""
    scale: DemoScale = "full"
    """Size of the run. full takes minutes. smoke takes seconds, checks that everything runs, and trains next
    to nothing."""
    every_method: bool = False
    """Train and evaluate the reference models too, instead of showing their stored rows."""
    precision: PrecisionSetting = "auto"
    """Floating-point format of training and sampling. auto is bf16 on an accelerator and on a CPU with
    AVX512-BF16 or AMX, and fp32 on another CPU."""
    threads: int | None = None
    """Number of CPU threads. On a CPU each evaluates rows of its own. Default: all cores."""
    seed: int = 0
    """Random seed of training and samples."""

    def __post_init__(self) -> None:
        set_paths(self, "out")
        check_choice("scale", self.scale, get_args(DemoScale))
        check_choice("precision", self.precision, get_args(PrecisionSetting))
        check_threads(self.threads)
        check_int("seed", self.seed, 0)
