"""Pickles of plain values: numbers, strings, lists and numpy arrays are read, anything else is refused before it can run.

No function named in a file is ever called, numpy's own included: the few names that arrays need stand for what is below.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from collections.abc import Callable
from typing import Any, Literal

import numba
import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import first_line

LONGEST_EMPTY = 1_000
SPARE_ROOM = 1 << 26  # bytes that texts may take beside twice those of the file
COPIED = 4  # bytes of a character at most
FITS, CUT_OFF, FILLS, FAR = range(4)  # what `look` finds
LINES, UNKNOWN = -10, -100  # arguments of so many lines less LINES; no instruction
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
        self.array = shaped(raw, kind, shape, "F" if fortran else "C")


def from_buffer(raw: bytes, kind: PlainType, shape: Any, order: Literal["C", "F"]) -> PlainArray:
    """An array as protocol 5 writes it."""
    made = PlainArray()
    made.array = shaped(raw, kind, shape, order)
    return made


def shaped(raw: bytes, kind: PlainType, shape: Any, order: Literal["C", "F"]) -> NDArray[Any]:
    """The array of some bytes; with none of them no dimension is long, as one can be beside a zero."""
    flat = np.frombuffer(raw, np.dtype(kind.code))
    if not flat.size and max(shape) > LONGEST_EMPTY:
        raise pickle.UnpicklingError(f"an empty array of shape {shape}")
    return flat.reshape(shape, order=order)


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


class Named:
    """What a name of a pickle stands for: it can be called, and nothing else can be done with it."""

    __slots__ = ("call",)
    call: Callable[..., Any]

    def __init__(self, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "call", call)

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def __setattr__(self, name: str, value: object) -> None:
        raise pickle.UnpicklingError(f"it sets {name!r} of what it names")


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
    """Reads plain values. Raises UnpicklingError naming whatever else a file asks for."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content))
        self.room = SPARE_ROOM + 2 * len(content)

    def counted(self, call: Callable[..., Any]) -> Named:
        """A function whose texts and bytes take of the room that there is: a file can have one text copied again and again."""

        def within_room(*arguments: Any) -> Any:
            value = call(*arguments)
            self.room -= COPIED * len(value) if isinstance(value, str | bytes) else 0
            if self.room < 0:
                raise pickle.UnpicklingError("its texts take more memory than they have in the file")
            return value

        return Named(within_room)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            asked = f"{module[:80]}.{name[:80]}"
            raise pickle.UnpicklingError(
                f"it names {asked}, and only numbers, strings, lists and numpy arrays are read"
            )
        allowed = ALLOWED[module, name]
        return self.counted(allowed) if name in ("encode", "scalar") else allowed

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it names an object outside of it")


def arguments() -> NDArray[np.int64]:
    """For each byte, what its instruction is followed by: so many bytes; pickletools' -2 to -5 for a length and so many; LINES - n for n lines."""
    sizes = np.full(256, UNKNOWN)
    for code in pickletools.opcodes:
        size = 0 if code.arg is None else code.arg.n
        lines = 2 if code.arg is pickletools.stringnl_noescape_pair else 1
        sizes[ord(code.code)] = LINES - lines if size == pickletools.UP_TO_NEWLINE else size
    return sizes


@numba.njit(cache=True)
def look(content, sizes):  # type: ignore[no-untyped-def]  # noqa: PLR0911
    """What a pickle would do that no plain values need: FITS for nothing of it. Nothing of it is done.

    CUT_OFF: reach beyond its end. FILLS: put something into a dict or set, which goes as deep as its keys are nested. FAR: ask for a place in
    memory that is not next, for which readers make room for all before it.
    """
    at, frame = 0, 0  # where it ends: what reaches beyond it is read elsewhere by Python's own reader
    for count in range(len(content)):
        if at >= len(content):
            return CUT_OFF
        code, size = content[at], sizes[content[at]]
        at += 1
        start = at
        if code == 46 or size == UNKNOWN:  # the end, or what the reader will complain of
            return FITS
        if code in (100, 115, 117, 0x90, 0x91):  # DICT SETITEM SETITEMS ADDITEMS FROZENSET
            return FILLS
        if size >= 0:
            at += size
        elif size < LINES:
            for _ in range(LINES - size):
                while at < len(content) and content[at] != 10:
                    at += 1
                at += 1
        else:
            width = 1 if size == -2 else 8 if size == -5 else 4
            if start + width > len(content):
                return CUT_OFF
            length = 0
            for place in range(width - 1, -1, -1):
                length = 256 * length + content[start + place]
                if length > len(content):
                    return CUT_OFF
            at += width + length
        if at > len(content) or start <= frame < at:
            return CUT_OFF
        if code == 0x95:  # FRAME
            length = 0
            for place in range(at - 1, start - 1, -1):
                length = 256 * length + content[place]
                if length > len(content) - at:
                    return CUT_OFF
            if start <= frame:
                return CUT_OFF
            frame = at + length
        if code in (114, 112):  # LONG_BINPUT PUT
            place = 0
            for index in range(start, at - (code == 112)):
                digit = content[start + at - 1 - index] if code == 114 else content[index] - 48
                if code == 112 and not 0 <= digit <= 9:
                    return FAR
                place = (256 if code == 114 else 10) * place + digit
                if place > count:
                    return FAR
    return CUT_OFF


WRONG = {
    CUT_OFF: "damaged (it is cut off)",
    FILLS: "refused: a dict among its values, or a set, and only numbers, strings, lists and numpy arrays are read",
    FAR: "damaged (it asks for room that it does not fill)",
}


def read_plain_pickle(content: bytes) -> Any:
    """What a pickle holds. Raises ValueError where it is damaged, or holds anything but plain values."""
    found = look(np.frombuffer(content, np.uint8), arguments())
    if found != FITS:
        raise ValueError(f"pickle {WRONG[found]}")
    try:
        return plain(PlainUnpickler(content).load(), {})
    except pickle.UnpicklingError as error:
        raise ValueError(f"pickle refused: {error}") from None
    except Exception as error:  # a damaged stream can fail in any way
        raise ValueError(f"pickle damaged ({type(error).__name__}: {first_line(error)})") from None


def plain(value: Any, done: dict[int, Any]) -> Any:
    """The value with its arrays as numpy's and its tuples as lists; what stands in it more than once is made once."""
    if isinstance(value, list | tuple):
        if id(value) not in done:
            made: list[Any] = []
            done[id(value)] = made
            made.extend(plain(item, done) for item in value)
        return done[id(value)]
    if isinstance(value, PlainArray):
        return value.array
    if isinstance(value, str | int | float | None):
        return value
    raise pickle.UnpicklingError(f"a {type(value).__name__} among its values")
