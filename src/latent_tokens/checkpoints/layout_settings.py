"""Settings in config.json and the tokenizer of a published checkpoint: the native class, the method, MASK."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from latent_tokens.checkpoints.hub import TOKENIZER_FILES, check_links
from latent_tokens.checkpoints.layouts import PublishedLayout, Readout
from latent_tokens.checks import first_line, is_whole
from latent_tokens.core.method import METHODS, Method
from latent_tokens.network.hf import OWN_METHODS
from latent_tokens.storage import Json, json_bytes

# Entries of config.json that tell which code and files a model has. They do not describe the network.
ABOUT_CODE = (
    "model_type",
    "architectures",
    "auto_map",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "_name_or_path",
    "attn_implementation",
    "_attn_implementation",
)
CONFIG = "tokenizer_config.json"


def read_json(file: Path) -> dict[str, Json]:
    """Return the entries of a JSON file. Raise ValueError if it is missing or corrupt."""
    if not file.is_file():
        raise ValueError(f"{file}: not found. Name a directory that transformers wrote.")
    try:
        entries = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: corrupt ({first_line(error)}). Download it again.") from None
    if not isinstance(entries, dict):
        raise ValueError(f"{file}: corrupt (it is not an object). Download it again.")
    return entries


def native_settings(layout: PublishedLayout, config: Mapping[str, Json]) -> dict[str, Json]:
    """Return the settings of the native class.

    Raises:
        ValueError: an entry is missing, or has a value that the native class does not support.
    """
    for name, allowed in layout.required.items():
        if name in config and config[name] not in allowed:
            raise ValueError(
                f"config.json: {name}={config[name]!s:.80} is not supported by {layout.native[0]}. "
                f"It must be {' or '.join(map(str, allowed))}."
            )
    if config.get("quantization_config") is not None:
        quantization = str(config["quantization_config"])[:80]
        raise ValueError(
            f"config.json: quantization_config={quantization} is not supported. Use weights in bf16 or fp32."
        )
    entries = {name: value for name, value in config.items() if value is not None}
    for names in (*layout.needed, *(layout.settings or {}).values()):
        if not any(name in entries for name in names):
            raise ValueError(f"config.json: {names[0]} is missing. Download it again.")
    if layout.settings is None:
        return {name: value for name, value in config.items() if name not in ABOUT_CODE}
    return {
        native_name: next(entries[name] for name in names if name in entries)
        for native_name, names in layout.settings.items()
    }


def method_of(layout: PublishedLayout, config: Mapping[str, Json], readout: Readout) -> Method:
    """Return the method of a published model with a readout. Raise ValueError if its blocks are not known."""
    if layout.method == "mdm":
        return OWN_METHODS[readout]
    name = layout.method
    if name == "block-mdm":
        size = config.get("block_size")
        if not is_whole(size, 1):
            raise ValueError(
                f"config.json: block_size={size} is not a number of positions per block. "
                "Add the one that the model was trained with."
            )
        name = f"block-mdm-{size}"
    return replace(METHODS[name], readout=readout)


def named_mask(folder: Path, config: Mapping[str, Json]) -> int | str | None:
    """Return MASK as config.json or the tokenizer names it, as an id or a text, or None."""
    number = config.get("mask_token_id")
    if isinstance(number, int):
        return number
    token = tokenizer_config(folder).get("mask_token")
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def added_token_id(folder: Path, text: str) -> int | None:
    """Return the id of a token that tokenizer_config.json adds to the vocabulary, or None."""
    added = tokenizer_config(folder).get("added_tokens_decoder")
    for number, token in added.items() if isinstance(added, dict) else ():
        if isinstance(token, dict) and token.get("content") == text and number.isdecimal():
            return int(number)
    return None


def tokenizer_config(folder: Path) -> dict[str, Json]:
    """Return tokenizer_config.json, empty if it is missing. Raise ValueError if it is corrupt."""
    file = folder / CONFIG
    return read_json(file) if file.is_file() else {}


def copied_tokenizer(folder: Path) -> dict[str, bytes]:
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
