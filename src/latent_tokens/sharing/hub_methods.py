"""The methods of `Transformer` that need directories, cards and the Hugging Face Hub.

The class is in a lower package. Its methods `from_pretrained`, `save_pretrained` and `push_to_hub` load this
module when they are called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import torch
from safetensors import SafetensorError
from torch import nn

from latent_tokens.checkpoints import directory
from latent_tokens.checkpoints.directory import check_can_save, describe
from latent_tokens.checkpoints.files import (
    KINDS,
    SHIPPED,
    Entries,
    check_about,
    find,
    fingerprint,
    read_tensor_file,
)
from latent_tokens.checkpoints.hub import FILES, check_links, fetch, is_name, upload
from latent_tokens.checkpoints.hugging_face import is_for_transformers, of_transformers, read_model
from latent_tokens.checkpoints.layouts import copied_tokenizer
from latent_tokens.checkpoints.stored_methods import method_from
from latent_tokens.checks import first_line
from latent_tokens.core.method import name_of
from latent_tokens.evaluation.rows import Row, read_results
from latent_tokens.network.hf import HuggingFaceDenoiser, merged
from latent_tokens.network.transformer import Transformer, stored_name
from latent_tokens.sharing.tokenizer_files import tokenizer_files
from latent_tokens.storage import Json, json_bytes, read_description, write_atomic
from latent_tokens.tasks import Language, Text, described, description
from latent_tokens.tasks.text.task import text_described


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


RESULTS = "results.jsonl"


IN_RESULTS = (
    "task",
    "method",
    "order",
    "candidates",
    "latents",
    "metric",
    "ci95",
    "num_samples",
    "relative_cost",
)


MODULE = "modeling_latent_tokens"


REPOSITORY = "https://github.com/OWNER/latent-tokens"


CODE = f'''"""The code of this model directory, for transformers: two names of the package latent-tokens."""

try:
    from latent_tokens.hugging_face import LatentTokensConfig, LatentTokensForMaskedLM
except ModuleNotFoundError as error:
    if error.name != "latent_tokens":
        raise
    raise ImportError(
        "this model needs the package latent-tokens: pip install git+{REPOSITORY}"
    ) from None
'''


OF_THE_RUN = (*KINDS, "start", "stretches")


OF_THE_TASK = ("task", "name")  # what is kept of a model whose weights have changed


def load_pretrained(
    folder_or_name: str | Path,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    force_download: bool = False,
) -> Transformer:
    """Return the model of a directory or a name (`Transformer.from_pretrained`)."""
    fetch_model = partial(
        fetch,
        revision=revision,
        token=token,
        cache_dir=cache_dir,
        local_files_only=local_files_only,
        force_download=force_download,
    )
    return directory.from_pretrained(find(folder_or_name, fetch_model))


def save_pretrained(
    net: Transformer | HuggingFaceDenoiser,
    folder: str | Path,
    *,
    dtype: torch.dtype | None = None,
    license: str | None = None,
    name: str | None = None,
) -> None:
    """Write a model directory with its card (`Transformer.save_pretrained`)."""
    from latent_tokens.sharing.card import check_license, write_card

    check_license(license)
    check_can_save(net, dtype)
    folder = Path(folder)
    settings, files, rows = carried_over(net)
    task = saved_task(settings.get("task"), net.folder)
    files |= tokenizer_of(net, task)
    if RESULTS not in files and (folder / RESULTS).exists():
        files[RESULTS] = b""  # the rows are those of an earlier model in this directory
    if isinstance(net, HuggingFaceDenoiser):
        write_for_transformers(net, folder, settings, files, dtype)
    else:
        # The fingerprint is that of the weights as they are stored.
        stored = deepcopy(net).to("cpu", dtype).float().eval()
        precision = dtype or net.embedding.weight.dtype
        entries = {**for_transformers(stored), "dtype": str(precision).removeprefix("torch.")}
        settings = {**settings, "fingerprint": fingerprint(stored), **entries}
        files[f"{MODULE}.py"] = CODE.encode()
        directory.save_pretrained(net, folder, dtype=dtype, about=settings, beside=files)
    write_card(folder, rows, license=license, name=name)


def tokenizer_of(net: Transformer | HuggingFaceDenoiser, task: Language | None) -> dict[str, bytes]:
    """Return the files of a model's tokenizer: a copy of those it has for transformers, or new ones."""
    copied = copied_tokenizer_of(net) if isinstance(net, HuggingFaceDenoiser) else None
    if copied is not None and task is None:
        return copied
    return {**tokenizer_files(task, net.vocab_size, net.max_length, net.mask_id), **(copied or {})}


def saved_task(entries: Json, folder: Path | None) -> Language | None:
    """Return the task of a description, or None if this version has no such task."""
    try:
        return described(entries, folder)
    except ValueError:
        return None


def push_to_hub(
    net: Transformer | HuggingFaceDenoiser,
    name: str,
    *,
    dtype: torch.dtype | None = None,
    license: str | None = None,
    private: bool | None = None,
    token: str | bool | None = None,
    branch: str | None = None,
    create_pr: bool = False,
    commit_message: str = "A model of latent-tokens",
) -> str:
    """Save the model on the Hugging Face Hub and return its address (`Transformer.push_to_hub`)."""
    if not is_name(name) and not is_name(f"me/{name}"):
        raise ValueError(f"name={name}: must be OWNER/NAME, of letters, digits and ._-")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / name.rpartition("/")[2]
        save_pretrained(net, folder, dtype=dtype, license=license, name=name)
        return upload(
            folder,
            name,
            message=commit_message,
            private=private,
            token=token,
            branch=branch,
            create_pr=create_pr,
        )


def carried_over(
    net: Transformer | HuggingFaceDenoiser,
) -> tuple[dict[str, Json], dict[str, bytes], list[Row]]:
    """Read what a saved model takes over from the directory that the network was read from.

    Returns:
        The entries of config.json that do not describe the network, other files by name, and the rows of
        results.

    Raises:
        ValueError: the directory is missing, or config.json is corrupt.
    """
    folder = net.folder
    if folder is None:
        return {}, {}, []
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"{folder}: is missing, and the network was read from it. "
            "Set net.folder = None to save weights and method without the rest."
        )
    is_bundled = SHIPPED in folder.parents
    if not is_bundled:
        check_links(folder, FILES)

    # The entries of config.json that are copied as they are.
    config = read_description(folder, "config.json", "model")
    if isinstance(net, HuggingFaceDenoiser):
        settings = {name: config[name] for name in OF_THE_RUN if name in config}
    else:
        written = {*describe(net), *for_transformers(net), "dtype", "fingerprint"}
        settings = {name: value for name, value in config.items() if name not in written}
    check_about(settings, folder / "config.json")

    # A text model has its tokenizer: the files as they were read, without what else the directory holds.
    files = dict[str, bytes]()
    if settings.get("task", {}).get("name") == Text.name:
        text = text_described(settings["task"], folder)
        settings["task"] = description(text)
        files |= text.files()

    # Training and results are those of the stored weights and the stored method.
    has_same_method = method_from(config["method"]) == net.method
    if not has_same_method:
        settings["name"] = name_of(net.method)
    if not has_same_method or not unchanged(net, folder, config):
        return {name: settings[name] for name in OF_THE_TASK if name in settings}, files, []
    rows = read_results((SHIPPED if is_bundled else folder) / RESULTS, IN_RESULTS)
    if is_bundled:
        model = (settings["task"]["name"], settings["name"])
        rows = [row for row in rows if (row["task"], row["method"]) == model]
    if rows:
        files[RESULTS] = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return settings, files, rows


def unchanged(net: Transformer | HuggingFaceDenoiser, folder: Path, config: Entries) -> bool:
    """Return whether a network still has the weights of a directory, in its own precision."""
    if isinstance(net, HuggingFaceDenoiser) and is_for_transformers(config):
        stored = read_model(
            folder
        ).state_dict()  # the file may have other names, and one name of tied weights
        weights = net.model.state_dict()
    else:
        tensors = read_tensor_file(folder / "model.safetensors")
        stored = {stored_name(name): tensor for name, tensor in tensors.items()}
        weights = net.state_dict()
    return stored.keys() == weights.keys() and all(
        torch.equal(stored[name].to(weight.dtype), weight.cpu()) for name, weight in weights.items()
    )


def for_transformers(net: Transformer) -> dict[str, Json]:
    """Return the entries of config.json for transformers, which counts MASK among the tokens."""
    return {
        "model_type": "latent_tokens",
        "architectures": ["LatentTokensForMaskedLM"],
        "auto_map": {
            "AutoConfig": f"{MODULE}.LatentTokensConfig",
            "AutoModel": f"{MODULE}.LatentTokensForMaskedLM",
            "AutoModelForMaskedLM": f"{MODULE}.LatentTokensForMaskedLM",
        },
        "vocab_size": net.vocab_size + 1,
        "mask_token_id": net.mask_id,
        "max_position_embeddings": net.max_length,
        "hidden_size": net.size.width,
        "num_attention_heads": net.size.heads,
        "num_hidden_layers": net.size.layers,
    }
