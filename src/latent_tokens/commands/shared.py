"""Functions that several commands use."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True)
class OwnCode:
    """Parts that a model directory lacks: code of a user, or the base of a LoRA adapter if it was moved.

    A module is imported only if its name is typed.
    """

    task: str | None = None
    """Task of the model if it is your own, as module:Name. Default: that of the model."""
    method: str | None = None
    """Method of the model if it has functions of your own, as module:name. Default: that of the model."""
    base: str | None = None
    """Base of a LoRA adapter, by directory or name. Default: the one that it was trained with."""


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


def keep_freed_memory() -> None:
    """Make glibc keep freed memory.

    A training step on a CPU allocates the same large blocks each time, and new blocks cost page faults.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


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
