"""Checks of input: ValueError with the name, the value and the allowed values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard, TypeVar, cast

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
C = TypeVar("C", bound="DataclassInstance")
LONGEST_LINE = 1_000  # characters
LONGEST_LABEL = 100
MOST_THREADS = 1_024
DEVICE_VARIABLE = "CUDA_VISIBLE_DEVICES"
OTHER_WORDS = {
    "learning_rate": "lr",
    "lr_scheduler_type": "schedule",
    "max_steps": "steps",
    "num_steps": "steps",
    "epochs": "steps",
    "num_epochs": "steps",
    "num_train_epochs": "steps",
    "per_device_train_batch_size": "batch_size",
    "max_grad_norm": "clip",
    "warmup_steps": "warmup",
    "output_dir": "out",
    "output": "out",
    "model": "run",
    "model_name_or_path": "run",
    "wandb": "track",
    "gpus": DEVICE_VARIABLE,
    "save_steps": "save_every",
    "eval_steps": "evaluate_every",
    "report_to": "track",
    "resume_from_checkpoint": "resume",
    "max_epochs": "steps",
    "gradient_clip_val": "clip",
    "warmup_ratio": "warmup",
    "fp16": "precision",
    "bf16": "precision",
    "torch_dtype": "precision",
    "resume_from": "resume",
    "random_state": "seed",
    "do_sample": "temperature",
    "temp": "temperature",
    "n": "latents",
    "k": "candidates",
    "n_samples": "num_samples",
    "limit": "num_samples",
    "num_return_sequences": "num_samples",
    "device": DEVICE_VARIABLE,
}
"""Settings of other libraries, and ours."""
INT64_END = 1 << 63  # the first whole number that no tensor can store


def check_min(name: str, value: object, least: int, below: float = math.inf) -> None:
    """Raise ValueError if `value` is not a number from `least`, and below a limit."""
    if not is_number(value) or not least <= value < below:
        limit = "" if below == math.inf else f", below {below}"
        raise ValueError(f"{name}={value!r}: must be a number from {least}{limit}")


def check_positive(name: str, value: object) -> None:
    """Raise ValueError if `value` is not a number above 0."""
    if not is_number(value) or not value > 0:
        raise ValueError(f"{name}={value!r}: must be a number above 0")


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is an int or a float of Python, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: object, least: int | None = None) -> bool:
    """Return whether a value is a whole number below 2^63, and not a bool. None: no lower limit."""
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and value < INT64_END
        and (least is None or value >= least)
    )


def check_int(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raise ValueError if `value` is not a whole number from `least` to `most`, or to 2^63 - 1."""
    check_plain(name, value)
    if not is_whole(value, least) or (most is not None and cast(int, value) > most):
        limit = "below 2^63" if most is None else f"at most {most:,}"
        raise ValueError(f"{name}={value!r}: must be a whole number from {least}, {limit}")


def check_plain(name: str, value: object) -> None:
    """Raise ValueError if `value` is a number of NumPy or torch, which no row of results can store."""
    is_plain = isinstance(value, int | float) or not hasattr(value, "item")
    if not is_plain and not getattr(value, "ndim", 0):
        raise ValueError(f"{name}={value!r}: must be a number of Python. Use {name}.item().")


def check_label(name: str, value: object) -> None:
    """Raise ValueError unless a value is a text of one line that fits into a table."""
    is_label = isinstance(value, str) and value.strip() and value.isprintable()
    if not is_label or len(str(value)) > LONGEST_LABEL:
        problem = f"must be a text of 1 to {LONGEST_LABEL} printable characters"
        raise ValueError(f"{name}={value!r}: {problem}")


def check_choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Raise ValueError, with the closest, if `value` is not one of the allowed values."""
    # The comparison of an array with a word is an array.
    if not isinstance(value, Hashable) or value not in allowed:
        words = [str(word) for word in allowed if word is not None]
        problem = f"must be one of {', '.join(words)}{did_you_mean(value, words)}"
        raise ValueError(f"{name}={one_line(str(value))}: {problem}")


def block_in(order: str | None) -> int | None:
    """Return the N of the order blockwise:N, or None for another order."""
    match = re.fullmatch(r"blockwise:([1-9][0-9]*)", str(order))
    return int(match[1]) if match else None


def refuse(setting: str, problem: str, fix: str) -> NoReturn:
    """Raise the ValueError of a setting that does not suit another, with what to use instead."""
    raise ValueError(f"{setting}: {problem}. Use {fix}.")


def check_function(name: str, value: object, fix: str) -> None:
    """Raise ValueError if `value` is not a function."""
    if not callable(value):
        refuse(f"{name}={one_line(str(value))}", "must be a function", fix)


def function_name(function: object) -> str:
    """Return the name of a function in a message and in results, "custom" if it has none."""
    return str(getattr(function, "__name__", "custom"))


def in_message(value: object) -> str:
    """Return a value as a message shows it: the items of a tuple without their types."""
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)


def changed(config: C, settings: Mapping[str, Any]) -> C:
    """Return a config with other values. Raise ValueError for an unknown setting."""
    check_settings(type(config), settings)
    return replace(config, **settings)


def check_settings(kind: type[DataclassInstance], settings: Iterable[str]) -> None:
    """Raise ValueError, with the closest name, unless all settings are fields of a config."""
    for name in settings:
        check_setting(name, tuple(signature(kind).parameters))


def check_setting(name: str, names: tuple[str, ...]) -> None:
    """Raise ValueError, with ours or the closest, if a setting is not one of `names`."""
    ours = our_word(name, names)
    if ours is not None:
        raise ValueError(f"setting={name}: must be one of {', '.join(names)}. Use {ours}")
    check_choice("setting", name, names)


def our_word(name: str, names: Collection[str]) -> str | None:
    """Return our word for a setting of other libraries, one of `names` or a variable, or None."""
    ours = None if name in names else OTHER_WORDS.get(name)
    return ours if ours in names or ours == DEVICE_VARIABLE else None


def did_you_mean(value: object, names: Iterable[str]) -> str:
    """Return ". Did you mean NAME?" with the name closest to a value, or "" if none is close.

    Case does not count, and of paths the last part. Of close ones, a name of the same letters is
    first: sdcm is scdm and not sidm.
    """
    last_part = {name.rpartition("/")[2].casefold(): name for name in names}
    typed = str(value).rpartition("/")[2].casefold()
    close = get_close_matches(typed, last_part)
    close.sort(key=lambda part: sorted(part) != sorted(typed))
    return f". Did you mean {last_part[close[0]]}?" if close else ""


class Registry(dict[str, T]):
    """A dict by name that raises ValueError for an unknown name, with the known ones.

    Args:
        kind: what the names are, for the message.
        rows: the entries.
        other: returns the value of a name that is not an entry, or None.
        also: names that `other` knows, for the message.

    Example:
        SIZES = Registry("size", {"nano": Size(128, 4, 4)})
        SIZES["nan"]  # ValueError: size=nan: must be one of nano. Did you mean nano?
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
        value = self.other(name) if isinstance(name, str) else None
        if value is None:
            names = [*self, *self.also]
            choices = f"must be one of {', '.join(names)}{did_you_mean(name, names)}"
            raise ValueError(f"{self.kind}={name}: {choices}")
        return value


def check_out(out: Path, hint: str = "") -> None:
    """Raise ValueError if `out` exists and is not an empty directory, or is below a file.

    So nothing is overwritten. `hint` is a further way to fix it: a sentence and a space.
    """
    if out.resolve() == Path.cwd():
        raise ValueError(f"out={out}: is the current directory. Choose another directory.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        fix = f"{hint}Choose another directory, or remove this one."
        raise ValueError(f"out={out}: exists and is not empty. {fix}")
    file = next((parent for parent in out.parents if parent.is_file()), None)
    if file is not None:
        raise ValueError(f"out={out}: {file} is a file. Choose another directory.")


def check_package(package: str, extra: str, name: object) -> None:
    """Raise ValueError if a package of an extra, which `name` needs, is not installed."""
    if find_spec(package) is None:
        fix = f"Install it (pip install 'latent-tokens[{extra}]')"
        raise ValueError(f"{name}: {package} is not installed. {fix}.")


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its type if the message is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def printable(text: str, also: str = "") -> str:
    """Return a text with its control characters escaped, except for those in `also`."""
    return "".join(
        character if character.isprintable() or character in also else ascii(character)[1:-1]
        for character in text
    )


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """Return a text on one line, control characters escaped, cut after `longest` characters."""
    return printable(text[:longest]) + " ..." * (len(text) > longest)
