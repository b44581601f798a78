"""Files that are complete or missing, rows that survive a crash, and versions."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from latent_tokens.checks import check_out

if TYPE_CHECKING:
    from filelock import BaseFileLock

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

FORMAT = 1  # of every directory that this version writes
PACKAGE = Path(__file__).parent
PACKAGES = ("torch", "numpy", "numba", "accelerate")

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]
"""A value of JSON."""


def write_atomic(contents: dict[Path, bytes]) -> None:
    """Write each content to its path: no file is half written, and none is renamed before all are on disk.

    Raises:
        OSError: a file cannot be written, for example on a full disk. Then the files from before
            are unchanged.

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
    """Write the files that are missing or differ. Raise OSError as `write_atomic`."""
    changed = {
        path: content
        for path, content in contents.items()
        if not path.is_file() or path.read_bytes() != content
    }
    if changed:
        write_atomic(changed)


def flush_folder(folder: Path) -> None:
    """Flush the names in a directory to the disk, so that they survive a loss of power."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def atomic_directory(folder: Path) -> Iterator[Path]:
    """Yield a temporary directory that is renamed to `folder` if the block ends without an error.

    What an earlier attempt left is removed first. One process at a time is in the block.

    Raises:
        OSError: `folder` cannot be written. Nothing of it is left.
        ValueError: `folder` is not empty.

    Example:
        with atomic_directory(Path("data/four")) as unfinished:
            (unfinished / "train.tokens.npy").write_bytes(content)
    """
    from filelock import FileLock

    target = folder.resolve()  # of a link, such as one to a larger disk
    unfinished = target.with_name(f".{target.name}.unfinished")
    new_parents = [parent for parent in target.parents if not parent.exists()]
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        Path(lock.lock_file).touch()  # raises where acquire would try again without end
        lock.acquire()
        check_out(folder)  # another process may have written it meanwhile
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        yield unfinished
        if target.is_dir():
            target.rmdir()  # an empty target is replaced
        unfinished.rename(target)
    except OSError as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        problem = f"cannot be written ({cause.strerror or cause}), and nothing of it is left"
        raise OSError(f"{folder}: {problem}. {hint_for(cause)}") from error
    finally:
        # Remove what is not renamed, and the parents that were created for it.
        if lock.is_locked:
            shutil.rmtree(unfinished, ignore_errors=True)
            release(lock)
        remove_empty(new_parents)


def release(lock: BaseFileLock) -> None:
    """Release a lock and remove its file, with the lock, so that a waiting process sees it removed."""
    with suppress(OSError):
        Path(lock.lock_file).unlink()
    lock.release()


def create_directory(folder: Path) -> None:
    """Create a directory and its parents, if missing.

    Raises:
        OSError: it cannot be created, or not be written.

    Example:
        create_directory(Path("runs/four"))
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"{folder}: cannot be created ({error.strerror})"
        raise OSError(f"{problem}. {hint_for(error)}") from error
    if not os.access(folder, os.W_OK):
        raise OSError(f"{folder}: cannot be written. Make it writable, or use another directory.")


def remove_empty(folders: Sequence[Path]) -> None:
    """Remove directories, innermost first, up to the first that is not empty."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def hint_for(error: OSError) -> str:
    """Return how to fix a file that cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space, then run the same command again"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "Make the directory writable, or use another"
    return "See that the directory is there and can be written"


@contextmanager
def readable(source: Path) -> Iterator[None]:
    """Raise ValueError instead of OSError in the block, so that it is not taken for a failed write.

    Example:
        with readable(path):
            text = path.read_text()
    """
    try:
        yield
    except OSError as error:
        raise ValueError(f"{source}: cannot be read ({error.strerror or error})") from None


def append_line(path: Path, row: Mapping[str, object]) -> None:
    """Append one row to a .jsonl file, and flush it to the disk.

    A last line that a crash or a full disk cut off is removed first. Other processes wait.

    Raises:
        OSError: the row cannot be written. The file is as it was.

    Example:
        append_line(Path("run/metrics.jsonl"), {"step": 50, "loss": 1.25})
    """
    line = (json.dumps(row) + "\n").encode()
    try:
        with path.open("a+b", buffering=0) as file:
            if fcntl is not None:
                with suppress(OSError):  # a file system without locks
                    fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed
            start, newline = end_of_rows(path)
            file.truncate(start)
            try:
                content = newline + line
                while content:  # one call writes a part of it on a disk that is nearly full
                    content = content[file.write(content) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(start)
                raise
    except OSError as error:
        problem = (
            f"the row cannot be written ({error.strerror}), and the rows before it are complete"
        )
        raise OSError(f"{path}: {problem}. {hint_for(error)}") from error


def end_of_rows(path: Path) -> tuple[int, bytes]:
    """Return (the length of a .jsonl file without a cut-off row, the newline that it lacks)."""
    content = path.read_bytes()
    last_line = content[content.rfind(b"\n") + 1 :]
    is_complete = parse_row(last_line) is not None
    return (len(content), b"\n") if is_complete else (len(content) - len(last_line), b"")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a .jsonl file, without a cut-off last one. A missing file has none.

    Raises:
        ValueError: another line cannot be read.
    """
    lines = path.read_bytes().split(b"\n") if path.is_file() else [b""]
    rows = [parse_row(line) for line in lines]
    if None in rows[:-1]:
        problem = "is not a row of JSON. Remove the line to continue"
        raise ValueError(f"{path}, line {rows.index(None) + 1}: {problem}")
    return [row for row in rows if row is not None]


def parse_row(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line, or None if it has none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def json_bytes(content: Mapping[str, Json]) -> bytes:
    """Return the content of a JSON file."""
    return (json.dumps(content, indent=1) + "\n").encode()


TRAIN = "Name a run directory, or train one with latent-tokens train."
IF_MISSING = {
    "model": TRAIN,
    "run": TRAIN,
    "run to resume": "Use resume=auto, which starts it.",
    "data set": "Make one with latent-tokens data, in Python with make_data.",
}


DirectoryKind = Literal[
    "missing",
    "rows",
    "file",
    "model",
    "transformers",
    "others",
    "corrupt",
    "data",
    "results",
    "folder",
]


def kind_of(path: Path) -> DirectoryKind:
    """Return what a path is, by the names of its files and the entries of config.json.

    * `missing`: nothing.
    * `rows`: a file of result rows, .jsonl. `file`: another file, such as a checkpoint or a puzzle.
    * `model`: a directory that this package wrote, of a run or a saved model.
    * `transformers`: a directory that transformers wrote, or that has a published layout.
    * `others`: a directory with another config.json, such as an exported Eso-LM checkpoint.
    * `corrupt`: a directory whose config.json is no JSON object.
    * `data`: a data set. `results`: rows without a model. `folder`: any other directory.
    """
    if not path.is_dir():
        suffix: DirectoryKind = "rows" if path.suffix == ".jsonl" else "file"
        return suffix if path.exists() else "missing"
    if (path / "config.json").is_file():
        try:
            entries = dict(json.loads((path / "config.json").read_bytes()))
        except (ValueError, TypeError, RecursionError, OSError):
            return "corrupt"
        if "format" in entries:
            return "model"
        return "transformers" if "model_type" in entries else "others"
    if (path / "manifest.json").is_file():
        return "data"
    return "results" if (path / "results.jsonl").is_file() else "folder"


def read_description(
    folder: Path, file: str, what: str, needed: Sequence[str] = (), hint: str | None = None
) -> dict[str, Any]:
    """Return the JSON file that describes a directory.

    Args:
        folder: the directory.
        file: the name of the JSON file.
        what: the content of the directory, for the message.
        needed: the keys that it must have.
        hint: how to fix a corrupt file, a sentence. None: to make `what` again.

    Raises:
        ValueError: the file is missing, corrupt or of another format.

    Example:
        read_description(Path("runs/four"), "config.json", "model", needed=("task",))
    """
    hint = hint or f"Make the {what} again."
    path = folder / file
    if not path.is_file():
        raise ValueError(f"{folder}: no {what} ({file} is missing). {IF_MISSING[what]}")
    try:
        content = json.loads(path.read_text())
        stored = content.get("format")
    except (ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: corrupt ({error}). {hint}") from None
    if stored != FORMAT:
        ours = f"latent-tokens {package_version()} reads format {FORMAT}"
        raise ValueError(
            f"{path}: format {stored}, and {ours}. Use the version that wrote it, or: {hint}"
        )
    missing = [key for key in needed if key not in content]
    if missing:
        raise ValueError(f"{path}: corrupt ({', '.join(missing)} is missing). {hint}")
    return dict(content)


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def short_hash(content: bytes, digits: int) -> str:
    """Return the first hexadecimal digits of the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()[:digits]


def package_version() -> str:
    """Return the installed version of this package."""
    try:
        return version("latent-tokens")
    except PackageNotFoundError:
        return "uninstalled"


def provenance() -> dict[str, str | None]:
    """Return the versions of the packages and the source commit, as `source_commit` returns it."""
    return {
        "latent_tokens": package_version(),
        "commit": source_commit(),
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


@cache
def source_commit() -> str | None:
    """Return the git commit of this package, with a "+" if its files differ from it.

    None outside a git checkout. It is read once: code in memory does not change later.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(PACKAGE), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        if not git("ls-files", "__init__.py"):
            return None
        commit = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}+" if changed else commit
