"""Rows of .jsonl files, which survive a crash or a full disk while a row is appended."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from latent_tokens.storage.files import hint_for

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

BLOCK_BYTES = 1 << 16
LOCK_SECONDS = 5.0


def append_line(path: Path, row: Mapping[str, object]) -> None:
    """Append one row to a .jsonl file, and flush it to the disk.

    A last line that a crash or a full disk cut off is removed first.

    Raises:
        OSError: the row cannot be written. The file is as it was.

    Example:
        append_line(Path("run/metrics.jsonl"), {"step": 50, "loss": 1.25})
    """
    line = (json.dumps(row) + "\n").encode()
    try:
        with path.open("a+b", buffering=0) as file, briefly_locked(file):
            num_bytes, newline = end_of_rows(file)
            file.truncate(num_bytes)
            try:
                write_all(file, newline + line)
                os.fsync(file.fileno())
            except OSError:
                file.truncate(num_bytes)
                raise
    except OSError as error:
        problem = f"the row cannot be written ({error.strerror}), and the rows before it are complete"
        raise OSError(f"{path}: {problem}. {hint_for(error)}") from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a .jsonl file, or none if it is missing. A last line that was cut off is left out.

    Raises:
        ValueError: another line cannot be read.
    """
    content = path.read_bytes() if path.is_file() else b""
    *lines, cut_off = content.split(b"\n")
    rows = []
    for number, line in enumerate(lines, start=1):
        row, problem = parse_row(line)
        if row is None:
            raise ValueError(
                f"{path}, line {number}: is not a row of JSON ({problem}). Remove the line to continue"
            )
        rows.append(row)
    last, _ = parse_row(cut_off)
    return rows if last is None else [*rows, last]


def parse_row(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return (the JSON object in a line, ""), or (None, why it has none)."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return None, str(error)
    if not isinstance(row, dict):
        return None, f"a {type(row).__name__} where an object must be"
    return row, ""


def end_of_rows(file: FileIO) -> tuple[int, bytes]:
    """Return (the length of a .jsonl file up to its last complete row, the newline that this row lacks)."""
    size = file.seek(0, os.SEEK_END)
    start = size
    tail = b""
    while start and b"\n" not in tail:
        start = max(0, start - BLOCK_BYTES)
        file.seek(start)
        tail = file.read(size - start)
    last_line = tail[tail.rfind(b"\n") + 1 :]
    complete = parse_row(last_line)[0] is not None
    return (size, b"\n") if complete else (size - len(last_line), b"")


def write_all(file: FileIO, content: bytes) -> None:
    """Write bytes to an unbuffered file. Raise OSError if they do not fit."""
    while content:
        content = content[file.write(content) :]


@contextmanager
def briefly_locked(file: FileIO) -> Iterator[None]:
    """Keep other processes from appending during the block.

    It waits for at most LOCK_SECONDS, so that a lock that a crashed host left on NFS stops no process.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    while fcntl is not None and time.monotonic() < deadline:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:  # a file system without locks
            break
    yield  # closing the file releases the lock
