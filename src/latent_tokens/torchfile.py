"""A file that torch.save wrote, read without executing any of it: plain values, tensors that are read when asked for, and inert stubs.

A pickle is a program. Here it may build lists, dicts, numbers, text and tensors; classes of the libraries that training scripts
save beside their weights become stubs that hold what they were made from and do nothing; anything else is refused by name.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from latent_tokens.tasks.plain_pickle import Named

STUBBED = ("omegaconf", "transformers", "tokenizers", "typing", "collections")  # whose classes become stubs
TYPES = ("dict", "list", "tuple", "set", "frozenset", "int", "long", "float", "bool", "str", "unicode", "bytes", "bytearray", "complex", "object")
DTYPES = {
    "DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16, "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64, "IntStorage": torch.int32, "ShortStorage": torch.int16, "CharStorage": torch.int8,
    "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
}  # fmt: skip
LARGEST_PICKLE = 1 << 28  # bytes: what is no tensor is a few megabytes


class Inert:
    """Stands for an object of another library: `name` is its class, `args`, `state` and `items` what it was made from."""

    name = ""

    def __new__(cls, *args: Any, **_: Any) -> Inert:
        made = super().__new__(cls)
        made.args, made.state, made.items = args, None, list[Any]()
        return made

    def __init__(self, *_: Any, **__: Any) -> None:
        self.args: tuple[Any, ...]
        self.state: Any
        self.items: list[Any]

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))

    def append(self, value: Any) -> None:
        """As a list takes it."""
        self.items.append(value)


@dataclass(frozen=True)
class Saved:
    """A tensor in a file: where it is and what shape it has. `read` gives it."""

    file: Path
    record: str
    dtype: torch.dtype
    numel: int  # of the storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def read(self) -> Tensor:
        """The tensor. Raises ValueError where it reaches beyond what is there."""
        counts = (self.numel, self.offset, *self.size, *self.stride)
        if not all(isinstance(count, int) and 0 <= count < 1 << 40 for count in counts) or len(self.size) != len(self.stride):
            raise ValueError(f"{self.file}: damaged, record {self.record} has the shape {self.size} with strides {self.stride}")
        last = self.offset + sum((count - 1) * step for count, step in zip(self.size, self.stride, strict=True)) if 0 not in self.size else -1
        if last >= self.numel or math.prod(self.size) > self.numel:
            raise ValueError(f"{self.file}: damaged, a tensor of shape {self.size} reaches beyond the {self.numel} numbers of record {self.record}")
        if 0 in self.size:
            return torch.empty(self.size, dtype=self.dtype)
        with opened(self.file) as archive:
            content = bytearray(record(archive, self.file, self.record))
        if len(content) != self.numel * self.dtype.itemsize:
            raise ValueError(f"{self.file}: damaged, record {self.record} has {len(content)} bytes for {self.numel} numbers")
        return torch.frombuffer(content, dtype=self.dtype).as_strided(self.size, self.stride, self.offset)


class Reader(pickle.Unpickler):
    """An unpickler that knows the names above, and no others."""

    def __init__(self, content: bytes, file: Path, prefix: str) -> None:
        super().__init__(io.BytesIO(content))
        self.file, self.prefix = file, prefix

    def find_class(self, module: str, name: str) -> Any:
        found = f"{module}.{name}"
        if found == "collections.OrderedDict":
            return Named(OrderedDict[Any, Any])
        if found == "torch._utils._rebuild_tensor_v2":
            return Named(rebuilt)
        if found in ("torch._utils._rebuild_parameter", "torch.Size"):
            return Named(lambda content, *_: content)
        if module in ("torch", "torch.storage") and name in DTYPES:
            return DTYPES[name]
        plain = (module in ("builtins", "__builtin__") and name in TYPES) or found in ("_codecs.encode", "torch.device")
        if plain or module.partition(".")[0] in STUBBED or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return type("Inert", (Inert,), {"name": found})
        raise pickle.UnpicklingError(f"it asks for {found}, which is no plain value, tensor or class of {', '.join(STUBBED)}")

    def persistent_load(self, pid: Any) -> Saved:
        match pid:
            case ("storage", torch.dtype() as dtype, str() as key, _, int() as numel):
                return Saved(self.file, f"{self.prefix}data/{key}", dtype, numel, 0, (numel,), (1,))
        raise pickle.UnpicklingError(f"it refers to {type(pid).__name__}, which is no storage")


def rebuilt(storage: Saved, offset: int, size: Any, stride: Any, *_: Any) -> Saved:
    """A view of a storage, as torch.save writes tensors."""
    return Saved(storage.file, storage.record, storage.dtype, storage.numel, offset, tuple(size), tuple(stride))


def read_torch(file: Path) -> Any:
    """What a file of torch.save holds: plain values, `Saved` tensors, `Inert` stubs.

    Raises ValueError where it is damaged, of torch's old format, or asks for anything else.
    """
    with opened(file) as archive:
        names = [name for name in archive.namelist() if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(names) != 1:
            raise ValueError(f"{file}: damaged, or not written by torch.save (a zip file with {len(names)} data.pkl)")
        prefix = names[0].removesuffix("data.pkl")
        if archive.getinfo(names[0]).file_size > LARGEST_PICKLE:
            raise ValueError(f"{file}: its values beside tensors take {archive.getinfo(names[0]).file_size:,} bytes, more than {LARGEST_PICKLE:,}")
        content = record(archive, file, names[0])
        if f"{prefix}byteorder" in archive.namelist() and record(archive, file, f"{prefix}byteorder") != b"little":
            raise ValueError(f"{file}: written on a big-endian machine; save it again on a little-endian one")
    try:
        check(content)
        return Reader(content, file, prefix).load()
    except pickle.UnpicklingError as error:
        raise ValueError(f"{file}: refused, {error}") from None
    except Exception as error:  # a damaged pickle may raise anything
        raise ValueError(f"{file}: damaged ({type(error).__name__}: {error}); fetch it again") from None


def check(content: bytes) -> None:
    """Raises ValueError where a pickle is cut off, or names a place in its memory that it does not fill: readers make room for all before it."""
    for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and (argument is None or argument > count):
            raise ValueError(f"{opcode.name} {argument} after {count} instructions")


def opened(file: Path) -> zipfile.ZipFile:
    """The zip file. Raises ValueError where it is none."""
    try:
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise ValueError(f"{file}: no zip file ({error}); files of torch before 1.6 are not read, save it again with a newer one") from None


def record(archive: zipfile.ZipFile, file: Path, name: str) -> bytes:
    """A file in the zip file, which must be stored as it is: a compressed one could be of any size. Raises ValueError where it is not."""
    try:
        info = archive.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ValueError(f"{file}: {name} is compressed, which torch.save never does; refused")
        return archive.read(info)
    except (KeyError, zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError, OSError) as error:
        raise ValueError(f"{file}: damaged at {name} ({error}); fetch it again") from None
