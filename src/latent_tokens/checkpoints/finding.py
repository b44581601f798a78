"""Model directories by name: a directory, a bundled model or a model of the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from latent_tokens.checkpoints.hub import fetch, is_name
from latent_tokens.checks import did_you_mean

SHIPPED = Path(__file__).parents[1] / "shipped"


def shipped_names() -> list[str]:
    """Return the names of the bundled models."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/config.json"))


def find(folder_or_name: str | Path, fetched: Callable[[str], Path] = fetch) -> Path:
    """Return the directory of a name, fetched if it is OWNER/NAME. Raise ValueError if missing."""
    folder = Path(folder_or_name)
    name = str(folder_or_name)
    if folder.is_dir():
        return folder
    if name in shipped_names():
        return SHIPPED / name
    bundled = shipped_names()
    missing = f"{name!r} not found: not a run directory, not a bundled model ({', '.join(bundled) or 'none'})"
    if not is_name(name):
        raise ValueError(f"{missing}{did_you_mean(name, bundled)}")
    try:
        return fetched(name)
    except ValueError as error:
        raise ValueError(f"{missing}, and not on the Hugging Face Hub ({error})") from None
