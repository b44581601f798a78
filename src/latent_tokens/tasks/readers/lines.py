"""Records of text files: lines, and lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from latent_tokens.tasks.base import Examples

T = TypeVar("T")
Record = tuple[str, Callable[[], Examples]]  # its location, and a function that reads it


def json_lines(path: Path, row: Callable[[str], Examples]) -> Iterator[Record]:
    """Yield one record per line that is not blank."""
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            yield f"line {number}", partial(row, line)


def json_fields(text: str, kind: type[T], *names: str) -> list[T]:
    """Return fields of one type of a JSON object. Raise ValueError if one is missing or of another type."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None
    for name in names:
        if not isinstance(content, dict) or not isinstance(content.get(name), kind):
            raise ValueError(f"must be an object with {' and '.join(names)}, {name} a {kind.__name__}")
    return [content[name] for name in names]


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file. Raise ValueError if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not text in UTF-8 ({error.reason} at byte {error.start})") from None
