"""Hashes that tell whether bytes are those that were written."""

from __future__ import annotations

import hashlib
from pathlib import Path


def sha256_of(file: Path) -> str:
    """SHA-256 of a file's bytes."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def short_hash(content: bytes, digits: int) -> str:
    """So many hexadecimal digits of the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()[:digits]
