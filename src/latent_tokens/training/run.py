"""A run between two steps, the signals that stop it after one, and the lock of its directory."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import torch
from accelerate import Accelerator
from filelock import FileLock, Timeout
from torch import nn
from torch.optim.swa_utils import AveragedModel

from latent_tokens import processes
from latent_tokens.checkpoints.files import weights_bytes
from latent_tokens.configs import Split
from latent_tokens.core.denoiser import unwrap
from latent_tokens.core.method import Method
from latent_tokens.storage import append_line, release, remove_empty, write_atomic
from latent_tokens.tasks import Examples
from latent_tokens.training.checkpoint import TrainState, save_state
from latent_tokens.training.config import TrainConfig
from latent_tokens.training.sharding import full_tensor

LOCK = ".lock"
SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")


class LockedError(ValueError):
    """Another process holds the lock of a directory, or the directory cannot be written."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a directory, which is created if missing, and removed if left empty.

    Rank 0 has it for all. The system frees the lock when its process ends, however it ends. On NFS
    the server does, some 90 s after a host crashed. All ranks raise LockedError if another process
    holds it, or the directory cannot be written.
    """
    new_folders = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    lock = FileLock(folder / LOCK)
    problem = ""
    try:
        if processes.is_main():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                lock.acquire(timeout=0)
            except Timeout:
                fix = "Wait for it, stop it, or name another directory with --out."
                problem = f"another process is training in it. {fix} If none runs, remove {folder / LOCK}."
            except OSError as error:
                fix = "Make it writable, or name another directory."
                problem = f"cannot be written ({error.strerror}). {fix}"
        problem = processes.all_gather_object(problem)[0]
        if problem:
            raise LockedError(f"{folder}: {problem}")
        yield
    finally:
        if lock.is_locked:
            release(lock)
        if processes.is_main():
            remove_empty(new_folders)


class Preempted(KeyboardInterrupt):
    """Signals stopped training after a step, which is saved.

    `code` is the exit status: 130 after Ctrl-C, otherwise 75, for a scheduler.
    """

    def __init__(self, message: str, caught: Sequence[int]) -> None:
        super().__init__(message)
        self.code = 128 + signal.SIGINT if signal.SIGINT in caught else processes.EX_TEMPFAIL


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Yield a list that collects SIGINT (Ctrl-C), SIGTERM and SIGUSR1, which stop no step.

    A second Ctrl-C interrupts at once. Outside the main thread, which gets no signals, the list
    stays empty.
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


@dataclass(frozen=True)
class Stretch:
    """Steps with one learning rate schedule. It lasts until the next stretch begins."""

    begin: int  # steps before it
    end: int  # the step at which its schedule ends


@dataclass
class Run:
    """A training run between two steps."""

    config: TrainConfig
    method: Method
    splits: dict[Split, Examples]
    net: nn.Module  # without wrappers
    ema: AveragedModel
    optimizer: torch.optim.Optimizer
    # The network as it is called: compiled if it was given so, DDP for several ranks
    model: nn.Module
    accelerator: Accelerator
    state: TrainState
    unchanged: Callable[[], bool]  # whether the data set is the one that the run started with
    pad: int | None = None  # the token after the end of an answer
    stretches: tuple[Stretch, ...] = ()  # of a run that was extended
    first: Method | None = None  # of the first steps
    num_skipped: int = 0  # steps in a row whose loss or gradient was not finite
    start_time: float = field(default_factory=time.perf_counter)  # of this process

    @property
    def mask_id(self) -> int:
        """The token of masked slots."""
        return unwrap(self.net).mask_id

    def method_at(self, step: int) -> Method:
        """Return the method with which a step trains."""
        return self.method if self.first is None or step >= self.config.first_steps else self.first

    @property
    def part(self) -> str:
        """The part of the run with its first method, in words for the progress. It is empty after it."""
        if self.first is None or self.state.step > self.config.first_steps:
            return ""
        return f"first {self.config.first}, "

    def save(self) -> None:
        """Write a checkpoint, once for all ranks. Raise ValueError instead if the data changed."""
        self.check_data()
        save_state(
            self.config.folder, self.net, self.ema, self.optimizer, self.state, self.config.keep
        )

    def keep_if_best(self, loss: float) -> None:
        """Log a validation loss, and write the EMA weights, once for all ranks, if it is the lowest so far.

        Raise ValueError if the loss is not finite, or the data changed.
        """
        state = self.state
        if not math.isfinite(loss):
            raise diverged(f"validation loss {loss}", state.step)
        self.check_data()
        self.log({"validation_loss": loss})
        if loss >= state.best:
            return
        state.best = loss
        state.weights = {
            name: full_tensor(tensor).detach().cpu().clone()
            for name, tensor in self.ema.module.state_dict().items()
        }
        if processes.is_main():
            write_atomic({self.config.folder / "model.safetensors": weights_bytes(state.weights)})

    def check_data(self) -> None:
        """Raise ValueError if the data changed."""
        if not self.unchanged():
            raise ValueError(
                f"data={self.config.data}: changed during training. Restore it, then rerun with resume=auto"
            )

    def log(self, row: dict[str, float | str]) -> None:
        """Append a row to the metrics, with the seconds of this process, once for all ranks."""
        row = {**row, "seconds": round(time.perf_counter() - self.start_time, 3)}
        if processes.is_main():
            append_line(self.config.folder / "metrics.jsonl", {"step": self.state.step, **row})
        if self.config.track is not None:
            self.accelerator.log(row, step=self.state.step)


def diverged(problem: str, step: int) -> ValueError:
    """Return the error of a run whose loss is no longer finite."""
    return ValueError(
        f"{problem} at step {step}: training diverged. Use a lower lr or a longer warmup."
    )
