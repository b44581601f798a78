"""Pickles of plain values: numbers, strings, lists and numpy arrays are read, anything else is refused before it can run.

No function named in a file is ever called, numpy's own included: what an array's pickle names stands for the classes below.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import Any, Literal

import numpy as np

NUMBERS_AND_TEXT = re.compile(r"[<>=|]?[biufSU]\d+|bool")


class PlainType:
    """Stands for numpy.dtype; `code` is a dtype of numbers or text."""

    def __init__(self, code: str, *_: object) -> None:
        if not isinstance(code, str) or not NUMBERS_AND_TEXT.fullmatch(code):
            raise pickle.UnpicklingError(f"an array of {code!r}, which is neither numbers nor text")
        self.code = code

    def __setstate__(self, state: Any) -> None:
        self.code = (state[1] if state[1] in ("<", ">") else "") + self.code


class PlainArray:
    """Stands for numpy.ndarray until `plain` makes one of it."""

    def __init__(self, *_: object) -> None:
        self.array = np.empty(0)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, raw = state
        self.array = np.frombuffer(raw, np.dtype(kind.code)).reshape(shape, order="F" if fortran else "C")


def from_buffer(raw: bytes, kind: PlainType, shape: Any, order: Literal["C", "F"]) -> PlainArray:
    """An array as protocol 5 writes it."""
    made = PlainArray()
    made.array = np.frombuffer(raw, np.dtype(kind.code)).reshape(shape, order=order)
    return made


def scalar(kind: PlainType, raw: bytes) -> Any:
    """One number or string of an array."""
    return np.frombuffer(raw, np.dtype(kind.code))[0].item()


def encode(text: str, encoding: str) -> bytes:
    """Bytes as protocols 0 to 2 write them."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes in {encoding!r}")
    return text.encode("latin-1")


def no_bytes() -> bytes:
    """The empty bytes of protocols 0 to 2."""
    return b""


ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): PlainArray,
    ("numpy", "dtype"): PlainType,
    ("_codecs", "encode"): encode,
    ("__builtin__", "bytes"): no_bytes,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): PlainArray for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): from_buffer for core in ("core", "_core")},
}


class PlainUnpickler(pickle.Unpickler):
    """Reads plain values. Raises UnpicklingError naming whatever else a file asks for."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, and only numbers, strings, lists and numpy arrays are read")
        return ALLOWED[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError(f"it names the outside object {pid!r}")


def read_plain_pickle(content: bytes) -> Any:
    """What a pickle holds. Raises ValueError where it is damaged, or holds anything but plain values."""
    try:
        return plain(PlainUnpickler(io.BytesIO(content)).load())
    except pickle.UnpicklingError as error:
        raise ValueError(f"pickle refused: {error}") from None
    except Exception as error:  # a damaged stream can fail in any way
        raise ValueError(f"pickle damaged ({type(error).__name__}: {error})") from None


def plain(value: Any) -> Any:
    """The value with its arrays as numpy's."""
    if isinstance(value, PlainArray):
        return value.array
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, str | int | float | None):
        return value
    raise pickle.UnpicklingError(f"a {type(value).__name__} among its values")
