"""Readers of .ckpt and .pt files that run no code of theirs, in a process with limits."""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import select
import signal
import time
import warnings
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

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


STUBBED = (
    "omegaconf",
    "transformers",
    "tokenizers",
    "typing",
    "collections",
)  # libraries whose classes become stubs


TYPES = (
    "dict",
    "list",
    "tuple",
    "frozenset",
    "int",
    "long",
    "float",
    "bool",
    "str",
    "unicode",
    "bytes",
    "object",
)


LARGEST_PICKLE = 1 << 25  # bytes: what is no tensor is a few megabytes


MOST_STUBS = 256


class Inert:
    """A stub of an object of another library: `name` is its class, `args` and `state` its arguments."""

    name = ""
    args: tuple[Saved, ...]
    state: Saved

    def __new__(cls, *args: Saved, **_: Saved) -> Inert:
        stub = super().__new__(cls)
        stub.args = args
        stub.state = None
        return stub

    def __setstate__(self, state: Saved) -> None:
        self.state = state


Plain = str | int | float | bool | None | bytes


Saved = Plain | Tensor | Inert | list["Saved"] | tuple["Saved", ...] | dict["Saved", "Saved"]
"""A value of a file."""


Stub = tuple[Callable[..., Inert | dict[Saved, Saved]], str]
"""The stub that replaces a class, and the name of the class."""


def read_torch(file: Path) -> Saved:
    """Return the content of a file of torch.save: plain values, `Inert` stubs and memory-mapped tensors.

    Raise ValueError if it is corrupt, of torch's old format, asks for anything else, or takes too much
    memory or time.
    """
    check_archive(file)
    try:
        rehearse(lambda: load(file, stubs(file)), MEMORY + file.stat().st_size)
        return load(file, stubs(file))
    except ValueError as error:
        if str(error).startswith(str(file)):
            raise
        raise ValueError(f"{file}: refused, {error}") from None


def load(file: Path, classes: Sequence[Stub]) -> Saved:
    """Return what torch reads from a file with these stubs. Raise ValueError if it is corrupt."""
    try:
        with warnings.catch_warnings(), safe_globals(list(classes)):
            warnings.simplefilter("ignore")  # that another protocol was written with
            content: Saved = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
            return content
    except MemoryError:
        raise
    except Exception as error:  # a corrupt file may raise anything
        cause = (
            error.__context__ if isinstance(error, pickle.UnpicklingError) and error.__context__ else error
        )
        message = first_line(cause) if isinstance(cause, Exception) else ""
        if "memory" in message:
            raise MemoryError(message) from None
        raise ValueError(f"{file}: corrupt ({type(error).__name__}: {message}). Download it again.") from None


def stubs(file: Path) -> list[Stub]:
    """Return (stub, name) of each class that a file names. Raise ValueError for one that is not known."""
    try:
        names = sorted(get_unsafe_globals_in_checkpoint(file))
    except Exception as error:  # a corrupt file may raise anything
        raise ValueError(
            f"{file}: corrupt ({type(error).__name__}: {first_line(error)}). Download it again."
        ) from None
    if len(names) > MOST_STUBS:
        raise ValueError(f"{file}: refused, it asks for more than {MOST_STUBS} classes")
    for name in names:
        library, _, last = name.partition(".")
        if library not in STUBBED and not (library in ("builtins", "__builtin__") and last in TYPES):
            raise ValueError(
                f"{file}: refused, it asks for {name[:80]}, "
                f"which is not a plain value, a tensor or a class of {', '.join(STUBBED)}"
            )
    return [(stub_of(name), name) for name in names]


def stub_of(name: str) -> Callable[..., Inert | dict[Saved, Saved]]:
    """Return the stub of a class: a subclass of Inert, or `dict_of` for a dict with a default."""
    return dict_of if name == "collections.defaultdict" else type("Inert", (Inert,), {"name": name})


def dict_of(*_: Saved) -> dict[Saved, Saved]:
    """Return a dict in place of one with a default, into which torch's reader puts its items."""
    return {}


def is_plain_tensor(value: Saved) -> TypeGuard[Tensor]:
    """Return whether a value is a tensor of numbers in memory, all of which the file holds."""
    return (
        isinstance(value, Tensor)
        and type(value) in (Tensor, nn.Parameter)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not value.is_quantized
        and value.nbytes <= value.untyped_storage().nbytes()
    )


def check_archive(file: Path) -> None:
    """Raise ValueError if a file is not of torch.save, or has records that torch.save never writes."""
    if not file.is_file():
        raise ValueError(f"{file}: not found. Name a file.")
    if file.suffix == ".safetensors":
        raise ValueError(
            f"{file}: is read with the config.json that describes it. Name the directory that has both."
        )
    try:
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
            order = [
                archive.read(record)
                for record in records
                if record.filename.endswith("/byteorder") and record.file_size < LARGEST_PICKLE
            ]
    except (
        zipfile.BadZipFile,
        ValueError,
        NotImplementedError,
        RuntimeError,
        OSError,
        EOFError,
        OverflowError,
    ) as error:
        reason = (
            f"not a zip file ({first_line(error)}). "
            "Files of PyTorch before 1.6 are not supported. Save it again with a later version."
        )
        raise ValueError(f"{file}: {reason}") from None
    for record in records:
        if record.compress_type != zipfile.ZIP_STORED or record.file_size != record.compress_size:
            raise ValueError(
                f"{file}: {record.filename[:80]} is compressed, so torch.save did not write it. Refused."
            )
    pickles = [
        record
        for record in records
        if record.filename.endswith("/data.pkl") and record.filename.count("/") == 1
    ]
    if len(pickles) != 1:
        raise ValueError(
            f"{file}: corrupt, or not written by torch.save (a zip file with {len(pickles)} data.pkl)"
        )
    if pickles[0].file_size > LARGEST_PICKLE:
        raise ValueError(
            f"{file}: its values other than tensors take {pickles[0].file_size:,} bytes, "
            f"more than {LARGEST_PICKLE:,}"
        )
    if any(content != b"little" for content in order):
        raise ValueError(f"{file}: written on a big-endian machine. Save it again on a little-endian one.")
