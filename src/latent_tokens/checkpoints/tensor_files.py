"""The .safetensors files of this package, whose metadata has a SHA-256 of the tensors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from latent_tokens.checks import first_line

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


def file_sha256(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the .safetensors file that holds the tensors without metadata, as version 0.1 wrote it."""
    return hashlib.sha256(save(dict(tensors))).hexdigest()


def without_sharing(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors, with a copy of each that shares storage with one before it. A file has no views."""
    seen = set[int]()
    separate = dict[str, Tensor]()
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return separate


def tensors_to_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return a .safetensors file with the hash of the tensors. Equal tensors give equal bytes."""
    content = save(without_sharing(tensors))
    start = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    known = {"format": "pt", SHA256: tensors_sha256(tensors), **(metadata or {})}
    # safetensors writes several entries of metadata in an order that differs from process to process.
    header = {"__metadata__": dict(sorted(known.items())), **json.loads(content[LENGTH_BYTES:start])}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    return b"".join([len(text).to_bytes(LENGTH_BYTES, "little"), text, memoryview(content)[start:]])


def weights_bytes(weights: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> bytes:
    """Return the content of a .safetensors file with these weights."""
    return tensors_to_bytes(
        {
            name: tensor.detach().cpu().to(dtype or tensor.dtype).contiguous()
            for name, tensor in weights.items()
        }
    )


def shapes_of(weights: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a .safetensors file. Read only its header."""
    with safe_open(weights, "pt") as content:
        return {name: tuple(content.get_slice(name).get_shape()) for name in content.keys()}  # noqa: SIM118


def read_tensor_file(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a .safetensors file. Raise ValueError naming it if it is corrupt."""
    try:
        tensors = load(path.read_bytes())
        with safe_open(path, "pt") as file:
            written = (file.metadata() or {}).get(SHA256)
        check_tensors(tensors, written)
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"{path}: corrupt ({first_line(error)}). Save the model again, or fetch it again"
        ) from None
    return tensors


def check_tensors(tensors: Mapping[str, Tensor], written: str | None) -> None:
    """Raise ValueError if tensors do not match the hash written with them; None is accepted (version 0.1)."""
    if written is not None and written != tensors_sha256(tensors):
        raise ValueError("its tensors are not those that were written")


def first_difference(
    shapes: Mapping[str, tuple[int, ...]], others: Mapping[str, tuple[int, ...]]
) -> str | None:
    """Return the first name, in alphabetical order, whose shape differs or is missing, or None."""
    differing = (name for name in shapes.keys() | others.keys() if shapes.get(name) != others.get(name))
    return min(differing, default=None)
