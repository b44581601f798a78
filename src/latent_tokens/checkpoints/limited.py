"""A trial read of an untrusted file in a forked process, under limits of memory and time."""

from __future__ import annotations

import faulthandler
import os
import resource
import select
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from latent_tokens.checks import first_line

MEMORY = 512 << 20  # bytes more than the process has
CPU_SECONDS = 3
WALL_SECONDS = 60.0  # on a busy computer
LONGEST_MESSAGE = 4_000  # bytes


def rehearse(call: Callable[[], object], memory: int = MEMORY, seconds: int = CPU_SECONDS) -> None:
    """Call a function in a forked process and drop its result.

    The function must start no thread and use no accelerator.

    Raises:
        ValueError: the call exceeds the limits of memory (bytes) or processor time (seconds), ends the
            process, or raises an error. The message is one line.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # of threads: none of theirs is needed in the new process
        pid = os.fork()
    if pid == 0:
        os.close(reading)
        run_limited(call, writing, memory, seconds)
    os.close(writing)
    try:
        message = read_message(reading, pid)
    finally:
        os.close(reading)
        _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        raise ValueError(f"it takes more than {seconds} seconds to read")
    if code < 0:
        raise ValueError(f"reading it ends the process ({signal.Signals(-code).name})")
    if message:
        raise ValueError(message)


def run_limited(call: Callable[[], object], writing: int, memory: int, seconds: int) -> None:
    """Run in the forked process: write the error, or nothing, and exit without the parent's cleanup."""
    message = ""
    try:
        faulthandler.disable()
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        with suppress(OSError, ValueError):  # not on Linux
            resource.setrlimit(resource.RLIMIT_AS, (address_space() + memory,) * 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what a library says before it aborts
        call()
    except MemoryError:
        message = f"it takes more than {memory >> 20} MB of memory to read"
    except BaseException as error:
        message = first_line(error) if isinstance(error, Exception) else type(error).__name__
        if "alloc" in message and "memory" in message:
            message = f"it takes more than {memory >> 20} MB of memory to read"
    with suppress(BaseException):
        os.write(writing, message.encode(errors="replace")[:LONGEST_MESSAGE])
    os._exit(0)


def address_space() -> int:
    """Bytes of this process's address space."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def read_message(reading: int, pid: int) -> str:
    """Return what the other process writes until it ends. One that does not end is killed."""
    content, deadline = b"", time.monotonic() + WALL_SECONDS
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            return ""
        part = os.read(reading, LONGEST_MESSAGE)
        if not part:
            return content.decode(errors="replace")
        content += part
