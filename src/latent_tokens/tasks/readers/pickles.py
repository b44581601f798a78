"""A reader of pickles of plain values: containers, numbers, texts and numpy arrays of these.

A pickle names the functions that build its values. Here each name that arrays need leads to a class or
function of this file, and any other is refused, so nothing is executed. Memory and time are not limited.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import first_line


class PlainType:
    """A stand-in for numpy.dtype, of numbers or text. With that of objects a file could forge pointers."""

    def __init__(self, code: str, *_: object) -> None:
        self.dtype = np.dtype(code)
        if self.dtype.kind not in "biufUS":
            raise pickle.UnpicklingError(f"an array of {code!r}, which is neither numbers nor text")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class PlainArray:
    """A stand-in for numpy.ndarray, with its array."""

    array: NDArray[Any] = np.empty(0)

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, is_fortran, raw = state
        self.array = np.frombuffer(raw, kind.dtype).reshape(shape, order="F" if is_fortran else "C")


def from_buffer(raw: bytes, kind: PlainType, shape: tuple[int, ...], order: str) -> PlainArray:
    """Return an array as protocol 5 writes it."""
    array = PlainArray()
    array.__setstate__((1, shape, kind, order == "F", raw))
    return array


ALLOWED: dict[str, Callable[..., Any]] = {
    "numpy.dtype": PlainType,
    "numpy.ndarray": PlainArray,
    "numpy._core.multiarray._reconstruct": PlainArray,
    "numpy._core.multiarray.scalar": lambda kind, raw: np.frombuffer(raw, kind.dtype)[0].item(),
    "numpy._core.numeric._frombuffer": from_buffer,
    "_codecs.encode": lambda text, _: text.encode("latin-1"),
    "__builtin__.bytes": lambda: b"",
}


class PlainUnpickler(pickle.Unpickler):
    """An unpickler that raises UnpicklingError for any name but those of plain values."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        full_name = f"{module.replace('numpy.core', 'numpy._core')}.{name}"
        if full_name not in ALLOWED:
            problem = "and only numbers, strings, lists and numpy arrays are read"
            raise pickle.UnpicklingError(f"it names {full_name[:160]}, {problem}")
        return ALLOWED[full_name]


def read_plain_pickle(content: bytes) -> Any:
    """Return the values of a pickle, arrays as `PlainArray`.

    Raises:
        ValueError: it is corrupt, or has other values.
    """
    try:
        return PlainUnpickler(io.BytesIO(content)).load()
    except pickle.UnpicklingError as error:
        raise ValueError(f"pickle refused: {first_line(error)}") from None
    except Exception as error:  # a corrupt stream can fail in any way
        raise ValueError(f"pickle corrupt ({type(error).__name__}: {first_line(error)})") from None
