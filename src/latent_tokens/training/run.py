"""A run between two steps, and the signals that stop it after one."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

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
from latent_tokens.training.checkpoint import State, save_state
from latent_tokens.training.resume import Stretch

SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")


EX_TEMPFAIL = 75  # of sysexits.h: a scheduler runs the job again


class Preempted(KeyboardInterrupt):
    """Signals stopped training after a step, which is saved.

    `code` is the exit status: 130 after Ctrl-C, otherwise 75, for a scheduler.
    """

    def __init__(self, message: str, caught: Sequence[int]) -> None:
        super().__init__(message)
        self.code = 128 + signal.SIGINT if signal.SIGINT in caught else EX_TEMPFAIL


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Yield a list to which SIGINT (Ctrl-C), SIGTERM and SIGUSR1 are appended instead of stopping a step.

    A second Ctrl-C interrupts at once. Outside the main thread, which gets no signals, the list stays empty.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    handlers = {number: signal.getsignal(number) for number in numbers}

    def catch(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        signal.signal(signal.SIGINT, handlers[signal.SIGINT])

    for number in handlers:
        signal.signal(number, catch)
    try:
        yield caught
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


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
