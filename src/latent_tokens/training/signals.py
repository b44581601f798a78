"""Signals that end training after a step, none of which cuts a step in two."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR1")
EX_TEMPFAIL = 75  # EX_TEMPFAIL of sysexits.h


class Preempted(KeyboardInterrupt):
    """Signals ended training after a step, which is saved. `code` is the exit status that says so: 130 for Ctrl-C, else 75, for a scheduler."""

    def __init__(self, message: str, caught: Sequence[int]) -> None:
        super().__init__(message)
        self.code = 128 + signal.SIGINT if signal.SIGINT in caught else EX_TEMPFAIL


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """A list that SIGINT (Ctrl-C), SIGTERM and SIGUSR1 are added to, so that a step is never cut in two; a second Ctrl-C interrupts at once."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {
        number: signal.getsignal(number)
        for name in SIGNALS
        if (number := getattr(signal, name, None)) is not None
    }

    def note(number: int, frame: object) -> None:
        caught.append(number)
        signal.signal(signal.SIGINT, before[signal.SIGINT])

    for number in before:
        signal.signal(number, note)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
