"""Checks of what a user gives: each raises ValueError with the name, the value and what was allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
LONGEST_LINE = 1_000  # signs
LARGEST = 1 << 63  # what no tensor counts to


def check_min(name: str, value: object, least: int) -> None:
    """Raises ValueError where `value` is no number from `least`."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value >= least:
        raise ValueError(f"{name}={value}: must be a number from {least}")


def is_whole(value: object, least: int | None = None) -> bool:
    """Whether a value is a whole number below 2^63, and no truth value; from `least` where there is one."""
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and value < LARGEST
        and (least is None or value >= least)
    )


def check_int(name: str, value: object, least: int) -> None:
    """Raises ValueError where `value` is no whole number from `least` to 2^63 - 1."""
    if not is_whole(value, least):
        raise ValueError(f"{name}={value}: must be a whole number from {least}, below 2^63")


def check_choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Raises ValueError where `value` is none of those allowed."""
    if value not in allowed:
        words = [str(word) for word in allowed if word is not None]
        raise ValueError(f"{name}={value}: must be one of {', '.join(words)}{did_you_mean(value, words)}")


def did_you_mean(value: object, names: Iterable[str]) -> str:
    """A sentence with the name that is closest to a value; nothing if none is close. It follows other words."""
    close = get_close_matches(str(value), list(names), 1)
    return f". Did you mean {close[0]}?" if close else ""


class Registry(dict[str, T]):
    """A table of named things: a dict that answers an unknown name with a ValueError that lists the known ones.

    `other` may return a value for a name that is not in the table, or None. `also` are such names, for the message.
    """

    def __init__(
        self,
        kind: str,
        rows: Mapping[str, T],
        other: Callable[[str], T | None] = lambda name: None,
        also: tuple[str, ...] = (),
    ) -> None:
        super().__init__(rows)
        self.kind = kind
        self.other = other
        self.also = also

    def __missing__(self, name: str) -> T:
        found = self.other(name) if isinstance(name, str) else None
        if found is None:
            names = [*self, *self.also]
            raise ValueError(
                f"{self.kind}={name}: must be one of {', '.join(names)}{did_you_mean(name, names)}"
            )
        return found


def check_out(out: Path, otherwise: str = "") -> None:
    """Raises ValueError if `out` exists and is not an empty directory: nothing is overwritten. `otherwise` is a further way out."""
    if out.resolve() == Path.cwd():
        raise ValueError(f"out={out}: is the current directory. Choose another directory.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(
            f"out={out}: exists and is not empty. {otherwise}Choose another directory, or remove this one."
        )


def ask_hub(name: str, file: str, revision: str | None = None, token: str | bool | None = None) -> None:
    """Raises what the hub's library raises where the hub has no such file, or is not there. It is asked once: the library would try for half a
    minute, and say so each time.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    get_hf_file_metadata(hf_hub_url(name, file, revision=revision), token=token)


def first_line(error: Exception) -> str:
    """What an error of another library says, on one line; its type where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def printable(text: str, also: str = "") -> str:
    """A text whose signs that a terminal might obey are spelt out, but for those of `also`."""
    return "".join(sign if sign.isprintable() or sign in also else ascii(sign)[1:-1] for sign in text)


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """A text without line breaks and other signs that a terminal might obey, cut where it is longer than so many signs."""
    return printable(text[:longest]) + " ..." * (len(text) > longest)
