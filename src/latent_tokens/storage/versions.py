"""The versions that wrote a file: of its format, of the packages and of the source code."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FORMAT = 1  # of every directory that this version writes
PACKAGE = Path(__file__).parents[1]
PACKAGES = ("torch", "numpy", "numba", "accelerate")


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
    # Read the file.
    hint = hint or f"Make the {what} again."
    path = folder / file
    if not path.is_file():
        raise ValueError(f"{folder}: no {what} ({file} is missing)")
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: corrupt ({error}). {hint}") from None

    # Check its format and its keys.
    stored = content.get("format") if isinstance(content, dict) else None
    if stored != FORMAT:
        ours = f"latent-tokens {package_version()} reads format {FORMAT}"
        raise ValueError(
            f"{path}: format {stored}, and {ours}. Use the version that wrote it. Otherwise: {hint}"
        )
    missing = [key for key in needed if key not in content]
    if missing:
        raise ValueError(f"{path}: corrupt ({', '.join(missing)} is missing). {hint}")
    return dict(content)


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
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        if not git("ls-files", "__init__.py"):
            return None
        commit = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}+" if changed else commit
