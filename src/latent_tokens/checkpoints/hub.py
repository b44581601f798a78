"""Models of the Hugging Face Hub, fetched into a cache that is checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from latent_tokens.checks import ask_hub, first_line

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
# Nothing that is executed
FILES = ["config.json", "model.safetensors", "results.jsonl", *TOKENIZER_FILES]
# Answers of a hub that is there: no such name, not yours to read
REFUSED = (400, 401, 403, 404, 410)


def is_name(name: str) -> bool:
    """Return whether a text is written like a name on the hub, OWNER/NAME."""
    return re.fullmatch(r"(?!\.)[\w.-]+/(?!\.)[\w.-]+", name) is not None


def fetch(
    name: str,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    force_download: bool = False,
    files: Sequence[str] = FILES,
    subfolder: str = "",
) -> Path:
    """Return the directory of a name on the hub, or its last version if the hub is not reached.

    `files` are the names of what is fetched, in a subfolder of the repository if one is named.
    Raises ValueError if neither exists. Without a network it fails at once.
    """
    from huggingface_hub import snapshot_download

    prefix = f"{subfolder.strip('/')}/" if subfolder else ""
    patterns = [prefix + file for file in files]
    download = partial(
        snapshot_download, name, revision=revision, cache_dir=cache_dir, allow_patterns=patterns
    )
    reason = "it was not fetched before, and local_files_only=True"
    if not local_files_only:
        try:
            ask_hub(name, f"{prefix}config.json", revision, token)
            return Path(download(token=token, force_download=force_download))
        except Exception as error:  # of a hub or a network: anything
            reason = first_line(error)
            if getattr(getattr(error, "response", None), "status_code", None) in REFUSED:
                raise ValueError(
                    f"there is no such model, or you may not read it: {reason}"
                ) from None
    try:
        return Path(download(local_files_only=True))
    except Exception:
        raise ValueError(f"it cannot be reached: {reason}") from None


def check_links(folder: Path, names: Iterable[str]) -> None:
    """Raise ValueError if a file of a model directory is a link that leaves it.

    Otherwise a directory of someone else could have any file of this computer copied. The links of
    the hub's cache, to blobs of the same repository, are allowed.
    """
    resolved = folder.resolve()
    blobs = resolved.parent.parent / "blobs" if resolved.parent.name == "snapshots" else resolved
    for name in names:
        target = (folder / name).resolve()
        if not target.is_relative_to(resolved) and not target.is_relative_to(blobs):
            raise ValueError(
                f"{folder / name}: is a link to {target}, outside of the directory. "
                "Copy the file into it if it is meant"
            )
