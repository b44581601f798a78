"""A lock on a directory: one process at a time trains in it, and a process that was killed holds nothing.

The kernel releases an flock when its process ends, however it ends. On NFS the server does the same, and it frees the locks of a host
that crashed after the lease of that host (90 s by default). A file system without locks is judged by the record in the file alone.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # not a POSIX system: the record alone decides
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
LEASE_SECONDS = 120.0  # the time to wait for the lock of another host: longer than the lease of an NFS server
RETRY_SECONDS = 1.0
HELD = (errno.EWOULDBLOCK, errno.EACCES)


class LockedError(ValueError):
    """Another process holds the lock of a directory."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a directory, which is created if it is missing and removed again if the block leaves it empty.

    Raises LockedError, a ValueError, naming the process that holds the lock, and OSError if the directory cannot be written.
    """
    new_parents = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        file = acquire(folder)
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / LOCK).unlink()  # while the lock is held: whoever waits sees that its file is gone
            file.close()
    finally:
        with suppress(OSError):  # stops at the first that is not empty
            for parent in new_parents:
                parent.rmdir()


def acquire(folder: Path) -> IO[bytes]:
    """The open lock file of a directory, locked, with the record of this process in it. Raises as `locked`."""
    path = folder / LOCK
    deadline = time.monotonic() + LEASE_SECONDS
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = path.open("a+b")
        except OSError as error:
            raise OSError(
                f"{folder}: cannot be written ({error.strerror}). Make it writable, or name another directory"
            ) from error
        holder = try_lock(file)
        if holder is None and is_current(file, path):
            write_record(file)
            return file
        file.close()
        if holder is None:  # the file was removed by the process that had it
            continue
        if holder.get("host") in (None, socket.gethostname()) or time.monotonic() >= deadline:
            fix = "Wait for it, stop it, or name another directory with --out"
            if holder.get("host") not in (None, socket.gethostname()):
                fix += f"; if it has ended, remove {path}"
            raise LockedError(f"{folder}: {in_words(holder)} is training in it. {fix}")
        time.sleep(RETRY_SECONDS)


def try_lock(file: IO[bytes]) -> dict[str, Any] | None:
    """Lock an open file without waiting: None if that worked, otherwise the record of the process that holds it."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
    except OSError as error:
        if error.errno in HELD:
            return read_record(file)
    record = read_record(file)  # a file system without locks
    return record if is_alive(record) else None


def is_current(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is still the one of that path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def write_record(file: IO[bytes]) -> None:
    """Name this process in its lock file. A full disk is no reason not to go on: the lock is held without a record."""
    record = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "boot": boot_id(),
        "started": start_time(os.getpid()),
    }
    with suppress(OSError):
        file.truncate(0)
        file.write(json.dumps(record).encode())
        file.flush()


def read_record(file: IO[bytes]) -> dict[str, Any]:
    """The record in a lock file; empty if there is none, or if it is damaged."""
    try:
        file.seek(0)
        record = json.loads(file.read(1_000))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def is_alive(record: dict[str, Any]) -> bool:
    """Whether the process of a record still runs. One of another host cannot be asked and counts as running."""
    if not isinstance(record.get("pid"), int):
        return False
    if record.get("host") != socket.gethostname():
        return True
    same_boot = record.get("boot") == boot_id()
    return (
        same_boot
        and start_time(record["pid"]) is not None
        and record.get("started") == start_time(record["pid"])
    )


def boot_id() -> str | None:
    """What is different after each start of this host, on Linux."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None


def start_time(pid: int) -> str | None:
    """When a process of this host started, in ticks since boot, on Linux: a second process of the same number has another."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return None


def in_words(record: dict[str, Any]) -> str:
    """A process by its number and host, for a message."""
    pid = record.get("pid")
    host = record.get("host")
    return f"process {pid} on {host}" if isinstance(pid, int) and isinstance(host, str) else "another process"
