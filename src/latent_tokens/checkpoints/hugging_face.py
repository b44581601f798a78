"""Model directories of `transformers`, by path or by name on the hub."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from latent_tokens.checkpoints.finding import find
from latent_tokens.checkpoints.hub import fetch
from latent_tokens.checks import first_line
from latent_tokens.network.hf import HuggingFaceDenoiser

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FILES = ("*.json", "*.safetensors")  # what is fetched: nothing that could be executed


def from_transformers(
    folder_or_name: str | Path,
    mask_token: int | str,
    readout: Literal["in_place", "left", "shifted"] = "in_place",
) -> HuggingFaceDenoiser:
    """Return the language model of a directory that `transformers` wrote, or of a name on the hub.

    It is on the CPU, in float32 and in eval mode. Code in the directory is never run: the architecture must
    be one of `transformers` itself.

    Args:
        folder_or_name: the directory, or OWNER/NAME.
        mask_token: MASK, as an id or as the text of a token in tokenizer.json. "new" adds a row to the
            embeddings.
        readout: that of `HuggingFaceDenoiser`. A shifted one has no MASK, so `mask_token` is "new".

    Raises:
        ValueError: transformers is not installed, the directory is missing, incomplete or not supported, or
            it has no such token.

    Example::

        net = from_transformers("Qwen/Qwen2.5-0.5B", "<|fim_pad|>")
    """
    check_installed(str(folder_or_name))
    folder = find(folder_or_name, partial(fetch, files=FILES))
    mask_id = None if mask_token == "new" else mask_id_of(folder, mask_token)
    return HuggingFaceDenoiser(read_model(folder), mask_id, readout).eval()


def check_installed(name: str) -> None:
    """Raise ValueError, which names what needs it, if transformers is not installed."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise ValueError(
            f"{name}: transformers is not installed. Install it from a clone (pip install -e '.[text]')."
        ) from None


def is_of_transformers(folder: Path) -> bool:
    """Return whether a directory was written by transformers, and not by this package."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and "model_type" in config and "format" not in config


def mask_id_of(folder: Path, mask_token: int | str) -> int:
    """Return the id of a token. Raise ValueError if the tokenizer of the directory has no such token."""
    if isinstance(mask_token, int):
        return mask_token
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ValueError(
            f"mask_token={mask_token}: {file} is missing. Use the id of the token, or mask_token='new'."
        )
    try:
        mask_id: int | None = Tokenizer.from_file(str(file)).token_to_id(mask_token)
    except Exception as error:  # the type that tokenizers raises
        raise ValueError(f"{file}: corrupt ({first_line(error)}). Copy it again.") from None
    if mask_id is None:
        raise ValueError(
            f"mask_token={mask_token}: not a token of {file}. Use a reserved one, or mask_token='new'."
        )
    return mask_id


def read_model(folder: Path) -> PreTrainedModel:
    """Return the language model of a directory in float32.

    Raises:
        ValueError: a file is missing or corrupt, or a weight is.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        names: Sequence[str] = config.architectures or ()
        is_masked = any(name.endswith("ForMaskedLM") for name in names)
        reader: Any = AutoModelForMaskedLM if is_masked else AutoModelForCausalLM
        model: PreTrainedModel
        model, report = reader.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:  # of files that others wrote: anything
        raise ValueError(f"{folder}: cannot be read ({first_line(error)}). Download it again.") from None
    missing = sorted(report["missing_keys"])
    if missing:
        raise ValueError(f"{folder}: incomplete, {missing[0]} is missing. Download it again.")
    return model
