"""Files and directories that are complete or missing: written to a temporary name, flushed, renamed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]
"""A value of JSON."""


def write_atomic(contents: dict[Path, bytes]) -> None:
    """Write each content to its path, all of them or none.

    Raises:
        OSError: a file cannot be written, for example on a full disk. The files from before are unchanged.

    Example:
        write_atomic({Path("run/config.json"): b"{}", Path("run/notes.txt"): b"..."})
    """
    temporary = {path: path.with_name(f".{path.name}.{os.getpid()}") for path in contents}
    path = next(iter(contents))
    try:
        # Write and flush every temporary file before the first is renamed.
        for path, content in contents.items():
            with temporary[path].open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())

        # Rename them, and flush the names.
        for path in contents:
            temporary[path].replace(path)
        for folder in {path.parent for path in contents}:
            flush_folder(folder)
    except OSError as error:
        problem = f"cannot be written ({error.strerror}), and what was there before is complete"
        raise OSError(f"{path}: {problem}. {hint_for(error)}") from error
    finally:
        for unfinished in temporary.values():
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)


def half_written(folder: Path) -> list[Path]:
    """Return the temporary files that a killed process left in a directory."""
    return [path for path in folder.glob(".*") if re.fullmatch(r"\..+\.\d+", path.name)]


def restore_files(contents: dict[Path, bytes]) -> None:
    """Write the files that are missing or differ from their content. Raise OSError as `write_atomic`."""
    changed = {
        path: content
        for path, content in contents.items()
        if not path.is_file() or path.read_bytes() != content
    }
    if changed:
        write_atomic(changed)


def flush_folder(folder: Path) -> None:
    """Flush the names in a directory to the disk if the system can, so that they survive a loss of power."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def atomic_directory(folder: Path) -> Iterator[Path]:
    """Yield a temporary directory that is renamed to `folder` if the block ends without an error.

    What an earlier attempt left is removed first.

    Raises:
        OSError: `folder` cannot be written. Nothing of it is left.

    Example:
        with atomic_directory(Path("data/four")) as unfinished:
            (unfinished / "train.tokens.npy").write_bytes(content)
    """
    target = folder.resolve()  # of a link, such as one to a larger disk
    unfinished = target.with_name(f".{target.name}.unfinished")
    new_parents = [parent for parent in target.parents if not parent.exists()]
    try:
        # Fill an empty temporary directory.
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        yield unfinished

        # Rename it. An empty target is replaced.
        if target.is_dir():
            target.rmdir()
        unfinished.rename(target)
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error}), and nothing of it is left"
        raise OSError(f"{folder}: {problem}. {hint_for(error)}") from error
    finally:
        # Remove what is not renamed, and the parents that were created for it.
        shutil.rmtree(unfinished, ignore_errors=True)
        with suppress(OSError):  # stops at the first parent that is not empty
            for parent in new_parents:
                parent.rmdir()


def hint_for(error: OSError) -> str:
    """Return how to fix a file that cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space, then run the same command again"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "Make the directory writable, or name another with --out"
    return "See that the directory is there and can be written"


def json_bytes(content: Mapping[str, Json]) -> bytes:
    """Return the content of a JSON file."""
    return (json.dumps(content, indent=1) + "\n").encode()


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def short_hash(content: bytes, digits: int) -> str:
    """Return the first hexadecimal digits of the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()[:digits]
