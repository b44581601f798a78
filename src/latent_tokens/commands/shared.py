"""What several commands do."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


def keep_freed_memory() -> None:
    """Lets glibc keep what is freed: a CPU training step asks for the same large blocks each time, and fresh ones cost page faults."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


def model_of(run: str | Path) -> Any:
    """The model of a run folder, or one that comes along, on the fastest device that is there."""
    from latent_tokens.machine import fastest_device
    from latent_tokens.pretrained import from_pretrained

    return from_pretrained(run).to(fastest_device())


def task_of(folder: Path) -> Any:
    """The task that a run folder's model learned."""
    from latent_tokens.storage import read_description
    from latent_tokens.tasks import described

    about = read_description(folder, "config.json", "model")
    if "imported" in about and "task" not in about:
        raise ValueError(
            f"{folder}: was imported without a tokenizer, so it writes no text; import it again with --tokenizer gpt2, or a folder with one"
        )
    try:
        return described(about.get("task"), folder)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}; bring the task and evaluate in Python: evaluate(net, task, EvalConfig())") from None
