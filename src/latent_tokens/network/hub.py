"""The methods of `Transformer` for model directories and the Hugging Face Hub.

They load a package above this one when they are called.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch

HUB_METHODS = "latent_tokens.sharing.hub_methods"


def from_pretrained(
    folder_or_name: str | Path,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    force_download: bool = False,
) -> Any:
    """Return the model of a directory, a bundled model, or a model of the Hugging Face Hub, OWNER/NAME.

    It is on the CPU, in float32 and in eval mode.

    Args:
        folder_or_name: the directory or name.
        revision, token, cache_dir, local_files_only, force_download: as the hub's library defines them.

    Raises:
        ValueError: as `latent_tokens.from_pretrained`.

    Example:
        Transformer.from_pretrained("sudoku-6-scdm")
    """
    return import_module(HUB_METHODS).load_pretrained(
        folder_or_name, revision=revision, token=token, cache_dir=cache_dir,
        local_files_only=local_files_only, force_download=force_download,
    )  # fmt: skip


def save_pretrained(
    net: Any, folder: str | Path, *, dtype: torch.dtype | None = None, license: str | None = None,
    name: str | None = None,
) -> None:  # fmt: skip
    """Write a model directory with its card, README.md, which transformers opens too.

    Task, training and results are carried over from the directory that the network was read from. If its
    weights or its method have changed since, only the task is.

    Args:
        folder: the directory. A model in it is replaced.
        dtype: the precision on disk. None is that of the weights.
        license: the license that the card names, as spelled on the hub. None names no license.
        name: the name of the model on the card.

    Raises:
        ValueError: the network has no method, or the directory that it was read from is missing.
        OSError: the disk is full.

    Example:
        net.save_pretrained("models/six", dtype=torch.bfloat16)
    """
    import_module(HUB_METHODS).save_pretrained(net, folder, dtype=dtype, license=license, name=name)


def push_to_hub(
    net: Any, name: str, *, dtype: torch.dtype | None = None, license: str | None = None,
    private: bool | None = None, token: str | bool | None = None, branch: str | None = None,
    create_pr: bool = False, commit_message: str = "A model of latent-tokens",
) -> str:  # fmt: skip
    """Save the model as OWNER/NAME on the Hugging Face Hub in one commit, and return its address.

    Args:
        name: OWNER/NAME on the hub.
        dtype, license: as those of `save_pretrained`.
        private, token, branch, create_pr, commit_message: as the library of the hub defines them.

    Raises:
        ValueError: the hub refuses it or cannot be reached.

    Example:
        net.push_to_hub("me/six", private=True)
    """
    address: str = import_module(HUB_METHODS).push_to_hub(
        net, name, dtype=dtype, license=license, private=private, token=token, branch=branch,
        create_pr=create_pr, commit_message=commit_message,
    )  # fmt: skip
    return address
