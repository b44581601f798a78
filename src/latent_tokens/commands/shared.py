"""Functions that several commands use."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from latent_tokens.configs import DEFAULT_CANDIDATES, NumCandidates, NumLatents

if TYPE_CHECKING:
    from latent_tokens.core.methods import Method
    from latent_tokens.network.transformer import Transformer
    from latent_tokens.tasks import Solvable, Text


@dataclass(frozen=True)
class OwnCode:
    """Code of a user that a model needs. A module is imported only if its name is typed."""

    task: str | None = None
    """Task of the model if it is your own, as module:Name. Default: that of the model."""
    method: str | None = None
    """Method of the model if it has functions of your own, as module:name. Default: that of the model."""


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


def keep_freed_memory() -> None:
    """Make glibc keep freed memory.

    A training step on a CPU allocates the same large blocks each time, and new blocks cost page faults.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


def model_of(run: str | Path, method: str | None = None, base: str | Path | None = None) -> Transformer:
    """Return the model of a run directory or a bundled model, on the fastest device available.

    Args:
        run: the directory or name.
        method: the typed name of its method. None: that of the model.
        base: the model that a LoRA adapter belongs to. None: the one that it was trained with.

    Raises:
        ValueError: there is no such model, or it has another method.
    """
    from latent_tokens.bench.machine import fastest_device

    return opened(run, method, base).to(fastest_device())


def opened(run: str | Path, method: str | None = None, base: str | Path | None = None) -> Transformer:
    """Return the model of `model_of`, on the CPU. Raise as it does."""
    from latent_tokens.checkpoints.pretrained import from_pretrained
    from latent_tokens.checkpoints.stored_methods import load_method
    from latent_tokens.core.methods import name_of

    loaded = None if method is None else load_method(method)
    net = from_pretrained(run, base=base)
    if loaded is not None and net.method != loaded:
        other = name_of(net.method)
        raise ValueError(f"method={method}: the model has another method, {other}. Leave it out.")
    return net


def task_of(folder: Path, name: str | None = None) -> Solvable | Text:
    """Return the task that the model of a run directory learned.

    Args:
        folder: the directory.
        name: the typed name of the task. None: that of the model.

    Raises:
        ValueError: the task cannot be made from its description, or is another one than the typed one.
    """
    from latent_tokens.storage import read_description
    from latent_tokens.tasks import Solvable, Text, described, named

    if name is not None:
        task = named(name)
        learned = read_description(folder, "config.json", "model").get("task")
        learned_name = learned.get("name") if isinstance(learned, dict) else None
        if learned_name not in (None, task.name):
            problem = f"is {task.name}, and the model learned {learned_name}"
            raise ValueError(f"task={name}: {problem}. Leave it out.")
        if not isinstance(task, Solvable | Text):
            raise ValueError(f"task={name}: has no count_solutions. Inherit from latent_tokens.TaskBase.")
        return task
    description = read_description(folder, "config.json", "model")
    if "imported" in description and "task" not in description:
        raise ValueError(
            f"{folder}: was imported without a tokenizer, so it cannot generate text. "
            "Import it again with --tokenizer gpt2 or a directory with one."
        )
    try:
        return described(description.get("task"), folder)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}. In Python, pass task to load.") from None


def check_counts(
    method: Method,
    order: str,
    latents: Sequence[NumLatents | None],
    candidates: NumCandidates | None,
) -> None:
    """Raise ValueError if the order ignores the candidates, or if they leave no latent tokens."""
    from latent_tokens.core.methods import name_of
    from latent_tokens.evaluation.settings import CONFIDENCES

    if order not in CONFIDENCES and candidates not in (None, 1):
        if method.is_left_to_right:
            raise ValueError(
                f"candidates={candidates} is not supported by {name_of(method)}: it decodes the next token. "
                "Use candidates=1."
            )
        raise ValueError(
            f"candidates={candidates} with order={order}: this order decodes its next token. "
            "Use candidates=1, or order=top_prob."
        )
    is_free = method.latent_control == "free"
    for count in latents if candidates == "all" and method.latent_control != "none" else ():
        if (count == "all" and is_free) or (isinstance(count, int) and count > 0):
            reason = "all masked tokens are candidates, so none is a latent token"
            raise ValueError(
                f"latents={count} with candidates=all: {reason}. "
                f"Use candidates={DEFAULT_CANDIDATES}, or latents=0."
            )


def latents_in_words(latents: int | str, candidates: int | str, is_off_distribution: bool = False) -> str:
    """Return the number of latent tokens in the input of a step, in words."""
    if is_off_distribution:
        return f"{latents_in_words(latents, candidates)} (off-distribution)"
    if candidates == "all":
        return "0 latent tokens: all masked tokens are candidates"
    if latents == "all":
        return "all masked tokens that are not candidates are latent tokens"
    if latents == 0:
        return "0 latent tokens"
    return f"{latents} latent token{'' if latents == 1 else 's'} per step, fewer in the last steps"
