"""Model directories with model.safetensors and config.json, and the bundled models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from latent_tokens.checkpoints.fingerprint import check_fingerprint, fingerprint
from latent_tokens.checkpoints.hub import fetch, is_name
from latent_tokens.checkpoints.tensor_files import read_tensor_file, weights_bytes
from latent_tokens.checks import check_choice, check_int, check_min, did_you_mean, first_line
from latent_tokens.core import attention, order
from latent_tokens.core.blocks import BlockCausal, Blockwise, with_name
from latent_tokens.core.methods import Method
from latent_tokens.network.transformer import Transformer
from latent_tokens.network.weight_names import stored_name
from latent_tokens.sizes import LONGEST, Size
from latent_tokens.storage import FORMAT, Json, json_bytes, read_description, write_atomic
from latent_tokens.tasks import Language

SHIPPED = Path(__file__).parents[1] / "shipped"
RULES = {
    rule.__name__: rule
    for rule in (attention.bidirectional, attention.independent, attention.semi_causal, attention.causal)
}
ORDERS = {rule.__name__: rule for rule in (order.any_order, order.left_to_right)}

__all__ = [
    "ORDERS",
    "RULES",
    "SHIPPED",
    "build",
    "check_fingerprint",
    "check_fits",
    "describe",
    "find",
    "fingerprint",
    "from_pretrained",
    "method_from",
    "method_to",
    "save_pretrained",
    "shapes_of",
    "shipped_names",
    "weights_bytes",
]


def from_pretrained(folder_or_name: str | Path) -> Transformer:
    """Return the model of a directory or of a name.

    A name is that of a bundled model or, as OWNER/NAME, of the Hugging Face Hub. A directory is a run
    directory, or one that `save_pretrained` wrote.

    The model is on the CPU, in float32 and in eval mode, with `.mask_id`, `.method` and `.folder`.

    Raises:
        ValueError: the directory is missing, incomplete, corrupt or of another version.
    """
    folder = find(folder_or_name)
    config = read_description(folder, "config.json", "model")
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise ValueError(
            f"{folder}: incomplete, model.safetensors is missing. "
            "Resume its training (resume=auto) until it has saved weights."
        )
    try:
        stored = {stored_name(name): shape for name, shape in shapes_of(weights).items()}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{weights}: corrupt ({first_line(error)}); save the model again") from None
    try:
        layers = config["model"]["size"]["layers"]
        if isinstance(layers, int) and layers > len(stored):
            raise ValueError(f"{layers} layers of {len(stored)} weights")
        with torch.device("meta"):  # allocate nothing before the size is checked
            net = build(config)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"{folder / 'config.json'}: corrupt ({first_line(error)}); save the model again"
        ) from None
    shapes = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    if stored != shapes:
        name = min(name for name in stored.keys() | shapes.keys() if stored.get(name) != shapes.get(name))
        difference = (
            f"{name[:80]} is {stored.get(name, 'missing')}, and {shapes.get(name, 'nothing')} by its config"
        )
        raise ValueError(f"{weights}: corrupt, or not of this config ({difference}); save the model again")
    tensors = read_tensor_file(weights)
    try:
        net.to_empty(device="cpu").load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(
            f"{weights}: corrupt, or not of this config ({first_line(error)}); save the model again"
        ) from None
    check_fingerprint(net.eval(), config.get("fingerprint"), folder)
    net.folder = folder.absolute()
    return net


def build(config: Mapping[str, Any]) -> Transformer:
    """Return the untrained network of a config. Raise KeyError, TypeError or ValueError if it is wrong."""
    model = config["model"]
    method = method_from(config["method"])
    check_model(model)
    net = Transformer(
        Size(**model["size"]),
        model["vocab_size"],
        model["max_length"],
        model["positions"],
        model["dropout"],
        model.get("gelu", "tanh"),
    )
    net.method = method
    return net


def shapes_of(weights: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a .safetensors file. Read only its header."""
    with safe_open(weights, "pt") as content:
        return {name: tuple(content.get_slice(name).get_shape()) for name in content.keys()}  # noqa: SIM118


def check_model(model: Mapping[str, Any]) -> None:
    """Raise ValueError if a config describes an impossible network."""
    for name in ("vocab_size", "max_length"):
        check_int(name, model[name], 1)
    if model["max_length"] > LONGEST:
        raise ValueError(f"max_length={model['max_length']}: must be at most {LONGEST:,}")
    check_choice("positions", model["positions"], ("both", "rotary", "learned"))
    check_choice("gelu", model.get("gelu", "tanh"), ("exact", "tanh"))
    check_min("dropout", model["dropout"], 0)


def save_pretrained(
    net: Transformer,
    folder: str | Path,
    *,
    dtype: torch.dtype | None = None,
    about: Mapping[str, Json] | None = None,
    beside: Mapping[str, bytes] | None = None,
) -> None:
    """Write config.json and model.safetensors, in `dtype` if it is set.

    `about` is added to the config, and `beside` are other files. Existing files stay if an error is raised.

    Raises:
        ValueError: the method is missing or cannot be saved.
        OSError: the disk is full.
    """
    folder = Path(folder)
    config = json_bytes({**describe(net), **(about or {})})
    folder.mkdir(parents=True, exist_ok=True)
    others = {folder / name: content for name, content in (beside or {}).items()}
    write_atomic(
        {
            **others,
            folder / "model.safetensors": weights_bytes(net.state_dict(), dtype),
            folder / "config.json": config,
        }
    )


def check_fits(net: Transformer, task: Language) -> None:
    """Raise ValueError if the net has no method, or another length or vocabulary than the task."""
    if net.method is None:
        raise ValueError("net.method is None: set it to the Method that the net was trained with")
    if (net.max_length, net.vocab_size) != (task.length, task.vocab_size):
        learned = f"this model learned sequences of {net.max_length} over {net.vocab_size} tokens"
        raise ValueError(
            f"{task.name} has {task.length} positions over {task.vocab_size} tokens, {learned}; "
            f"use a run of {task.name}"
        )


def describe(net: Transformer) -> dict[str, Json]:
    """Return the entries of config.json for a model. Raise ValueError if it has no method."""
    if net.method is None:
        raise ValueError("net.method is None: set it to the Method that the net was trained with")
    model: dict[str, Json] = {
        "size": asdict(net.size),
        "vocab_size": net.vocab_size,
        "max_length": net.max_length,
        "positions": net.positions,
        "dropout": net.dropout,
        "gelu": net.gelu,
    }
    return {"format": FORMAT, "model": model, "method": method_to(net.method)}


def method_to(method: Method) -> dict[str, Json]:
    """Return a method's fields, its functions by name. Raise ValueError if one is not built in.

    A depth of "all" is left out, as in the models of earlier versions.
    """
    row = {field.name: getattr(method, field.name) for field in fields(method)}
    if method.depth == "all":
        del row["depth"]
    for name, known in (("order", ORDERS), ("attention", RULES)):
        if row[name] not in known.values() and not isinstance(row[name], (Blockwise, BlockCausal)):
            ours = ", ".join(known)
            given = getattr(row[name], "__name__", row[name])
            raise ValueError(
                f"{name}={given}: only {ours} can be saved; "
                "save the state_dict yourself and build the Method in code"
            )
        row[name] = row[name].__name__
    return row


def method_from(row: Mapping[str, Any]) -> Method:
    """Return the Method of the entries that `method_to` returns."""
    order = with_name(row["order"]) or ORDERS[row["order"]]
    attention = with_name(row["attention"]) or RULES[row["attention"]]
    return Method(**{**row, "order": order, "attention": attention})


def shipped_names() -> list[str]:
    """Return the names of the bundled models."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/config.json"))


def find(folder_or_name: str | Path, fetched: Callable[[str], Path] = fetch) -> Path:
    """Return the directory of a name, fetched if it is OWNER/NAME. Raise ValueError if missing."""
    folder = Path(folder_or_name)
    name = str(folder_or_name)
    if folder.is_dir():
        return folder
    if name in shipped_names():
        return SHIPPED / name
    bundled = shipped_names()
    missing = f"{name!r} not found: not a run directory, not a bundled model ({', '.join(bundled) or 'none'})"
    if not is_name(name):
        raise ValueError(f"{missing}{did_you_mean(name, bundled)}")
    try:
        return fetched(name)
    except ValueError as error:
        raise ValueError(f"{missing}, and not on the Hugging Face Hub ({error})") from None
