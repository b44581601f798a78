"""A lock on a directory: one process at a time trains in it, and a process that was killed has no lock.

The kernel releases an flock when its process ends, however it ends. On NFS the server does the same, and it
frees the locks of a host that crashed after the lease of that host (90 s by default). On a file system
without locks the record in the file decides alone.
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
from typing import IO

try:
    import fcntl
except ImportError:  # not a POSIX system: the record alone decides
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
LEASE_SECONDS = 120.0  # the time to wait for the lock of another host: longer than the lease of an NFS server
RETRY_SECONDS = 1.0
HELD = (errno.EWOULDBLOCK, errno.EACCES)

Record = dict[str, int | str | None]  # pid, host, boot, started: the process that has the lock


class LockedError(ValueError):
    """Another process holds the lock of a directory."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a directory, which is created if missing, and removed if the block leaves it empty.

    Raises:
        LockedError: another process holds the lock. The message names it.
        OSError: the directory cannot be written.

    Example:
        with locked(Path("runs/four")):
            ...
    """
    new_parents = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        file = acquire(folder)
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / LOCK).unlink()  # with the lock, so that a waiting process sees the file removed
            file.close()
    finally:
        with suppress(OSError):  # stops at the first that is not empty
            for parent in new_parents:
                parent.rmdir()


def acquire(folder: Path) -> IO[bytes]:
    """Return the open, locked lock file of a directory, with this process's record. Raises as `locked`."""
    path = folder / LOCK
    deadline = time.monotonic() + LEASE_SECONDS
    while True:
        # Open the file and try to lock it.
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = path.open("a+b")
        except OSError as error:
            fix = "Make it writable, or name another directory."
            raise OSError(f"{folder}: cannot be written ({error.strerror}). {fix}") from error
        holder = try_lock(file)
        if holder is None and is_current(file, path):
            write_record(file)
            return file
        file.close()
        if holder is None:  # the file was removed by the process that had it
            continue

        # Another process has it. One of another host may have crashed: wait until its lease has ended.
        same_host = holder.get("host") in (None, socket.gethostname())
        if same_host or time.monotonic() >= deadline:
            fix = "Wait for it, stop it, or name another directory with --out."
            if not same_host:
                fix += f" If it has ended, remove {path}."
            raise LockedError(f"{folder}: {name_of(holder)} is training in it. {fix}")
        time.sleep(RETRY_SECONDS)


def try_lock(file: IO[bytes]) -> Record | None:
    """Lock an open file without waiting. Return None, or the record of the process that holds the lock."""
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
    """Return whether an open file is still the file at that path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def write_record(file: IO[bytes]) -> None:
    """Write the record of this process to its lock file. On a full disk the lock is held without a record."""
    record: Record = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "boot": boot_id(),
        "started": start_time(os.getpid()),
    }
    with suppress(OSError):
        file.truncate(0)
        file.write(json.dumps(record).encode())
        file.flush()


def read_record(file: IO[bytes]) -> Record:
    """Return the record in a lock file. It is empty if it is missing or corrupt."""
    try:
        file.seek(0)
        record = json.loads(file.read(1_000))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def is_alive(record: Record) -> bool:
    """Return whether the process of a record still runs. One of another host counts as running."""
    pid = record.get("pid")
    if not isinstance(pid, int):
        return False
    if record.get("host") != socket.gethostname():
        return True
    started = start_time(pid)
    return record.get("boot") == boot_id() and started is not None and record.get("started") == started


def boot_id() -> str | None:
    """Return an id that changes with each boot of this host, on Linux."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None


def start_time(pid: int) -> str | None:
    """Return the ticks from boot to the start of a process, on Linux. A later process has more."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return None


def name_of(record: Record) -> str:
    """Return the process of a record by pid and host, for a message."""
    pid = record.get("pid")
    host = record.get("host")
    return f"process {pid} on {host}" if isinstance(pid, int) and isinstance(host, str) else "another process"
