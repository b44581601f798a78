"""The files of a model directory: tensors, entries of config.json, and names."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from latent_tokens.checks import did_you_mean, first_line
from latent_tokens.core import attention
from latent_tokens.core.layout import Layout
from latent_tokens.hub import fetch, is_name
from latent_tokens.network.transformer import Transformer, widened
from latent_tokens.storage import Json

SHA256 = "tensors_sha256"  # the key in the metadata
LENGTH_BYTES = 8  # of the header's length, with which a .safetensors file begins


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of names, types, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def without_sharing(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors, with a copy of each that shares storage with one before it."""
    seen = set[int]()
    separate = dict[str, Tensor]()
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return separate


def weights_bytes(weights: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> bytes:
    """Return a .safetensors file of weights with their hash. Equal weights give equal bytes.

    Only real weights are converted to `dtype`: an index or a counter stays as it is.
    """
    tensors = {name: tensor.detach().cpu() for name, tensor in weights.items()}
    if dtype is not None:
        tensors |= {
            name: part.to(dtype) for name, part in tensors.items() if part.is_floating_point()
        }
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    content = save(without_sharing(tensors))
    start = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    # safetensors writes several entries of metadata in an order that differs between processes.
    header = {
        "__metadata__": {"format": "pt", SHA256: tensors_sha256(tensors)},
        **json.loads(content[LENGTH_BYTES:start]),
    }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    return b"".join([len(text).to_bytes(LENGTH_BYTES, "little"), text, memoryview(content)[start:]])


def read_tensor_file(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a .safetensors file. Raise ValueError naming it if it is corrupt.

    If the hash of the tensors was written with them, it is compared. A file of others has none.
    """
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            written = (file.metadata() or {}).get(SHA256)
        if written is not None and written != tensors_sha256(tensors):
            raise ValueError("its tensors are not those that were written")
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise corrupt_file(path, error) from None
    return tensors


def corrupt_file(path: Path, error: Exception) -> ValueError:
    """Return the error of a file of a model directory that cannot be used."""
    problem = repr(error) if isinstance(error, KeyError) else first_line(error)
    return ValueError(f"{path}: corrupt ({problem}). Save the model again, or fetch it again.")


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor by name."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def check_equal_shapes(tensors: Mapping[str, Tensor], net: nn.Module, holder: str | Path) -> None:
    """Raise ValueError with the first stored weight whose shape is not that of the network."""
    stored = shapes(tensors)
    expected = shapes(net.state_dict())
    names = stored.keys() | expected.keys()
    differing = (name for name in names if stored.get(name) != expected.get(name))
    if (name := min(differing, default=None)) is not None:
        if has_lora(stored):
            fix = "Give its network in Python: net=..."
            raise ValueError(f"{holder}: has a LoRA adapter of peft. {fix}")
        ours = f"{expected.get(name, 'nothing')} in {type(net).__name__}"
        sizes = f"{name} is {stored.get(name, 'missing')}, and {ours}"
        problem = f"corrupt, or of another network ({sizes})"
        raise ValueError(f"{holder}: {problem}. Use its network, or save the model again.")


def check_real(tensors: Mapping[str, Tensor], file: Path, net: nn.Module | None = None) -> None:
    """Raise ValueError if a stored weight is complex, unless that of the network is. None: none is."""
    expected = {} if net is None else net.state_dict()
    for name, tensor in tensors.items():
        is_complex = name in expected and expected[name].is_complex()
        if tensor.is_complex() and not is_complex:
            raise corrupt_file(
                file, ValueError(f"{name} is complex, and the network's weight is real")
            )


def has_lora(names: Iterable[str]) -> bool:
    """Return whether some weights, by their names, are those of an adapter of peft."""
    return any(".lora_" in name for name in names)


def load_weights(net: nn.Module, tensors: Mapping[str, Tensor], file: Path) -> None:
    """Load the tensors of a file into a network, which is allocated if it is on `meta`.

    Raises:
        ValueError: they are of another network. Nothing is allocated then.
    """
    check_equal_shapes(tensors, net, file)
    check_real(tensors, file, net)
    if any(weight.is_meta for weight in net.parameters()):
        net.to_empty(device="cpu")
    net.load_state_dict(tensors)


def read_json(file: Path) -> dict[str, Json]:
    """Return the entries of a JSON file of others. Raise ValueError if it is missing or corrupt."""
    try:
        return dict(json.loads(file.read_bytes()))
    except FileNotFoundError:
        raise ValueError(f"{file} is missing. Name a directory that has it.") from None
    except (ValueError, TypeError, RecursionError, OSError) as error:
        raise ValueError(f"{file}: corrupt ({first_line(error)}). Download it again.") from None


Entries = Mapping[str, Any]
"""The entries of a JSON file, or of an object in it."""


OF_THE_RUN = (
    "task", "name", "training", "trained_steps", "data_sha256", "made_with", "imported", "start",
    "stretches",
)  # fmt: skip
"""The entries of config.json on the origin of a model."""
BUNDLED = Path(__file__).parents[1] / "bundled"


def bundled_names() -> list[str]:
    """Return the names of the bundled models."""
    return sorted(path.parent.name for path in BUNDLED.glob("*/config.json"))


def find(folder_or_name: str | Path, fetched: Callable[[str], Path] = fetch) -> Path:
    """Return the directory of a name, fetched if it is OWNER/NAME. Raise ValueError if missing."""
    if not isinstance(folder_or_name, str | Path) or not str(folder_or_name):
        raise ValueError(f"model={folder_or_name!r}: must be a directory or a name")
    folder = Path(folder_or_name)
    name = str(folder_or_name)
    if folder.is_dir():
        return folder
    bundled = bundled_names()
    if name in bundled:
        return BUNDLED / name
    on_hub = ""
    if is_name(name):
        try:
            return fetched(name)
        except ValueError as error:
            on_hub = f", and not on the Hugging Face Hub ({error})"
    kinds = f"not a run directory, not a bundled model ({', '.join(bundled) or 'none'})"
    runs = [str(config.parent) for config in folder.parent.glob("*/config.json")]
    raise ValueError(f"{name!r} not found: {kinds}{on_hub}{did_you_mean(name, [*bundled, *runs])}")


FINGERPRINT = 16  # positions
CLOSE = 1e-2  # logits of two machines are closer, of two models are not


@torch.inference_mode()
def network_fingerprint(net: Transformer) -> list[float]:
    """Return sums over the logits of a fixed small problem, with three sets of weights.

    They tell whether weights, settings and code belong together. Raise ValueError if the logits are
    not finite.
    """
    count = min(net.max_length, FINGERPRINT)
    device = net.head.weight.device
    positions = torch.arange(count, device=device)[None]
    tokens = positions * (net.vocab_size // 3 + 1) % net.vocab_size
    num_clean = torch.tensor([count // 2], device=device)
    layout = Layout(positions, num_clean, torch.full_like(num_clean, count))
    ids = net.method.input_ids(tokens, layout, net.mask_id)
    logits = net(ids, positions, attention.dense_mask(net.method.attention, layout))
    logits = widened(logits, net.vocab_size + 1)
    angles = torch.outer(
        torch.arange(logits.shape[-1], device="cpu"), torch.arange(1.0, 4, device="cpu")
    )
    waves = torch.cos(angles) / logits.shape[-1] ** 0.5
    sums = (logits[0].cpu().double() @ waves.double()).flatten().tolist()
    if not all(map(math.isfinite, sums)):
        raise ValueError("its logits are not finite: the weights have diverged, or are corrupt")
    return [round(value, 4) for value in sums]


def check_fingerprint(net: Transformer, stored: Json, folder: Path, close: float = CLOSE) -> None:
    """Raise ValueError if the fingerprint differs from the stored one by `close` or more."""
    if stored is None:
        return
    try:
        ours = torch.tensor(network_fingerprint(net))
    except ValueError as error:
        raise corrupt_file(folder / "model.safetensors", error) from None
    try:
        apart = (ours - torch.tensor(stored)).abs().max().item()
    except (TypeError, ValueError, RuntimeError) as error:
        raise corrupt_file(folder / "config.json", error) from None
    if not apart < close:
        problem = f"its logits differ by {apart:.2g} from those it was saved with"
        fix = "Its weights or config were changed: import it again."
        raise ValueError(f"{folder}: {problem}. {fix}")
