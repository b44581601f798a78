"""Files that are whole or not there: written beside, flushed, renamed. And what made them."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FORMAT = 1  # of every folder that this version writes


def write_whole(contents: dict[Path, bytes]) -> None:
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
        raise OSError(f"{path}: cannot be written ({error.strerror}); what stood there before is whole") from error
    finally:
        for left in beside.values():
            left.unlink(missing_ok=True)


def half_written(folder: Path) -> list[Path]:
    """What `write_whole` had begun in a folder when its process was killed."""
    return [path for path in folder.glob(".*") if re.fullmatch(r"\..+\.\d+", path.name)]


def put_back(contents: dict[Path, bytes]) -> None:
    """Writes those that are not there, or not as they should be. Raises OSError as `write_whole` does."""
    wrong = {path: content for path, content in contents.items() if not path.is_file() or path.read_bytes() != content}
    if wrong:
        write_whole(wrong)


def flush_folder(folder: Path) -> None:
    """Makes the names in a folder last through a loss of power, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def unfinished(folder: Path) -> Iterator[Path]:
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
        raise OSError(f"{folder}: cannot be written ({error.strerror or error}); nothing of it is left") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
        with suppress(OSError):  # stops at the first that is not empty
            for parent in missing:
                parent.rmdir()


def json_bytes(content: dict[str, Any]) -> bytes:
    """The file that holds `content` as JSON."""
    return (json.dumps(content, indent=1) + "\n").encode()


def append_line(path: Path, row: dict[str, Any]) -> None:
    """Adds one row to a .jsonl file. Raises OSError naming the file."""
    try:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
    except OSError as error:
        raise OSError(f"{path}: no row can be added ({error.strerror})") from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a .jsonl file; none where it is missing. A last line that was cut off is left out.

    Raises ValueError naming any other line that cannot be read.
    """
    try:
        lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: damaged ({error}); remove it to go on") from None
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"a {type(row).__name__} where an object must be")
        except (ValueError, RecursionError) as error:
            if number < len(lines) or line.endswith("\n"):
                raise ValueError(f"{path}, line {number}: no row of JSON ({error}); remove the line to go on") from None
        else:
            rows.append(row)
    return rows


def read_description(folder: Path, file: str, what: str, needed: Sequence[str] = (), way_out: str | None = None) -> dict[str, Any]:
    """The JSON file that says what a folder holds, with the keys `needed`.

    Raises ValueError where it is missing, damaged or of another version, with the way out where it is not to make `what` again.
    """
    way_out = way_out or f"make the {what} again"
    path = folder / file
    if not path.is_file():
        raise ValueError(f"{folder}: no {what} ({file} is missing)")
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: damaged ({error}); {way_out}") from None
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        ours = f"latent-tokens {package_version()} reads format {FORMAT}"
        raise ValueError(f"{path}: format {found}, and {ours}; use the version that wrote it, or {way_out}")
    lacking = [key for key in needed if key not in content]
    if lacking:
        raise ValueError(f"{path}: damaged (it has no {', '.join(lacking)}); {way_out}")
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
