"""Signals that stop training after a step, never within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

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
