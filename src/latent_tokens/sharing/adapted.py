"""A trained network of `transformers` as a model directory that transformers opens by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import torch
from safetensors import SafetensorError
from torch import nn

from latent_tokens.checkpoints.adapted import is_for_transformers, of_transformers
from latent_tokens.checkpoints.layout_settings import copied_tokenizer
from latent_tokens.checkpoints.pretrained import describe
from latent_tokens.checks import first_line
from latent_tokens.network.hf import HuggingFaceDenoiser, merged
from latent_tokens.storage import Json, json_bytes, read_description, write_atomic


def write_for_transformers(
    net: HuggingFaceDenoiser,
    folder: Path,
    about: Mapping[str, Json],
    beside: Mapping[str, bytes],
    dtype: torch.dtype | None,
) -> None:
    """Write the weights, with an adapter merged, and one config.json for transformers and this package.

    Args:
        net: the network.
        folder: the directory.
        about: entries that are added to config.json.
        beside: other files by name.
        dtype: the precision on disk. None is that of the network.

    Raises:
        OSError: the disk is full.
    """
    description = {**describe(net), "model": without_weights(net), **about}

    # Transformers writes its files beside the final ones, as /tmp can be small.
    model = merged(net)
    cast(nn.Module, model).to(dtype or model.dtype)
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".") as temporary:
        try:
            model.save_pretrained(temporary, max_shard_size="1TB")
        except SafetensorError as error:
            problem = f"cannot be written ({first_line(error)})"
            raise OSError(f"{folder}: {problem}. Free some space, then run the same command again") from None
        files = {file.name: file.read_bytes() for file in Path(temporary).iterdir()}

    # Add what this package needs.
    config = {**of_transformers(json.loads(files.pop("config.json"))), **description}
    others = {folder / name: content for name, content in {**files, **beside}.items()}
    write_atomic({**others, folder / "config.json": json_bytes(config)})


def copied_tokenizer_of(net: HuggingFaceDenoiser) -> dict[str, bytes] | None:
    """Return the tokenizer's files in the directory of a network, by name, or None if it is a run.

    An imported model keeps the tokenizer of its authors, with their special tokens and chat template.
    """
    if net.folder is None or not is_for_transformers(read_description(net.folder, "config.json", "model")):
        return None
    return copied_tokenizer(net.folder)


def without_weights(net: HuggingFaceDenoiser) -> dict[str, Json]:
    """Return the entry of config.json for a directory that transformers opens: what that does not know."""
    names = ("network", "class", "readout", "vocab_size", "max_length", "mask_id")
    entry = describe(net)["model"]
    assert isinstance(entry, dict)
    return {name: entry[name] for name in names}
