"""A lock on a directory: one process at a time trains in it, and a process that was killed has no lock.

The system frees the lock when its process ends, however it ends. On NFS the server does, for a host that
crashed after its lease of some 90 s. On a file system without such locks the file itself is the lock: a later
process on the same host removes the one of a killed process, and you remove that of another host.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = ".lock"


class LockedError(ValueError):
    """Another process holds the lock of a directory."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a directory, which is created if missing, and removed if the block leaves it empty.

    Raises:
        LockedError: another process holds the lock.
        OSError: the directory cannot be written.

    Example:
        with locked(Path("runs/four")):
            ...
    """
    new_parents = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    lock = FileLock(folder / LOCK)
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            fix = "Wait for it, stop it, or name another directory with --out."
            fix += f" If none runs, remove {folder / LOCK}."
            raise LockedError(f"{folder}: another process is training in it. {fix}") from None
        except OSError as error:
            fix = "Make it writable, or name another directory."
            raise OSError(f"{folder}: cannot be written ({error.strerror}). {fix}") from error
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / LOCK).unlink()  # with the lock, so that a waiting process sees the file removed
            lock.release()
    finally:
        with suppress(OSError):  # stops at the first that is not empty
            for parent in new_parents:
                parent.rmdir()
