"""A file that torch.save wrote, read without executing any of it: plain values, tensors that are read when asked for, and inert stubs.

A pickle is a program. Here it may build lists, dicts, tuples, numbers, text and tensors; other plain types and classes of the
libraries that training scripts save beside their weights become stubs that hold what they were made from and do nothing; anything
else is refused by name.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from latent_tokens.checks import first_line
from latent_tokens.tasks.plain_pickle import Named

STUBBED = ("omegaconf", "transformers", "tokenizers", "typing", "collections")  # whose classes become stubs
TYPES = ("dict", "list", "tuple", "set", "frozenset", "int", "long", "float", "bool", "str", "unicode", "bytes", "bytearray", "complex", "object")
DTYPES = {
    "DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16, "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64, "IntStorage": torch.int32, "ShortStorage": torch.int16, "CharStorage": torch.int8,
    "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
}  # fmt: skip
TORCH_TYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128")
LARGEST_PICKLE, LONGEST_PICKLE = 1 << 25, 1 << 20  # bytes, instructions: what is no tensor is a few megabytes
DEEPEST_TUPLE, MOST_STUBS = 100, 256
LARGEST_NUMBER, MOST_LARGE = 128, 100  # bits, and how many numbers may have more than 63: many could be made to fall together as keys


class Inert:
    """Stands for an object of another library: `name` is its class, `args`, `state` and `items` what it was made from."""

    name = ""
    args: tuple[Any, ...]
    state: Any
    items: list[Any]

    def __new__(cls, *args: Any, **_: Any) -> Inert:
        made = super().__new__(cls)
        made.args, made.state, made.items = args, None, list[Any]()
        return made

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))

    def append(self, value: Any) -> None:
        """As a list takes it."""
        self.items.append(value)


class Table(dict[Any, Any]):
    """An OrderedDict; what a pickle would set on it beside its items is left out."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        pass


@dataclass(frozen=True)
class Saved:
    """A tensor in a file: where it is and what shape it has. `read_tensors` gives it."""

    file: Path
    record: str
    dtype: torch.dtype
    numel: int  # of the storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def __setstate__(self, state: Any) -> None:
        raise Refused("it changes what a tensor is")

    def viewed(self, content: bytearray) -> Tensor:
        """The tensor in the bytes of its record. Raises ValueError where it reaches beyond them."""
        counts = (self.numel, self.offset, *self.size, *self.stride)
        known = all(isinstance(count, int) and 0 <= count < 1 << 40 for count in counts) and len(self.size) == len(self.stride)
        if not known or math.prod(count or 1 for count in self.size) >= 1 << 40:
            raise ValueError(f"{self.file}: damaged, record {self.record} has the shape {self.size} with strides {self.stride}")
        last = self.offset + sum((count - 1) * step for count, step in zip(self.size, self.stride, strict=True)) if 0 not in self.size else -1
        if last >= self.numel or math.prod(self.size) > self.numel:
            raise ValueError(f"{self.file}: damaged, a tensor of shape {self.size} reaches beyond the {self.numel} numbers of record {self.record}")
        if 0 in self.size:
            return torch.empty(self.size, dtype=self.dtype)
        if len(content) != self.numel * self.dtype.itemsize:
            raise ValueError(f"{self.file}: damaged, record {self.record} has {len(content)} bytes for {self.numel} numbers")
        return torch.frombuffer(content, dtype=self.dtype).as_strided(self.size, self.stride, self.offset)


class Refused(pickle.UnpicklingError):
    """What a file asks for is none of what is read."""


class Reader(pickle.Unpickler):
    """An unpickler that knows the names above, and no others."""

    def __init__(self, content: bytes, file: Path, prefix: str) -> None:
        super().__init__(io.BytesIO(content))
        self.file, self.prefix, self.stubs = file, prefix, dict[str, type[Inert]]()

    def find_class(self, module: str, name: str) -> Any:
        found = f"{module}.{name}"
        if found == "collections.OrderedDict":
            return Named(Table)
        if found == "torch._utils._rebuild_tensor_v2":
            return Named(rebuilt)
        if found in ("torch._utils._rebuild_parameter", "torch.Size"):
            return Named(lambda content, *_: content)
        if module in ("torch", "torch.storage") and name in DTYPES:
            return DTYPES[name]
        plain = (module in ("builtins", "__builtin__") and name in TYPES) or found in ("_codecs.encode", "torch.device")
        if not plain and module.partition(".")[0] not in STUBBED and not (module == "torch" and name in TORCH_TYPES):
            raise Refused(f"it asks for {found[:80]}, which is no plain value, tensor or class of {', '.join(STUBBED)}")
        if len(self.stubs) >= MOST_STUBS:
            raise Refused(f"it asks for more than {MOST_STUBS} classes")
        return self.stubs.setdefault(found, type("Inert", (Inert,), {"name": found}))

    def persistent_load(self, pid: Any) -> Saved:
        match pid:
            case ("storage", torch.dtype() as dtype, str() as key, _, int() as numel):
                return Saved(self.file, f"{self.prefix}data/{key}", dtype, numel, 0, (numel,), (1,))
        raise Refused("it refers to what is no storage of a known type")


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
        check_instructions(content)
        return Reader(content, file, prefix).load()
    except Refused as error:
        raise ValueError(f"{file}: refused, {error}") from None
    except Exception as error:  # a damaged pickle may raise anything
        raise ValueError(f"{file}: damaged ({type(error).__name__}: {error}); fetch it again") from None


def check_instructions(content: bytes) -> None:
    """Goes through a pickle without doing what it says. Raises ValueError where it is cut off, or would take more than it is worth: places in
    its memory that it does not fill (readers make room for all before them), numbers of any length, tuples in tuples (hashing one
    goes as deep as it does), or too many instructions.
    """
    large, stack, memory = 0, list[int | None](), dict[int, int]()  # how deep the tuples are in each value; None is a mark
    for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        name = opcode.name
        if count >= LONGEST_PICKLE:
            raise Refused(f"its values beside tensors take more than {LONGEST_PICKLE:,} instructions")
        bits = argument.bit_length() if isinstance(argument, int) else 0
        large += bits >= 64
        if bits > LARGEST_NUMBER or large > MOST_LARGE:
            raise Refused(f"a number of {bits:,} bits, or more than {MOST_LARGE} of more than 63")
        taken = list[int]()
        if pickletools.markobject in opcode.stack_before:
            while (value := stack.pop()) is not None:
                taken.append(value)
        taken += [stack.pop() or 0 for kind in opcode.stack_before if kind not in (pickletools.markobject, pickletools.stackslice)]
        if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            place = len(memory) if name == "MEMOIZE" else argument
            if not isinstance(place, int) or place > count:
                raise ValueError(f"{name} {place} after {count} instructions")
            memory[place] = taken[0] if taken else stack[-1] or 0
        deep = memory[argument or 0] if name in ("GET", "BINGET", "LONG_BINGET") else max(taken, default=0) + name.startswith("TUPLE")
        if deep > DEEPEST_TUPLE:
            raise Refused(f"tuples nested more than {DEEPEST_TUPLE} deep")
        stack += [None if kind is pickletools.markobject else deep for kind in opcode.stack_after]


def read_tensors(file: Path, tensors: Mapping[str, Saved]) -> Iterable[tuple[str, Tensor]]:
    """(name, tensor) of each, one after the other; a record that several are views of is read once. Raises ValueError where one is damaged."""
    views: dict[str, list[str]] = {}
    for name, tensor in tensors.items():
        views.setdefault(tensor.record, []).append(name)
    with opened(file) as archive:
        for place, names in views.items():
            content = bytearray() if all(0 in tensors[name].size for name in names) else bytearray(record(archive, file, place))
            for name in names:
                yield name, tensors[name].viewed(content)


def opened(file: Path) -> zipfile.ZipFile:
    """The zip file. Raises ValueError where it is none."""
    if not file.is_file():
        raise ValueError(f"{file}: no file")
    if file.suffix == ".safetensors":
        raise ValueError(f"{file}: is read with the config.json that describes it; name the folder that has both")
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
    except (KeyError, zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError, OSError, OverflowError) as error:
        raise ValueError(f"{file}: damaged at {name} ({first_line(error)}); fetch it again") from None
