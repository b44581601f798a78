"""Model directories of `transformers`, by path or by name on the hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from latent_tokens.checkpoints.finding import find
from latent_tokens.checkpoints.hub import fetch
from latent_tokens.checkpoints.layout_settings import added_token_id, method_of, named_mask, read_json
from latent_tokens.checkpoints.layout_weights import read_native
from latent_tokens.checkpoints.layouts import LAYOUTS, PublishedLayout, Readout, layout_of
from latent_tokens.checks import first_line
from latent_tokens.network.hf import FAMILIES, HuggingFaceDenoiser
from latent_tokens.storage import Json

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FILES = ("*.json", "*.safetensors")  # what is fetched: nothing that could be executed
PUBLISHED = {layout.model_type for layout in LAYOUTS}


def from_transformers(
    folder_or_name: str | Path,
    mask_token: int | str | None = None,
    readout: Literal["in_place", "left", "shifted"] | None = None,
) -> HuggingFaceDenoiser:
    """Return the language model of a directory that `transformers` wrote, or of a name on the hub.

    It is on the CPU, in float32 and in eval mode. Code in the directory is never run: the architecture must
    be one of `transformers` itself, or that of a published masked diffusion model which equals one: LLaDA,
    Dream, Open-dCoder, WeDLM, SDAR, Tiny-A2D, DiffuGPT or ModernBERT-chat. Such a model has its own method.

    Args:
        folder_or_name: the directory, or OWNER/NAME.
        mask_token: MASK, as an id or as the text of a token in tokenizer.json. "new" adds a row to the
            embeddings. None: that of a published masked diffusion model.
        readout: that of `HuggingFaceDenoiser`. A shifted one has no MASK, so `mask_token` is "new". None:
            that of the published model, else "in_place".

    Raises:
        ValueError: transformers is not installed, the directory is missing, incomplete or not supported, or
            it has no such token.

    Example::

        net = from_transformers("Qwen/Qwen2.5-0.5B", "<|fim_pad|>")
        net = from_transformers("GSAI-ML/LLaDA-8B-Base")
    """
    check_installed(folder_or_name)
    folder = find(folder_or_name, partial(fetch, files=FILES))
    config, layout = published_layout(folder)
    if mask_token is None and "format" in config:  # its method and MASK are in config.json
        raise written_here(folder)
    if layout is None or readout == "shifted" or (layout.only_with_mask and mask_token is not None):
        if mask_token is None:
            raise ValueError(
                f"{folder}: is not a published masked diffusion model, and names no MASK. "
                "Set mask_token to the id or text of a token, or to 'new'."
            )
        mask_id = None if mask_token == "new" else mask_id_of(folder, mask_token)
        return HuggingFaceDenoiser(read_model(folder), mask_id, readout or "in_place").eval()
    return published_network(folder, config, layout, mask_token, readout)


def is_language_model(folder: Path) -> bool:
    """Return whether config.json of a directory is of a published layout, or of a family of transformers."""
    if not folder.is_dir():
        return False
    try:
        kind = kind_of(folder)
    except ValueError:
        return False
    return kind in FAMILIES or kind in PUBLISHED


def kind_of(folder: Path) -> str:
    """Return `model_type` of config.json in a directory. Raise ValueError if that is missing or corrupt."""
    return str(read_json(folder / "config.json").get("model_type")).lower()


def published_layout(folder: Path) -> tuple[dict[str, Json], PublishedLayout | None]:
    """Return config.json of a directory, and its layout if that is a published one.

    Raises:
        ValueError: config.json is missing or corrupt.
    """
    config = read_json(folder / "config.json")
    return config, layout_of(config, names_mask=named_mask(folder, config) is not None)


def published_network(
    folder: Path,
    config: Mapping[str, Json],
    layout: PublishedLayout,
    mask_token: int | str | None = None,
    readout: Readout | None = None,
    dtype: torch.dtype | None = torch.float32,
) -> HuggingFaceDenoiser:
    """Return the network of a published masked diffusion model, with its method.

    Args:
        folder: its directory.
        config: the entries of its config.json.
        layout: its layout.
        mask_token: as of `from_transformers`.
        readout: as of `from_transformers`.
        dtype: the precision. None: that of the files.

    Raises:
        ValueError: a file or MASK is missing, or the model is not supported.
    """
    readout = readout or layout.readout
    try:
        method = method_of(layout, config, readout)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    mask = mask_token if mask_token is not None else named_mask(folder, config)
    mask = layout.mask_id if mask is None else mask
    if mask is None:
        raise ValueError(f"{folder}: names no MASK. Set mask_token to its id or text.")
    mask_id = None if mask == "new" else mask_id_of(folder, mask)
    net = HuggingFaceDenoiser(read_native(folder, layout, config, dtype), mask_id, readout)
    net.method = method
    return net.eval()


def check_installed(name: str | Path) -> None:
    """Raise ValueError, with the name of a model, if transformers is not installed."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise ValueError(
            f"{name}: transformers is not installed. Install it from a clone (pip install -e '.[text]')."
        ) from None


def written_here(folder: Path) -> ValueError:
    """Return the error for a directory of this package, which has its own reader."""
    return ValueError(f"{folder}: was written by latent_tokens. Open it with load({str(folder)!r}).")


def is_of_transformers(folder: Path) -> bool:
    """Return whether a directory was written by transformers, and not by this package."""
    return "model_type" in entries_of(folder) and not is_ours(folder)


def is_ours(folder: Path) -> bool:
    """Return whether a directory was written by this package."""
    return "format" in entries_of(folder)


def entries_of(folder: Path) -> dict[str, Json]:
    """Return the entries of config.json in a directory, or none if that is missing or corrupt."""
    try:
        return read_json(folder / "config.json")
    except ValueError:
        return {}


def mask_id_of(folder: Path, mask_token: int | str, name: str = "mask_token") -> int:
    """Return the id of a token. Raise ValueError if the tokenizer of the directory has no such token.

    `name` is the setting that names the token.
    """
    if isinstance(mask_token, int):
        return mask_token
    added = added_token_id(folder, mask_token)
    if added is not None:
        return added
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ValueError(f"{name}={mask_token}: {file} is missing. Use the id of the token, or {name}='new'.")
    try:
        mask_id: int | None = Tokenizer.from_file(str(file)).token_to_id(mask_token)
    except Exception as error:  # the type that tokenizers raises
        raise ValueError(f"{file}: corrupt ({first_line(error)}). Copy it again.") from None
    if mask_id is None:
        raise ValueError(f"{name}={mask_token}: not a token of {file}. Use a reserved one, or {name}='new'.")
    return mask_id


def check_is_native(folder: Path) -> None:
    """Raise ValueError if a directory is of a published layout with code of its own, or of this package."""
    config = read_json(folder / "config.json")
    kind = kind_of(folder)
    if kind in PUBLISHED and kind not in FAMILIES:
        problem = "is a published masked diffusion model, which has code of its own"
        raise ValueError(f"{folder}: {problem}. Convert it (latent-tokens import {folder} DIR), and use DIR.")
    if "format" in config and kind not in FAMILIES:
        raise written_here(folder)


def read_model(folder: Path) -> PreTrainedModel:
    """Return the language model of a directory in float32.

    Raises:
        ValueError: a file is missing or corrupt, or a weight is, or the model has code of its own.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    check_is_native(folder)
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
