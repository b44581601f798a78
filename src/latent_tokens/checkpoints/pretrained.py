"""Weights on disk: a folder with model.safetensors and config.json; and the small models that come with the package."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from latent_tokens.checkpoints.hub import fetch, is_name
from latent_tokens.checkpoints.tensor_files import read_tensor_file, tensors_to_bytes
from latent_tokens.checks import check_choice, check_int, check_min, did_you_mean, first_line
from latent_tokens.core import attention, order
from latent_tokens.core.layout import Layout
from latent_tokens.core.methods import Method
from latent_tokens.network.transformer import Transformer
from latent_tokens.network.weight_names import stored_name
from latent_tokens.sizes import LONGEST, Size
from latent_tokens.storage import FORMAT, json_bytes, read_description, write_atomic
from latent_tokens.tasks import Language

FINGERPRINT = 16  # positions
CLOSE = 1e-2  # logits of two machines are closer, of two models are not
SHIPPED = Path(__file__).parents[1] / "shipped"
KINDS = {
    "task": dict,
    "name": str,
    "training": dict,
    "data_sha256": dict,
    "made_with": dict,
    "imported": dict,
}  # beside the model
RULES = {
    rule.__name__: rule
    for rule in (attention.bidirectional, attention.independent, attention.semi_causal, attention.causal)
}
ORDERS = {rule.__name__: rule for rule in (order.any_order, order.left_to_right)}


def from_pretrained(folder_or_name: str | Path) -> Transformer:
    """The model of a run folder, of a folder that `save_pretrained` wrote, of a name in `shipped_names()`, or of a name on the hub, OWNER/NAME.

    It is on the CPU, in float32 and in eval mode, with `.mask_id`, `.method` and `.folder`. Raises ValueError where the folder is
    missing, half-written, damaged or of another version.
    """
    folder = find(folder_or_name)
    config = read_description(folder, "config.json", "model")
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise ValueError(
            f"{folder}: incomplete, model.safetensors is missing. Resume its training (resume=auto) until it has saved weights."
        )
    try:
        stored = {stored_name(name): shape for name, shape in shapes_of(weights).items()}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{weights}: damaged ({first_line(error)}); save the model again") from None
    try:
        layers = config["model"]["size"]["layers"]
        if isinstance(layers, int) and layers > len(stored):
            raise ValueError(f"{layers} layers of {len(stored)} weights")
        with torch.device("meta"):  # nothing is allocated before it is known to be of this size
            net = build(config)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"{folder / 'config.json'}: damaged ({first_line(error)}); save the model again"
        ) from None
    wanted = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    if stored != wanted:
        name = min(name for name in stored.keys() | wanted.keys() if stored.get(name) != wanted.get(name))
        found = (
            f"{name[:80]} is {stored.get(name, 'missing')}, and {wanted.get(name, 'nothing')} by its config"
        )
        raise ValueError(f"{weights}: damaged, or not of this config ({found}); save the model again")
    tensors = read_tensor_file(weights)
    try:
        net.to_empty(device="cpu").load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(
            f"{weights}: damaged, or not of this config ({first_line(error)}); save the model again"
        ) from None
    check_fingerprint(net.eval(), config.get("fingerprint"), folder)
    net.folder = folder.absolute()
    return net


def build(config: Mapping[str, Any]) -> Transformer:
    """The untrained network, with its method, that a config describes. Raises KeyError, TypeError or ValueError where it describes none."""
    model, method = config["model"], method_from(config["method"])
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
    """The shape of each tensor of a .safetensors file, whose header alone is read."""
    with safe_open(weights, "pt") as content:
        return {name: tuple(content.get_slice(name).get_shape()) for name in content.keys()}  # noqa: SIM118


def check_model(model: Mapping[str, Any]) -> None:
    """Raises ValueError where what a config says of a network cannot be."""
    for name in ("vocab_size", "max_length"):
        check_int(name, model[name], 1)
    if model["max_length"] > LONGEST:
        raise ValueError(f"max_length={model['max_length']}: must be at most {LONGEST:,}")
    check_choice("positions", model["positions"], ("both", "rotary", "learned"))
    check_choice("gelu", model.get("gelu", "tanh"), ("exact", "tanh"))
    check_min("dropout", model["dropout"], 0)


def check_about(about: dict[str, Any], file: Path) -> None:
    """Raises ValueError if what config.json says beside the model is of another type than training writes."""
    for name, kind in KINDS.items():
        if name in about and not isinstance(about[name], kind):
            raise ValueError(
                f"{file}: damaged ({name} is a {type(about[name]).__name__}, must be a {kind.__name__}). Save the model again"
            )
    for holder, name in (("task", "name"), ("data_sha256", "train")):
        value = about.get(holder, {}).get(name, "")
        if not isinstance(value, str):
            raise ValueError(
                f"{file}: damaged ({holder}.{name} is a {type(value).__name__}, must be a str). Save the model again"
            )


def save_pretrained(
    net: Transformer,
    folder: str | Path,
    *,
    dtype: torch.dtype | None = None,
    about: dict[str, Any] | None = None,
    beside: Mapping[str, bytes] | None = None,
) -> None:
    """Writes config.json and model.safetensors, in `dtype` where it is given; `about` goes into the config, `beside` are other files.

    Raises ValueError where the net has no method or one that cannot be written down, OSError where the disk is full; what
    stood there then stays.
    """
    folder, config = Path(folder), json_bytes({**describe(net), **(about or {})})
    folder.mkdir(parents=True, exist_ok=True)
    others = {folder / name: content for name, content in (beside or {}).items()}
    write_atomic(
        {
            **others,
            folder / "model.safetensors": weights_bytes(net.state_dict(), dtype),
            folder / "config.json": config,
        }
    )


def weights_bytes(weights: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> bytes:
    """The .safetensors file that holds a net's weights."""
    return tensors_to_bytes(
        {
            name: tensor.detach().cpu().to(dtype or tensor.dtype).contiguous()
            for name, tensor in weights.items()
        }
    )


@torch.inference_mode()
def fingerprint(net: Transformer) -> list[float]:
    """Sums over the logits of a small problem that is always the same, each with weights of its own: they tell whether weights, settings and
    code belong together. Raises ValueError where the logits are not finite.
    """
    count, device = min(net.max_length, FINGERPRINT), net.head.weight.device
    places = torch.arange(count, device=device)[None]
    tokens = places * (net.vocab_size // 3 + 1) % net.vocab_size
    layout = Layout(places, torch.tensor([count // 2], device=device), torch.tensor([count], device=device))
    logits = net(
        net.method.input_ids(tokens, layout, net.mask_id),
        layout.positions,
        attention.dense_mask(net.method.attention, layout),
    )
    waves = (
        torch.cos(torch.outer(torch.arange(logits.shape[-1]), torch.arange(1.0, 4))) / logits.shape[-1] ** 0.5
    )
    found = (logits[0].cpu().double() @ waves.double()).flatten().tolist()
    if not all(map(math.isfinite, found)):
        raise ValueError("its logits are not finite: the weights have diverged, or are damaged")
    return [round(value, 4) for value in found]


def check_fingerprint(net: Transformer, wanted: Any, folder: Path, close: float = CLOSE) -> None:
    """Raises ValueError where a folder has a fingerprint and its model's is further from it than `close`."""
    if wanted is None:
        return
    try:
        apart = (torch.tensor(fingerprint(net)) - torch.tensor(wanted)).abs().max().item()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{folder / 'config.json'}: damaged (fingerprint: {error}); import the model again"
        ) from None
    if not apart < close:
        raise ValueError(
            f"{folder}: its logits differ by {apart:.2g} from those it was saved with; weights or config were changed, import it again"
        )


def check_fits(net: Transformer, task: Language) -> None:
    """Raises ValueError where the net learned sequences of another length or vocabulary than the task's, or has no method."""
    if net.method is None:
        raise ValueError("net.method is None: set it to the Method that the net was trained with")
    if (net.max_length, net.vocab_size) != (task.length, task.vocab_size):
        learned = f"this model learned sequences of {net.max_length} over {net.vocab_size} tokens"
        raise ValueError(
            f"{task.name} has {task.length} positions over {task.vocab_size} tokens, {learned}; use a run of {task.name}"
        )


def describe(net: Transformer) -> dict[str, Any]:
    """What config.json holds of a model: enough to build it again. Raises ValueError where the net has no method."""
    if net.method is None:
        raise ValueError("net.method is None: set it to the Method that the net was trained with")
    model = {"size": asdict(net.size), "vocab_size": net.vocab_size, "max_length": net.max_length}
    return {
        "format": FORMAT,
        "model": {**model, "positions": net.positions, "dropout": net.dropout, "gelu": net.gelu},
        "method": method_to(net.method),
    }


def method_to(method: Method) -> dict[str, Any]:
    """The method's seven fields, its functions by name. Raises ValueError where one of them is not ours."""
    row = {field.name: getattr(method, field.name) for field in fields(method)}
    for name, known in (("order", ORDERS), ("attention", RULES)):
        if row[name] not in known.values():
            ours, found = ", ".join(known), getattr(row[name], "__name__", row[name])
            raise ValueError(
                f"{name}={found}: only {ours} can be saved; save the state_dict yourself and build the Method in code"
            )
        row[name] = row[name].__name__
    return row


def method_from(row: dict[str, Any]) -> Method:
    """The Method that `method_to` wrote down."""
    return Method(**{**row, "order": ORDERS[row["order"]], "attention": RULES[row["attention"]]})


def shipped_names() -> list[str]:
    """The bundled models."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/config.json"))


def find(folder_or_name: str | Path, fetched: Callable[[str], Path] = fetch) -> Path:
    """The directory of that name; that of a name on the Hugging Face Hub, OWNER/NAME, is fetched. Raises ValueError if there is none."""
    folder, name = Path(folder_or_name), str(folder_or_name)
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
