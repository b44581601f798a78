"""A training run between two steps: what it saves and logs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from torch import nn
from torch.optim.swa_utils import AveragedModel

from latent_tokens import processes
from latent_tokens.configs import Split, TrainConfig
from latent_tokens.core.denoiser import unwrap
from latent_tokens.core.method import Method
from latent_tokens.storage import append_line
from latent_tokens.tasks import Examples
from latent_tokens.training.extension import Stretch
from latent_tokens.training.state import State, save_state


@dataclass
class Run:
    """A training run between two steps."""

    config: TrainConfig
    method: Method
    splits: dict[Split, Examples]
    net: nn.Module  # without wrappers
    ema: AveragedModel
    optimizer: torch.optim.Optimizer
    model: nn.Module  # the network as it is called: compiled if it was given so, DDP for several ranks
    accelerator: Accelerator
    state: State
    unchanged: Callable[[], bool]  # whether the data set is the one that the run started with
    pad: int | None = None  # the token after the end of an answer
    stretches: tuple[Stretch, ...] = ()  # of a run that was extended
    start_time: float = field(default_factory=time.perf_counter)  # of this process

    @property
    def mask_id(self) -> int:
        """The token of masked slots."""
        return unwrap(self.net).mask_id

    def save(self) -> None:
        """Write a checkpoint, once for all ranks. Raise ValueError instead if the data changed."""
        self.check_data()
        save_state(self.config.folder, self.net, self.ema, self.optimizer, self.state, self.config.keep)

    def check_data(self) -> None:
        """Raise ValueError if the data changed."""
        if not self.unchanged():
            raise ValueError(
                f"data={self.config.data}: changed during training. Restore it, then rerun with resume=auto"
            )

    def log(self, row: dict[str, float | str]) -> None:
        """Append a row to the metrics, with the seconds since this process began, once for all ranks."""
        row = {**row, "seconds": round(time.perf_counter() - self.start_time, 3)}
        if processes.is_main():
            append_line(self.config.folder / "metrics.jsonl", {"step": self.state.step, **row})
        if self.config.track is not None:
            self.accelerator.log(row, step=self.state.step)
