"""Models of transformers as networks, and directories of networks that were adapted from one.

The functions that open a model, the lowest first. Each calls only those above it.

* `read_model`: a directory of transformers as the class that it names.
* `published_network`: a directory of a published layout, with its method.
* `from_transformers`: either of both as a denoiser, by directory or name.
* `build_hf_run`: a network that was adapted, without its trained weights, to resume its run.
* `open_hf_run`: the same with its weights and method.
* `hf.directory.from_pretrained`: any directory of this package, by directory or name.
* `hf.directory.open_models`: several of them, of a method whose name was typed.
* `harness.text_model.open_model`: a language model with the tokens of its text, also of transformers.
* `model.load`: a model with its task, on the fastest device.

`LatentTokensForMaskedLM.from_pretrained` is that of transformers. `checkpoints.published` has
`import_checkpoint` for Eso-LM and MDLM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from safetensors import SafetensorError

from latent_tokens.checkpoints.files import (
    OF_THE_RUN,
    Entries,
    corrupt_file,
    find,
    load_weights,
    read_json,
    read_tensor_file,
    tensors_sha256,
)
from latent_tokens.checkpoints.stored_methods import method_from
from latent_tokens.checks import check_choice, check_int, check_package, first_line
from latent_tokens.hf.adapting import add_lora, freeze_embeddings
from latent_tokens.hf.language_models import FAMILIES, Adapter, HuggingFaceDenoiser
from latent_tokens.hf.layouts import (
    LAYOUTS,
    PublishedLayout,
    Readout,
    added_token_id,
    layout_method,
    layout_of,
    model_type_of,
    named_mask,
    read_native,
)
from latent_tokens.hub import fetch
from latent_tokens.storage import Json

if TYPE_CHECKING:
    from transformers import PreTrainedModel


TRANSFORMERS = "transformers"  # the network of config.json
BASE_FILES = ("*.json", "*.safetensors")  # what is fetched: nothing that could be executed
PUBLISHED = {layout.model_type for layout in LAYOUTS}
MODEL_TYPES = {*PUBLISHED, *FAMILIES}
# Entries of config.json that are not of a config of transformers
OF_THIS_PACKAGE = (*OF_THE_RUN, "format", "model", "method")
OF_HF_FUNCTION = (
    "num_attention_heads", "n_head", "num_key_value_heads", "head_dim", "hidden_act", "hidden_activation",
    "activation_function", "rope_parameters", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon",
    "norm_eps", "sliding_window", "layer_types", "local_attention", "no_rope_layers", "query_pre_attn_scalar",
)  # fmt: skip
"""Entries of a config of transformers that change what equal weights compute."""
UNREADABLE = (KeyError, TypeError, AttributeError, RuntimeError, SafetensorError, OSError)


def is_hf_run(config: Entries) -> bool:
    """Return whether config.json describes a network of transformers."""
    model = config.get("model")
    return isinstance(model, dict) and model.get("network") == TRANSFORMERS


def describe_hf_run(net: HuggingFaceDenoiser) -> dict[str, Json]:
    """Return the entry of config.json from which `build_hf_run` builds a network."""
    entry: dict[str, Json] = {
        "network": TRANSFORMERS,
        "class": type(net.model).__name__,
        "readout": net.readout,
        "vocab_size": net.vocab_size,
        "max_length": net.max_length,
        "mask_id": net.mask_id,
    }
    if net.adapter is not None:
        stored = asdict(net.adapter)
        return {
            **entry,
            "adapter": {name: value for name, value in stored.items() if value is not None},
        }
    if net.has_frozen_embeddings:
        entry["freeze_embeddings"] = True
    config = of_transformers(net.model.config.to_diff_dict())
    config.pop("transformers_version", None)
    return {**entry, "config": config}


def of_transformers(config: Mapping[str, Json]) -> dict[str, Json]:
    """Return the entries of a config that are of transformers, and not of this package."""
    return {name: value for name, value in config.items() if name not in OF_THIS_PACKAGE}


def of_function(entry: Entries) -> dict[str, Json]:
    """Return what the config in an entry says of the function of equal weights, with its defaults."""
    if "config" not in entry:
        return {}
    from transformers import AutoConfig

    config = AutoConfig.for_model(**entry["config"]).to_dict()
    return {name: config[name] for name in OF_HF_FUNCTION if name in config}


def is_for_transformers(config: Entries) -> bool:
    """Return whether transformers opens the network of a config.json, too."""
    return is_hf_run(config) and not {"config", "adapter"} & config["model"].keys()


def open_hf_run(
    config: Entries, folder: Path, base: str | Path | None = None
) -> HuggingFaceDenoiser:
    """Return the network of a directory in eval mode, with its weights, method and folder.

    Takes its config.json, and the base of `from_pretrained`. Raise ValueError as that does, also if
    transformers or peft is not installed.
    """
    check_package("transformers", "text", folder)
    try:
        net = build_hf_run(config["model"], folder, base)
    except UNREADABLE as error:
        raise corrupt_file(folder / "config.json", error) from None
    if not is_for_transformers(config):
        weights = folder / "model.safetensors"
        load_weights(net, read_tensor_file(weights), weights)
    net.method = method_from(config["method"])
    net.folder = folder.absolute()
    return net.eval()


def build_hf_run(
    entry: Entries, folder: Path, base: str | Path | None = None
) -> HuggingFaceDenoiser:
    """Return the network of an entry of config.json, without its trained weights.

    Without "config" and "adapter", transformers can open the directory, and the network has its
    weights. Raise KeyError, TypeError or ValueError if the entry is corrupt.
    """
    for name in ("vocab_size", "max_length"):
        check_int(name, entry[name], 1)
    if "config" in entry:
        model = untrained_model(entry)
    elif "adapter" in entry:
        model = read_base(Adapter(**entry["adapter"]), folder, base)
    else:
        model = read_model(folder)
    has_row = entry["readout"] != "shifted" and entry["mask_id"] != model.config.vocab_size
    net = HuggingFaceDenoiser(model, entry["mask_id"] if has_row else None, entry["readout"])
    net.mask_id = entry["mask_id"]
    net.vocab_size = entry["vocab_size"]
    net.max_length = entry["max_length"]
    if "adapter" in entry:
        with torch.random.fork_rng():
            add_lora(net, Adapter(**entry["adapter"]))
    elif entry.get("freeze_embeddings"):
        freeze_embeddings(net)
    return net


def read_base(adapter: Adapter, folder: Path, base: str | Path | None) -> PreTrainedModel:
    """Return the model that an adapter belongs to. Raise ValueError if it is missing or another."""
    name = str(base or adapter.base)
    hint = "Name its directory with base=DIR, or start=DIR to resume it."
    try:
        path = find(name, partial(fetch, files=BASE_FILES))
    except ValueError as error:
        raise ValueError(f"{folder}: adapts {adapter.base}. {error}. {hint}") from None
    model = read_model(path)
    digest = tensors_sha256(model.state_dict())
    if digest != adapter.base_sha256:
        trained = f"adapts {adapter.base} with SHA-256 {adapter.base_sha256[:12]}"
        raise ValueError(f"{folder}: {trained}, and {name} has {digest[:12]}. {hint}")
    return model


def untrained_model(entry: Entries) -> PreTrainedModel:
    """Return a model with random weights, of a class of transformers itself."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    config = entry["config"]
    check_choice("model_type", config["model_type"], FAMILIES)
    is_masked = entry["class"].endswith("ForMaskedLM")
    reader = AutoModelForMaskedLM if is_masked else AutoModelForCausalLM
    with torch.random.fork_rng():
        model = reader.from_config(AutoConfig.for_model(**config))  # type: ignore[no-untyped-call]
        return cast("PreTrainedModel", model)


def from_transformers(
    folder_or_name: str | Path,
    mask_token: int | str | None = None,
    readout: Literal["in_place", "left", "shifted"] | None = None,
) -> HuggingFaceDenoiser:
    """Return the language model of a directory that `transformers` wrote, or of a name on the hub.

    It is on the CPU, in float32 and in eval mode. Code in the directory is never run: the
    architecture must be one of `transformers` itself, or that of a published masked diffusion model
    which equals one: LLaDA, Dream, Open-dCoder, WeDLM, SDAR, Tiny-A2D, DiffuGPT or ModernBERT-chat.
    Such a model has its own method.

    Args:
        folder_or_name: the directory, or OWNER/NAME.
        mask_token: MASK, as an id or as the text of a token in tokenizer.json. "new" adds a row to
            the embeddings. None: that of a published masked diffusion model.
        readout: that of `HuggingFaceDenoiser`. A shifted one has no MASK, so `mask_token` is "new".
            None: that of the published model, else "in_place".

    Raises:
        ValueError: transformers is not installed, the directory is missing, incomplete or not
            supported, or it has no such token.

    Example::

        net = from_transformers("Qwen/Qwen2.5-0.5B", "<|fim_pad|>")
        net = from_transformers("GSAI-ML/LLaDA-8B-Base")
    """
    check_package("transformers", "text", folder_or_name)
    folder = find(folder_or_name, partial(fetch, files=BASE_FILES))
    config, layout = published_layout(folder)
    if layout is None or readout == "shifted" or (layout.only_with_mask and mask_token is not None):
        if mask_token is None:
            problem = "is not a published masked diffusion model, and names no MASK"
            fix = "Set mask_token to the id or text of a token, or to 'new'"
            if "format" in config:
                problem = "was written by latent_tokens"
                fix = f"Open it with load({str(folder)!r})"
            raise ValueError(f"{folder}: {problem}. {fix}.")
        mask_id = None if mask_token == "new" else mask_id_of(folder, mask_token)
        return HuggingFaceDenoiser(read_model(folder), mask_id, readout or "in_place").eval()
    return published_network(folder, config, layout, mask_token, readout)


def published_layout(folder: Path) -> tuple[dict[str, Json], PublishedLayout | None]:
    """Return config.json of a directory, and its layout if that is a published one.

    A directory of this package has none: its method and MASK are in config.json.
    """
    config = read_json(folder / "config.json")
    names_mask = named_mask(folder, config) is not None
    return config, None if "format" in config else layout_of(config, names_mask)


def published_network(
    folder: Path,
    config: Mapping[str, Json],
    layout: PublishedLayout,
    mask_token: int | str | None = None,
    readout: Readout | None = None,
    dtype: torch.dtype | None = torch.float32,
) -> HuggingFaceDenoiser:
    """Return the network of a published masked diffusion model, with its method.

    `mask_token` and `readout` are those of `from_transformers`. A `dtype` of None is that of the
    files. Raise ValueError if a file or MASK is missing, or the model is not supported.
    """
    readout = readout or layout.readout
    method = layout_method(layout, config, readout)
    named = (mask_token, named_mask(folder, config), layout.mask_id)
    mask = next((mask for mask in named if mask is not None), None)
    if mask is None:
        raise ValueError(f"{folder}: names no MASK. Set mask_token to its id or text.")
    mask_id = None if mask == "new" else mask_id_of(folder, mask)
    net = HuggingFaceDenoiser(read_native(folder, layout, config, dtype), mask_id, readout)
    net.method = method
    return net.eval()


def mask_id_of(folder: Path, mask_token: int | str, name: str = "mask_token") -> int:
    """Return the id of a token. Raise ValueError if the tokenizer has no such token.

    `name` is the setting that names the token.
    """
    if isinstance(mask_token, int):
        return mask_token
    from tokenizers import Tokenizer

    file = folder / "tokenizer.json"
    problem = f"not a token of {file}"
    mask_id = added_token_id(folder, mask_token)
    if mask_id is None:
        try:
            mask_id = Tokenizer.from_file(str(file)).token_to_id(mask_token)
        except Exception as error:  # the type that tokenizers raises
            problem = f"{file} cannot be read ({first_line(error)})"
    if mask_id is None:
        raise ValueError(f"{name}={mask_token}: {problem}. Use the id of a token, or {name}='new'.")
    return mask_id


def read_model(folder: Path) -> PreTrainedModel:
    """Return the language model of a directory in float32.

    Raise ValueError if a file or a weight is missing or corrupt, or if it has code of its own.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    # Code of the directory is never run, so its class must be one of transformers.
    entries = read_json(folder / "config.json")
    family = model_type_of(entries)
    if family not in FAMILIES and (family in PUBLISHED or "format" in entries):
        fix = f"Open it with load({str(folder)!r})"
        if family in PUBLISHED:
            fix = f"Convert it (latent-tokens import {folder} DIR), and use DIR"
        raise ValueError(f"{folder}: is not a model of transformers. {fix}.")
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
        problem = f"cannot be read ({first_line(error)})"
        raise ValueError(f"{folder}: {problem}. Download it again.") from None
    if report["missing_keys"]:
        problem = f"incomplete, {min(report['missing_keys'])} is missing"
        raise ValueError(f"{folder}: {problem}. Download it again.")
    return model
