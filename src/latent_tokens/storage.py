"""Files that are whole or not there: written beside, flushed, renamed. And what made them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from io import FileIO
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

BLOCK = 1 << 16  # bytes
APPEND_SECONDS = 5.0
FORMAT = 1  # of every folder that this version writes


def write_atomic(contents: dict[Path, bytes]) -> None:
    """Puts each content at its path. Where one cannot be written (a full disk, say) it raises OSError, and what stood there stays."""
    beside = {path: path.with_name(f".{path.name}.{os.getpid()}") for path in contents}
    path = next(iter(contents))
    try:
        for path, content in contents.items():
            with beside[path].open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for path in contents:
            beside[path].replace(path)
        for folder in {path.parent for path in contents}:
            flush_folder(folder)
    except OSError as error:
        raise OSError(
            f"{path}: cannot be written ({error.strerror}); what was there before is complete. {hint_for(error)}"
        ) from error
    finally:
        for left in beside.values():
            left.unlink(missing_ok=True)


def half_written(folder: Path) -> list[Path]:
    """What `write_atomic` had begun in a folder when its process was killed."""
    return [path for path in folder.glob(".*") if re.fullmatch(r"\..+\.\d+", path.name)]


def restore_files(contents: dict[Path, bytes]) -> None:
    """Writes those that are not there, or not as they should be. Raises OSError as `write_atomic` does."""
    wrong = {
        path: content
        for path, content in contents.items()
        if not path.is_file() or path.read_bytes() != content
    }
    if wrong:
        write_atomic(wrong)


def flush_folder(folder: Path) -> None:
    """Makes the names in a folder last through a loss of power, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def atomic_directory(folder: Path) -> Iterator[Path]:
    """A folder beside, which takes the name when all has gone well; what an earlier attempt left there is removed first.

    Raises OSError naming the folder where it cannot be written.
    """
    place = folder.absolute()
    beside = place.with_name(f".{place.name}.unfinished")
    missing = [parent for parent in place.parents if not parent.exists()]
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        yield beside
        if place.is_dir():
            place.rmdir()
        beside.rename(place)
    except OSError as error:
        raise OSError(
            f"{folder}: cannot be written ({error.strerror or error}); nothing of it is left. {hint_for(error)}"
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        with suppress(OSError):  # stops at the first that is not empty
            for parent in missing:
                parent.rmdir()


def json_bytes(content: dict[str, Any]) -> bytes:
    """The file that holds `content` as JSON."""
    return (json.dumps(content, indent=1) + "\n").encode()


def append_line(path: Path, row: dict[str, Any]) -> None:
    """Append one row to a .jsonl file, and flush it to the disk.

    A last line that a crash or a full disk cut off is removed first. If the row cannot be written, the file is as it was. Raises
    OSError naming the file.
    """
    line = (json.dumps(row) + "\n").encode()
    try:
        with path.open("a+b", buffering=0) as file, briefly_locked(file):
            num_bytes, ending = end_of_rows(file)
            file.truncate(num_bytes)
            try:
                write_all(file, ending + line)
                os.fsync(file.fileno())
            except OSError:
                file.truncate(num_bytes)
                raise
    except OSError as error:
        raise OSError(
            f"{path}: the row cannot be written ({error.strerror}); the rows before it are complete. {hint_for(error)}"
        ) from error


def end_of_rows(file: FileIO) -> tuple[int, bytes]:
    """(the length of a .jsonl file up to its last complete row, the newline that this row lacks)."""
    size = file.seek(0, os.SEEK_END)
    tail, start = b"", size
    while start and b"\n" not in tail:
        start = max(0, start - BLOCK)
        file.seek(start)
        tail = file.read(size - start)
    last_line = tail[tail.rfind(b"\n") + 1 :]
    complete = parse_row(last_line)[0] is not None
    return (size, b"\n") if complete else (size - len(last_line), b"")


def write_all(file: FileIO, content: bytes) -> None:
    """Write bytes to an unbuffered file. Raises OSError if they do not fit."""
    while content:
        content = content[file.write(content) :]


@contextmanager
def briefly_locked(file: FileIO) -> Iterator[None]:
    """Keep other processes from appending meanwhile, for at most APPEND_SECONDS: a lock that a crashed host left on NFS stops nobody."""
    deadline = time.monotonic() + APPEND_SECONDS
    while fcntl is not None and time.monotonic() < deadline:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:  # a file system without locks
            break
    yield  # closing the file releases the lock


def hint_for(error: OSError) -> str:
    """What to do about a file that cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space, then run the same command again"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "Make the directory writable, or name another with --out"
    return "See that the directory is there and can be written"


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a .jsonl file; none where it is missing. A last line that was cut off is left out.

    Raises ValueError naming any other line that cannot be read.
    """
    *lines, cut_off = path.read_bytes().split(b"\n") if path.is_file() else [b""]
    rows = []
    for number, line in enumerate(lines, start=1):
        row, problem = parse_row(line)
        if row is None:
            raise ValueError(f"{path}, line {number}: no row of JSON ({problem}); remove the line to go on")
        rows.append(row)
    last, _ = parse_row(cut_off)
    return rows if last is None else [*rows, last]


def parse_row(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """(the JSON object in a line, nothing), or (None, why it holds none)."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return None, str(error)
    return (row, "") if isinstance(row, dict) else (None, f"a {type(row).__name__} where an object must be")


def read_description(
    folder: Path, file: str, what: str, needed: Sequence[str] = (), hint: str | None = None
) -> dict[str, Any]:
    """The JSON file that says what a folder holds, with the keys `needed`.

    Raises ValueError where it is missing, damaged or of another version, with the way out where it is not to make `what` again.
    """
    hint = hint or f"make the {what} again"
    path = folder / file
    if not path.is_file():
        raise ValueError(f"{folder}: no {what} ({file} is missing)")
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: damaged ({error}); {hint}") from None
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        ours = f"latent-tokens {package_version()} reads format {FORMAT}"
        raise ValueError(f"{path}: format {found}, and {ours}; use the version that wrote it, or {hint}")
    lacking = [key for key in needed if key not in content]
    if lacking:
        raise ValueError(f"{path}: damaged (it has no {', '.join(lacking)}); {hint}")
    return dict(content)


def package_version() -> str:
    """The version of this package as it is installed."""
    try:
        return version("latent-tokens")
    except PackageNotFoundError:
        return "uninstalled"


def provenance() -> dict[str, Any]:
    """Versions and source commit (None outside a git checkout; '+' where files of the package differ from it)."""
    names = ("torch", "numpy", "numba", "accelerate")
    return {
        "latent_tokens": package_version(),
        "commit": source_commit(),
        "python": platform.python_version(),
        **{name: version(name) for name in names},
    }


@cache
def source_commit() -> str | None:
    """The commit of the checkout that this file stands in, when it was first asked for: code in memory stays as it was."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        if not git("ls-files", Path(__file__).name):
            return None
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def sha256_of(file: Path) -> str:
    """SHA-256 of a file's bytes."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def short_hash(content: bytes, digits: int) -> str:
    """So many hexadecimal digits of the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()[:digits]
