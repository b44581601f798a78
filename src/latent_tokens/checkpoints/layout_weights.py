"""The weights of a published checkpoint: read from its files, renamed, and put into a native class."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from latent_tokens.checkpoints.layout_settings import native_settings, read_json
from latent_tokens.checkpoints.layouts import PublishedLayout
from latent_tokens.checks import first_line
from latent_tokens.storage import Json

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
BUFFER = re.compile(r"\.attn\.(masked_)?bias$|rotary_emb\.inv_freq$")  # constants that old versions stored
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def read_native(
    folder: Path, layout: PublishedLayout, config: Mapping[str, Json], dtype: torch.dtype | None
) -> PreTrainedModel:
    """Return the language model of a published checkpoint, as a class of `transformers`.

    Args:
        folder: its directory.
        layout: its layout.
        config: the entries of its config.json.
        dtype: the precision of the model. None: that of the files.

    Raises:
        ValueError: a file is missing or corrupt, or its weights are not those of the native class.
    """
    stored = read_weights(folder)
    try:
        skeleton = skeleton_of(layout, native_settings(layout, config), len(stored))
        complete = with_tied(renamed(stored, layout, skeleton), skeleton)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None
    model: PreTrainedModel = type(skeleton).from_pretrained(
        None,
        config=skeleton.config,
        state_dict=complete,
        dtype=dtype or common_dtype(complete.values()),
    )
    model.tie_weights()  # transformers 5.3 leaves weights apart if the file has both names
    return model


def skeleton_of(layout: PublishedLayout, settings: Mapping[str, Json], num_weights: int) -> PreTrainedModel:
    """Return the model of a native class without values, so that nothing is allocated before a check.

    Args:
        layout: the layout.
        settings: the settings of the native class.
        num_weights: the number of weights in the files. There cannot be more layers.

    Raises:
        ValueError: the class does not have these settings, or there are more layers.
    """
    import transformers

    class_name, family = layout.native
    native: type[PreTrainedModel] = getattr(transformers, class_name)
    try:
        native_config = transformers.AutoConfig.for_model(family, **settings)
        num_layers = int(native_config.num_hidden_layers)
        if num_layers <= num_weights:
            with torch.device("meta"):
                return native(native_config)
    except Exception as error:  # of values that others wrote: anything
        problem = f"not those of {class_name} ({first_line(error)})"
        raise ValueError(f"config.json: corrupt, its settings are {problem}. Download it again.") from None
    raise ValueError(f"incomplete, {num_weights} weights of {num_layers} layers. Download it again.")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of a directory by name: of model.safetensors, or of the shards of its index.

    Raises:
        ValueError: a file is missing or corrupt, or a shard does not have the tensors of the index.
    """
    if not (folder / INDEX).is_file():
        return read_file(folder / FILE)
    shard_of = read_json(folder / INDEX).get("weight_map")
    if not isinstance(shard_of, dict) or not all(is_file_name(name) for name in shard_of.values()):
        raise ValueError(f"{folder / INDEX}: corrupt (its weight_map has no shards). Download it again.")
    weights = dict[str, Tensor]()
    for shard in sorted(set(shard_of.values())):
        weights |= read_file(folder / shard)
    missing = sorted(shard_of.keys() - weights.keys())
    if missing:
        raise ValueError(f"{folder / shard_of[missing[0]]}: {missing[0]} is missing. Download it again.")
    return weights


def is_file_name(name: Json) -> bool:
    """Return whether a value is the name of a file, without a directory."""
    return isinstance(name, str) and Path(name).name == name


def read_file(file: Path) -> dict[str, Tensor]:
    """Return the tensors of one file. Raise ValueError if it is missing or corrupt."""
    if not file.is_file():
        raise ValueError(f"{file}: is missing. Download it again.")
    try:
        return dict(load_file(file))
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file}: corrupt ({first_line(error)}). Download it again.") from None


def renamed(
    weights: Mapping[str, Tensor], layout: PublishedLayout, skeleton: PreTrainedModel
) -> dict[str, Tensor]:
    """Return the weights by the names of the native class, without buffers that it computes.

    Args:
        weights: the weights by the names of the files.
        layout: their layout.
        skeleton: the model without values.

    Raises:
        ValueError: a weight is unknown, occurs twice, or is not of floating point.
    """
    known = {name for name, _ in skeleton.named_parameters(remove_duplicate=False)}
    origin = dict[str, str]()
    for name, tensor in sorted(weights.items()):
        if BUFFER.search(name):
            continue
        native_name = name
        for pattern, replacement in layout.weights:
            native_name = re.sub(pattern, replacement, native_name)
        if native_name not in known:
            class_name = type(skeleton).__name__
            raise ValueError(f"{name:.80} is not a weight of {class_name}. Use a checkpoint of this layout.")
        if native_name in origin:
            raise ValueError(f"{origin[native_name]} and {name} are the same weight. Remove one of them.")
        if tensor.dtype not in DTYPES:
            raise ValueError(f"{name} has the type {tensor.dtype}. Use weights in bf16 or fp32.")
        origin[native_name] = name
    return {native_name: weights[name] for native_name, name in origin.items()}


def with_tied(weights: Mapping[str, Tensor], skeleton: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights with every name of a tied weight, of which a file may have one only.

    Args:
        weights: the weights by native name.
        skeleton: the model without values.

    Raises:
        ValueError: a weight is missing, has another shape, or differs from the one that it is tied to.
    """
    names_of = dict[int, list[str]]()  # several names of one parameter are tied
    shapes = dict[str, tuple[int, ...]]()
    for name, parameter in skeleton.named_parameters(remove_duplicate=False):
        names_of.setdefault(id(parameter), []).append(name)
        shapes[name] = tuple(parameter.shape)
    complete = dict[str, Tensor]()
    for names in names_of.values():
        stored = [name for name in names if name in weights]
        if not stored:
            raise ValueError(
                f"incomplete, {names[0]} of {type(skeleton).__name__} is missing. Download it again."
            )
        for name in stored:
            shape = tuple(weights[name].shape)
            if shape != shapes[name]:
                raise ValueError(f"{name} is {shape}, and {shapes[name]} by config.json. Download it again.")
            if not torch.equal(weights[name], weights[stored[0]]):
                raise ValueError(
                    f"{name} differs from {stored[0]}, and config.json ties them. "
                    "Set tie_word_embeddings to false."
                )
        complete |= dict.fromkeys(names, weights[stored[0]])
    return complete


def common_dtype(tensors: Iterable[Tensor]) -> torch.dtype:
    """Return the precision of all tensors, or float32 if they have several."""
    dtypes = {tensor.dtype for tensor in tensors}
    return dtypes.pop() if len(dtypes) == 1 else torch.float32
