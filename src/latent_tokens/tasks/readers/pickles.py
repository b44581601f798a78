"""Pickles of plain values: numbers, text, lists and numpy arrays. Anything else is refused.

No function that a file names is ever called, numpy's own included: the few names that arrays need are
replaced by the classes and functions below.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from collections.abc import Callable
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import first_line

Plain = str | int | float | bool | None | NDArray[np.generic] | list["Plain"]
"""A value that a pickle may have. A tuple becomes a list."""

LARGEST_FILE = 1 << 32  # bytes
LONGEST_EMPTY = 1_000
SPARE_BYTES = 1 << 26  # that texts may take in addition to twice those of the file
BYTES_PER_CHARACTER = 4  # at most
NUMBERS_AND_TEXT = re.compile(r"[<>=|]?[biufSU]\d+|bool")
PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})
FILLS_DICT_OR_SET = frozenset({"DICT", "SETITEM", "SETITEMS", "ADDITEMS", "FROZENSET"})
NAMES_MEMO_SLOT = frozenset({"PUT", "LONG_BINPUT"})


class PlainType:
    """A stand-in for numpy.dtype: `code` is a dtype of numbers or text."""

    def __init__(self, code: str, *_: object) -> None:
        if not isinstance(code, str) or not NUMBERS_AND_TEXT.fullmatch(code):
            raise pickle.UnpicklingError(f"an array of {code!r}, which is neither numbers nor text")
        self.code = code

    def __setstate__(self, state: tuple[object, ...]) -> None:
        byte_order = state[1]
        if byte_order in ("<", ">"):
            self.code = f"{byte_order}{self.code}"


class PlainArray:
    """A stand-in for numpy.ndarray, which `to_plain` replaces by its array."""

    def __init__(self, *_: object) -> None:
        self.array: NDArray[np.generic] = np.empty(0)

    def __setstate__(self, state: tuple[object, tuple[int, ...], PlainType, bool, bytes]) -> None:
        _, shape, dtype, fortran, raw = state
        self.array = to_array(raw, dtype, shape, "F" if fortran else "C")


def from_buffer(raw: bytes, dtype: PlainType, shape: tuple[int, ...], order: Literal["C", "F"]) -> PlainArray:
    """Return an array as protocol 5 writes it."""
    array = PlainArray()
    array.array = to_array(raw, dtype, shape, order)
    return array


def to_array(
    raw: bytes, dtype: PlainType, shape: tuple[int, ...], order: Literal["C", "F"]
) -> NDArray[np.generic]:
    """Return the array of some bytes. Raise UnpicklingError if it is empty with a long dimension."""
    flat = np.frombuffer(raw, np.dtype(dtype.code))
    if not flat.size and max(shape) > LONGEST_EMPTY:
        raise pickle.UnpicklingError(f"an empty array of shape {shape}")
    return flat.reshape(shape, order=order)


def scalar(dtype: PlainType, raw: bytes) -> str | int | float | bool:
    """Return one number or text of numpy as Python's."""
    value: str | int | float | bool = np.frombuffer(raw, np.dtype(dtype.code))[0].item()
    return value


def encode(text: str, encoding: str) -> bytes:
    """Return bytes as protocols 0 to 2 write them."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes in {encoding!r}")
    return text.encode("latin-1")


def no_bytes() -> bytes:
    """Return the empty bytes of protocols 0 to 2."""
    return b""


Built = PlainType | PlainArray | str | int | float | bool | bytes  # by a function that a pickle names


class Named:
    """A function that a pickle may name: it can be called, and nothing else can be done with it."""

    __slots__ = ("call",)
    call: Callable[..., Built]

    def __init__(self, call: Callable[..., Built]) -> None:
        object.__setattr__(self, "call", call)

    def __call__(self, *arguments: object) -> Built:
        return self.call(*arguments)

    def __setattr__(self, name: str, value: object) -> None:
        raise pickle.UnpicklingError(f"it sets {name!r} of a function")


ALLOWED = {
    ("numpy", "ndarray"): Named(PlainArray),
    ("numpy", "dtype"): Named(PlainType),
    ("_codecs", "encode"): Named(encode),
    ("__builtin__", "bytes"): Named(no_bytes),
    **{(f"numpy.{core}.multiarray", "_reconstruct"): Named(PlainArray) for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): Named(scalar) for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): Named(from_buffer) for core in ("core", "_core")},
}


class PlainUnpickler(pickle.Unpickler):
    """An unpickler of plain values, which raises UnpicklingError for any other name in a file."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content))
        self.bytes_left = SPARE_BYTES + 2 * len(content)

    def limited(self, call: Callable[..., Built]) -> Named:
        """Return a function whose texts count against `bytes_left`: a file can copy one text many times."""

        def call_within_limit(*arguments: object) -> Built:
            value = call(*arguments)
            if isinstance(value, str | bytes):
                self.bytes_left -= BYTES_PER_CHARACTER * len(value)
            if self.bytes_left < 0:
                raise pickle.UnpicklingError("its texts take more memory than they have in the file")
            return value

        return Named(call_within_limit)

    def find_class(self, module: str, name: str) -> Named:
        if (module, name) not in ALLOWED:
            full_name = f"{module[:80]}.{name[:80]}"
            raise pickle.UnpicklingError(
                f"it names {full_name}, and only numbers, strings, lists and numpy arrays are read"
            )
        allowed = ALLOWED[module, name]
        return self.limited(allowed) if name in ("encode", "scalar") else allowed

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("it names an object outside of it")


def check_instructions(content: bytes) -> None:
    """Raise ValueError for an instruction that can be slow or large and that plain values do not need.

    These are instructions that fill a dict or set, which recurse as deep as its keys are nested; that reach
    beyond the end of the file or of a frame, where Python's reader allocates the length or reads other
    bytes; and that name a memo slot far beyond the next one, for which the reader allocates all slots before
    it.
    """
    stream = io.BytesIO(content)
    frame_end = 0
    try:
        for index, (opcode, value, position) in enumerate(pickletools.genops(stream)):
            name = opcode.name
            start = position or 0
            argument = value or 0
            if name in FILLS_DICT_OR_SET:
                raise pickle.UnpicklingError(
                    "a dict among its values, or a set, "
                    "and only numbers, strings, lists and numpy arrays are read"
                )
            if start < frame_end and (name == "FRAME" or stream.tell() > frame_end):
                raise ValueError("an instruction across the end of a frame")
            if name == "FRAME":
                frame_end = stream.tell() + argument
                if frame_end > len(content):
                    raise ValueError("a frame beyond the end")
            if name in NAMES_MEMO_SLOT and not 0 <= argument <= index:
                raise ValueError("it names a memo slot that is not the next one")
    except pickle.UnpicklingError as error:
        raise ValueError(f"pickle refused: {error}") from None
    except Exception as error:  # a corrupt stream can fail in any way
        raise ValueError(f"pickle corrupt ({first_line(error)})") from None


def read_plain_pickle(content: bytes) -> Plain:
    """Return the values of a pickle. Raise ValueError if it is corrupt or has other than plain values."""
    if len(content) > LARGEST_FILE:
        raise ValueError(f"pickle refused: has {len(content):,} bytes, more than {LARGEST_FILE:,}")
    check_instructions(content)
    try:
        return to_plain(PlainUnpickler(content).load(), {})
    except pickle.UnpicklingError as error:
        raise ValueError(f"pickle refused: {error}") from None
    except Exception as error:  # a corrupt stream can fail in any way
        raise ValueError(f"pickle corrupt ({type(error).__name__}: {first_line(error)})") from None


def to_plain(value: object, converted: dict[int, list[Plain]]) -> Plain:
    """Return a value with arrays of numpy, and lists in place of tuples.

    A value that occurs more than once is converted once, so that lists in lists do not grow exponentially.
    """
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, list | tuple):
        items = converted.get(id(value))
        if items is None:
            items = []
            converted[id(value)] = items
            items.extend(item if type(item) in PLAIN_TYPES else to_plain(item, converted) for item in value)
        return items
    if isinstance(value, PlainArray):
        return value.array
    raise pickle.UnpicklingError(f"a {type(value).__name__} among its values")
