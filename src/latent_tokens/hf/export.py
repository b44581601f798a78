"""Model directories to share: saved with a card and a tokenizer, and uploaded to the Hugging Face Hub."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import nn

from latent_tokens.address import OWNER
from latent_tokens.checkpoints.files import (
    BUNDLED,
    OF_THE_RUN,
    Entries,
    has_lora,
    network_fingerprint,
    read_tensor_file,
)
from latent_tokens.checkpoints.stored_methods import method_from
from latent_tokens.checks import check_choice, refuse
from latent_tokens.core.denoiser import unwrap
from latent_tokens.core.method import name_of
from latent_tokens.evaluation.rows import Row, read_results, trained_run
from latent_tokens.hf import directory
from latent_tokens.hf.adapting import merged
from latent_tokens.hf.directory import describe
from latent_tokens.hf.language_models import HuggingFaceDenoiser
from latent_tokens.hf.layouts import copied_tokenizer
from latent_tokens.hf.model_card import CARD, write_card
from latent_tokens.hf.reading import is_for_transformers, of_transformers, read_model
from latent_tokens.hf.tokenizer_files import tokenizer_files
from latent_tokens.hub import TOKENIZER_FILES
from latent_tokens.network.transformer import Transformer, is_transformer
from latent_tokens.storage import (
    Json,
    create_directory,
    json_bytes,
    kind_of,
    read_description,
    write_atomic,
)
from latent_tokens.tasks import Language, Text, described, description, is_described
from latent_tokens.tasks.text.task import text_described

if TYPE_CHECKING:
    from transformers import GenerationConfig

RESULTS = "results.jsonl"
GENERATION = "generation_config.json"
IN_RESULTS = (
    "task", "method", "order", "candidates", "latents", "metric", "ci95", "num_samples", "relative_cost",
)  # fmt: skip
OF_A_MODEL = {*TOKENIZER_FILES, GENERATION}
MODULE = "modeling_latent_tokens"
INSTALL = ": pip install latent-tokens" if OWNER else ""  # on PyPI with its first release
CODE = f'''"""The code of this model directory, for transformers: two names of the package latent-tokens."""

try:
    from latent_tokens.hugging_face import LatentTokensConfig, LatentTokensForMaskedLM
except ModuleNotFoundError as error:
    if error.name != "latent_tokens":
        raise
    raise ImportError("this model needs the package latent-tokens{INSTALL}") from None
'''
OF_THE_TASK = ("task", "name")  # those of a model whose weights have changed
CONFIG_ENTRIES = ("network", "class", "readout", "vocab_size", "max_length", "mask_id")


def export_model(
    net: Transformer | HuggingFaceDenoiser,
    folder: str | Path,
    *,
    dtype: torch.dtype | None = None,
    license: str | None = None,
    name: str | None = None,
    task: Language | None = None,
    generation_config: GenerationConfig | Literal["keep"] | None = "keep",
) -> None:
    """Write a model directory with its card, README.md, and a tokenizer. transformers opens it too.

    Task, training and results are carried over from the directory that the network was read from.
    If its weights or its method have changed since, only the task is. A network of your own has
    neither card nor tokenizer, because only you can build it.

    Args:
        net: the network, with its method.
        folder: the directory. A model in it is replaced.
        dtype: the precision on disk. None is that of the weights.
        license: the license that the card names, as spelled on the hub. None names no license.
        name: the name of the model on the card.
        task: the task that it learned, with the words of the tokenizer. None: that of its directory.
        generation_config: the settings of `generate` of transformers. "keep": those of the
            directory that the network was read from, or of a model of transformers. None: none.

    Raises:
        ValueError: the network has no method or has an adapter, the directory that it was read
            from is missing, or `folder` is that of a run.

    Example:
        export_model(net, "models/six", dtype=torch.bfloat16)
    """
    inner: Any = unwrap(net)
    folder = Path(folder)
    keeps = isinstance(generation_config, str)
    if keeps:
        check_choice("generation_config", generation_config, ("keep",))
    if not (is_transformer(inner) or isinstance(inner, HuggingFaceDenoiser)):
        if license is not None:
            refuse(f"license={license}", "a network of your own has no card", "license=None")
        if not keeps:
            problem = "transformers does not open a network of your own"
            refuse("generation_config", problem, "generation_config='keep'")
        about = {} if task is None else {"task": description(task), "name": name_of(inner.method)}
        directory.save_pretrained(inner, folder, dtype=dtype, about=cast(dict[str, Json], about))
        remove(folder, {*OF_A_MODEL, RESULTS, CARD, f"{MODULE}.py"})
        return
    # An adapter of `add_lora` is merged.
    if getattr(inner, "adapter", None) is None and has_lora(inner.state_dict()):
        fix = "Save the adapter by itself, or call merge_and_unload() first"
        raise ValueError(f"net={type(inner).__name__}: has a LoRA adapter of peft. {fix}.")
    net = inner
    settings, files, rows = carried_over(net)
    if task is not None and not is_described(task, settings.get("task")):
        settings |= {"task": description(task), "name": name_of(net.method)}
        files |= task.files() if isinstance(task, Text) else {}
    files |= tokenizer_of(net, settings, task)
    if not keeps:
        own = cast("GenerationConfig | None", generation_config)
        files[GENERATION] = None if own is None else own.to_json_string().encode()
    if RESULTS not in files and (folder / RESULTS).exists():
        files[RESULTS] = b""  # the rows are those of an earlier model in this directory
    if isinstance(net, HuggingFaceDenoiser):
        written = write_for_transformers(net, folder, settings, files, dtype)
    else:
        beside = with_content(files)
        written = {*beside}
        # The fingerprint is that of the weights as they are stored.
        stored = deepcopy(net).to("cpu", dtype).float().eval()
        precision = dtype or net.embedding.weight.dtype
        entries = {**for_transformers(stored), "dtype": str(precision).removeprefix("torch.")}
        settings = {**settings, "fingerprint": network_fingerprint(stored), **entries}
        beside[f"{MODULE}.py"] = CODE.encode()
        directory.save_pretrained(net, folder, dtype=dtype, about=settings, beside=beside)
    remove(folder, OF_A_MODEL - written)
    write_card(folder, rows, license=license, name=name)


def with_content(files: Mapping[str, bytes | None]) -> dict[str, bytes]:
    """Return files without those that are None."""
    return {name: content for name, content in files.items() if content is not None}


def remove(folder: Path, names: set[str]) -> None:
    """Remove what an earlier model left in a directory."""
    for name in names:
        (folder / name).unlink(missing_ok=True)


def push_to_hub(
    net: Transformer | HuggingFaceDenoiser,
    name: str,
    *,
    dtype: torch.dtype | None = None,
    license: str | None = None,
    private: bool | None = None,
    token: str | bool | None = None,
    task: Language | None = None,
    generation_config: GenerationConfig | Literal["keep"] | None = "keep",
    **upload: Any,
) -> str:
    """Save a model as OWNER/NAME on the Hugging Face Hub in one commit, and return its address.

    Args:
        net: the network, with its method.
        name: OWNER/NAME on the hub.
        dtype, license, task, generation_config: as those of `export_model`.
        private, token: as `HfApi` of huggingface_hub has them.
        **upload: settings of its `upload_folder`, such as commit_message, revision and create_pr.

    Example:
        push_to_hub(net, "me/six", private=True)
    """
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / name.rpartition("/")[2]
        export_model(
            net, folder, dtype=dtype, license=license, name=name, task=task,
            generation_config=generation_config,
        )  # fmt: skip
        address = api.upload_folder(
            repo_id=api.create_repo(name, private=private, exist_ok=True).repo_id,
            folder_path=folder,
            **{
                "commit_message": "A model of latent-tokens",
                "delete_patterns": sorted(OF_A_MODEL),  # of an earlier model, if not written again
                **upload,
            },
        )
    return str(address)


def write_for_transformers(
    net: HuggingFaceDenoiser,
    folder: Path,
    about: Mapping[str, Json],
    beside: Mapping[str, bytes | None],
    dtype: torch.dtype | None,
) -> set[str]:
    """Write the weights, with an adapter merged, and one config.json for transformers and this package.

    Return the names of the files. A file of None in `beside` is left out. `about`, `beside` and
    `dtype` are those of `hf.directory.save_pretrained`.
    """
    ours = describe(net)
    entry = cast(dict[str, Json], ours["model"])
    ours["model"] = {name: entry[name] for name in CONFIG_ENTRIES}

    directory.check_not_run(folder)
    # Transformers writes its files beside the final ones, as /tmp can be small.
    model = merged(net)
    cast(nn.Module, model).to(dtype or model.dtype)
    create_directory(folder)
    with TemporaryDirectory(dir=folder, prefix=".") as temporary:
        model.save_pretrained(temporary, max_shard_size="1TB")
        files = {file.name: file.read_bytes() for file in Path(temporary).iterdir()}

    # Add what this package needs.
    config = {**of_transformers(json.loads(files.pop("config.json"))), **ours, **about}
    files = with_content({**files, **beside, "config.json": json_bytes(config)})
    write_atomic({folder / name: content for name, content in files.items()})
    return {*files}


def tokenizer_of(
    net: Transformer | HuggingFaceDenoiser, settings: Mapping[str, Any], task: Language | None
) -> dict[str, bytes]:
    """Return the files of a model's tokenizer: a copy of those it has for transformers, or new ones.

    An imported model keeps the tokenizer of its authors, with their special tokens and chat
    template. A task of None is that of the settings, of another package if it is code.
    """
    if task is None:
        with suppress(ValueError):
            task = described(settings.get("task"), net.folder)
    copied: dict[str, bytes] = {}
    if isinstance(net, HuggingFaceDenoiser) and net.folder is not None:
        config = read_description(net.folder, "config.json", "model")
        copied = copied_tokenizer(net.folder) if is_for_transformers(config) else {}
    if copied and task is None:
        return copied
    return {**tokenizer_files(task, net.vocab_size, net.max_length, net.mask_id), **copied}


def carried_over(
    net: Transformer | HuggingFaceDenoiser,
) -> tuple[dict[str, Any], dict[str, bytes | None], list[Row]]:
    """Read what a saved model takes over from the directory that the network was read from.

    Returns:
        The entries of config.json that do not describe the network, other files by name, and the
        rows of results.
    """
    folder = net.folder
    if folder is None:
        return {}, {}, []
    if kind_of(folder) != "model":
        fix = "Set net.folder = None to save weights and method without the rest."
        raise ValueError(f"{folder}: is missing, and the network was read from it. {fix}")

    # The entries of config.json that are copied as they are.
    config = read_description(folder, "config.json", "model")
    settings = {name: config[name] for name in OF_THE_RUN if name in config}

    # A text model has its tokenizer: the files as they were read.
    files: dict[str, bytes | None] = {}
    if settings.get("task", {}).get("name") == Text.name:
        text = text_described(settings["task"], folder)
        settings["task"] = description(text)
        files |= text.files()
    if isinstance(net, Transformer) and (folder / GENERATION).is_file():
        files[GENERATION] = (folder / GENERATION).read_bytes()

    # Training and results are those of the stored weights and method. A run may have been extended.
    has_method = method_from(config["method"]) == net.method
    if not has_method:
        settings["name"] = name_of(net.method)
    if not has_method or not unchanged(net, folder, config):
        return {name: settings[name] for name in OF_THE_TASK if name in settings}, files, []
    is_bundled = BUNDLED in folder.parents
    rows = read_results((BUNDLED if is_bundled else folder) / RESULTS, IN_RESULTS)
    if is_bundled:
        model = (settings["task"]["name"], settings["name"])
        rows = [row for row in rows if (row["task"], row["method"]) == model]
    planned = settings.get("training", {}).get("steps")
    steps = trained_run(net).get("train_steps")
    if steps != planned:
        settings["trained_steps"] = steps  # metrics.jsonl is not carried over
    rows = [row for row in rows if row.get("train_steps", steps) == steps]
    if rows:
        files[RESULTS] = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return settings, files, rows


def unchanged(net: Transformer | HuggingFaceDenoiser, folder: Path, config: Entries) -> bool:
    """Return whether a network still has the weights of a directory, in its own precision."""
    if isinstance(net, HuggingFaceDenoiser) and is_for_transformers(config):
        # The file may have other names, and one name of tied weights.
        stored = read_model(folder).state_dict()
        weights = net.model.state_dict()
    else:
        stored = read_tensor_file(folder / "model.safetensors")
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
