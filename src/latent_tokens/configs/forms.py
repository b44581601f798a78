"""Settings in the forms that callers write: text for a path, a list or one value for a tuple."""

from __future__ import annotations

from os import PathLike
from pathlib import Path


def set_paths(config: object, *names: str) -> None:
    """Replace text by a path in fields of a frozen config.

    Raises:
        ValueError: a value is neither None, nor a path or its text.
    """
    for name in names:
        value = getattr(config, name)
        if isinstance(value, str | PathLike):
            object.__setattr__(config, name, Path(value))
        elif value is not None:
            raise ValueError(f"{name}={value}: must be a path.")


def set_texts(config: object, *names: str) -> None:
    """Replace a path by its text in fields of a frozen config that take a name, too.

    Raises:
        ValueError: a value is neither None, nor text or a path.
    """
    for name in names:
        value = getattr(config, name)
        check_folder_or_name(name, value)
        if value is not None:
            object.__setattr__(config, name, str(value))


def check_folder_or_name(name: str, value: object) -> None:
    """Raise ValueError unless a value is None, a path or text."""
    if value is not None and not isinstance(value, str | PathLike):
        raise ValueError(f"{name}={type(value).__name__}: must be a directory or a name.")


def set_tuple(config: object, name: str) -> None:
    """Replace a list, or one value, by a tuple in a field of a frozen config. None stays."""
    value = getattr(config, name)
    if isinstance(value, list):
        object.__setattr__(config, name, tuple(value))
    elif value is not None and not isinstance(value, tuple):
        object.__setattr__(config, name, (value,))
