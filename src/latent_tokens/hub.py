"""Models of the Hugging Face Hub, fetched into a cache that is checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latent_tokens.checks import first_line

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
# Nothing that is executed
FILES = [
    *("config.json", "model.safetensors", "results.jsonl", "generation_config.json"),
    *TOKENIZER_FILES,
]
# Answers of a hub that is there: no such name, not yours to read
REFUSED = (400, 401, 403, 404, 410)


def is_name(name: str) -> bool:
    """Return whether a text is written like a name on the hub, OWNER/NAME."""
    return re.fullmatch(r"(?!\.)[\w.-]+/(?!\.)[\w.-]+", name) is not None


def ask_hub(
    name: str, file: str, revision: str | None = None, token: str | bool | None = None
) -> None:
    """Raise the error of huggingface_hub if the hub has no such file, or cannot be reached.

    This is one request. A download would retry for half a minute, and print a warning each time.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    get_hf_file_metadata(hf_hub_url(name, file, revision=revision), token=token)


def fetch(
    name: str,
    *,
    files: Sequence[str] = FILES,
    subfolder: str = "",
    revision: str | None = None,
    token: str | bool | None = None,
    local_files_only: bool = False,
    **options: Any,
) -> Path:
    """Return the directory of a name on the hub, or its last version if the hub is not reached.

    Args:
        name: OWNER/NAME.
        files: the names of what is fetched.
        subfolder: the directory of the repository that has them.
        revision, token, local_files_only: as `snapshot_download` of huggingface_hub has them.
        **options: its other settings.

    Raises:
        ValueError: neither exists. Without a network this is known at once.
    """
    from huggingface_hub import snapshot_download

    prefix = f"{subfolder.strip('/')}/" if subfolder else ""
    options |= {"revision": revision, "allow_patterns": [prefix + file for file in files]}
    reason = "it was not fetched before, and local_files_only=True"
    if not local_files_only:
        try:
            ask_hub(name, f"{prefix}config.json", revision, token)
            return Path(snapshot_download(name, token=token, **options))
        except Exception as error:  # of a hub or a network: anything
            reason = first_line(error)
            if getattr(getattr(error, "response", None), "status_code", None) in REFUSED:
                problem = "there is no such model, or you may not read it"
                raise ValueError(f"{problem}: {reason}") from None
    try:
        return Path(snapshot_download(name, local_files_only=True, **options))
    except Exception:
        raise ValueError(f"it cannot be reached: {reason}") from None
