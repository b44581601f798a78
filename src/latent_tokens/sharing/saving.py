"""The keywords of save_pretrained in transformers: used, without meaning here, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, cast

from torch import nn
from transformers.utils.hub import convert_file_size_to_int


class HubOptions(TypedDict, total=False):
    """Those that `push_to_hub` takes too."""

    commit_message: str
    private: bool | None
    token: str | bool | None
    revision: str | None
    create_pr: bool


class SavingOptions(HubOptions, total=False):
    """The arguments of `save_pretrained` that transformers, accelerate and peft pass beside its own."""

    # Used.
    max_shard_size: int | str  # the weights are one file, refused if it is larger
    repo_id: str  # the name on the hub, with push_to_hub=True

    # Refused, but for one value.
    safe_serialization: bool
    variant: str | None
    distributed_checkpoint: bool

    # Without meaning: the file has one format, and adapters are not saved here.
    save_function: Callable[..., object]
    save_original_format: bool
    save_peft_format: bool


REQUIRED = {  # the value that is allowed, and why
    "safe_serialization": (True, "the weights are always in safetensors"),
    "variant": (None, "the weights are always in model.safetensors"),
    "distributed_checkpoint": (False, "one process writes the weights"),
}


def check_saving(net: nn.Module, options: SavingOptions) -> None:
    """Raise TypeError for an unknown keyword, and ValueError for a value that the directory cannot have."""
    unknown = sorted(set(options) - set(SavingOptions.__annotations__))
    if unknown:
        raise TypeError(f"{unknown[0]}: no argument of save_pretrained")
    for name, (value, reason) in REQUIRED.items():
        if options.get(name, value) != value:
            raise ValueError(f"{name}={options.get(name)}: is not supported, as {reason}. Leave it out.")
    num_bytes = sum(weight.numel() * weight.element_size() for weight in net.parameters())
    largest = options.get("max_shard_size")
    if largest is not None and num_bytes > convert_file_size_to_int(largest):
        raise ValueError(
            f"max_shard_size={largest}: the weights are one file of {num_bytes:,} bytes. Set it higher."
        )


def for_hub(options: SavingOptions) -> HubOptions:
    """Return the keywords that `push_to_hub` takes."""
    return cast(
        HubOptions, {name: value for name, value in options.items() if name in HubOptions.__annotations__}
    )
