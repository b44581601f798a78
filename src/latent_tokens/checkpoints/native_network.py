"""Model directories that `transformers` opens too. Our entries are in its config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

import torch

from latent_tokens.checkpoints.description import KINDS, check_about
from latent_tokens.checkpoints.hub import check_links
from latent_tokens.checkpoints.hugging_face import check_installed, read_model
from latent_tokens.checkpoints.layout_settings import tokenizer_config
from latent_tokens.checkpoints.stored_methods import method_from, method_to
from latent_tokens.checks import check_int, first_line
from latent_tokens.network.hf import HuggingFaceDenoiser
from latent_tokens.storage import FORMAT, Json, atomic_directory, json_bytes

TRANSFORMERS = "transformers"  # the network of config.json
LARGEST_FILE = "50GB"
CONFIG = "tokenizer_config.json"
TOKENIZER_FILES = ("tokenizer.json", CONFIG, "special_tokens_map.json", "chat_template.jinja")


def save_native(
    net: HuggingFaceDenoiser,
    folder: Path,
    *,
    about: Mapping[str, Json],
    beside: Mapping[str, bytes],
    dtype: torch.dtype | None = None,
) -> None:
    """Write a model directory, all of it or nothing. Weights of more than 50 GB are several files.

    Args:
        net: the network, which is changed to `dtype`.
        folder: the directory. It must be missing or empty.
        about: further entries of config.json.
        beside: other files by name.
        dtype: the precision of the weights. None: that of the network.

    Raises:
        ValueError: the method cannot be saved.
        OSError: the disk is full.
    """
    entries: dict[str, Json] = {
        "format": FORMAT,
        "model": {
            "network": TRANSFORMERS,
            "class": type(net.model).__name__,
            "readout": net.readout,
            "vocab_size": net.vocab_size,
            "max_length": net.max_length,
            "mask_id": net.mask_id,
        },
        "method": method_to(net.method),
        **about,
    }
    with atomic_directory(folder) as unfinished:
        net.to(dtype or net.model.dtype)
        net.model.save_pretrained(unfinished, max_shard_size=LARGEST_FILE)
        config = unfinished / "config.json"
        config.write_bytes(json_bytes({**json.loads(config.read_bytes()), **entries}))
        for name, content in beside.items():
            (unfinished / name).write_bytes(content)


def is_native(config: Mapping[str, Json]) -> bool:
    """Return whether config.json is that of a directory that `save_native` wrote."""
    model = config.get("model")
    return isinstance(model, Mapping) and model.get("network") == TRANSFORMERS


def open_native(config: Mapping[str, Json], folder: Path) -> HuggingFaceDenoiser:
    """Return the network of a directory that `save_native` wrote, in eval mode and float32.

    Raises:
        ValueError: transformers is not installed, or the directory is incomplete or corrupt.
    """
    check_installed(folder)
    entry = config["model"]
    stored = config.get("method")
    if not isinstance(entry, Mapping) or not isinstance(stored, Mapping):
        raise ValueError(f"{folder / 'config.json'}: corrupt (it has no method). Save the model again.")
    model = read_model(folder)
    numbers = cast(Mapping[str, int], entry)
    try:
        net = HuggingFaceDenoiser(
            model, numbers["mask_id"], cast(Literal["in_place", "left"], entry["readout"])
        )
        for name in ("vocab_size", "max_length"):
            check_int(name, numbers[name], 1)
            setattr(net, name, numbers[name])
        net.method = method_from(stored)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder / 'config.json'}: corrupt ({first_line(error)}). Save the model again."
        ) from None
    net.folder = folder.absolute()
    return net.eval()


def carried_over(folder: Path, config: Mapping[str, Json]) -> tuple[dict[str, Json], dict[str, bytes]]:
    """Return the entries of config.json on the origin of a model, and its tokenizer's files by name.

    Raises:
        ValueError: an entry or a file is corrupt, or a file is a link that leaves the directory.
    """
    about = {name: config[name] for name in KINDS if name in config}
    check_about(about, folder / "config.json")
    return about, tokenizer_files(folder)


def tokenizer_files(folder: Path) -> dict[str, bytes]:
    """Return the files of the tokenizer in a directory by name, without references to code.

    Raises:
        ValueError: a file is corrupt, or a link that leaves the directory.
    """
    check_links(folder, TOKENIZER_FILES)
    files = {name: (folder / name).read_bytes() for name in TOKENIZER_FILES if (folder / name).is_file()}
    if CONFIG in files:
        config = tokenizer_config(folder)
        files[CONFIG] = json_bytes({name: value for name, value in config.items() if name != "auto_map"})
    return files
