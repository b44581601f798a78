"""Progress bars on standard error for whatever takes long: description, bar, figures, time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from latent_tokens import processes

CONSOLE = Console(stderr=True, markup=False, quiet=not processes.is_main())

Advance = Callable[[int, str], None]


@contextmanager
def progress(description: str, total: int | None, done: int = 0) -> Iterator[Advance]:
    """Gives advance(by, figures). Without a terminal no bar is drawn, and the figures are printed each tenth of the way; with no `total`, neither."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=CONSOLE, disable=not CONSOLE.is_terminal) as bar:
        line = bar.add_task(description, total=total, completed=done, figures="")
        reached = done

        def advance(by: int, figures: str = "") -> None:
            nonlocal reached
            before, reached = reached, reached + by
            bar.update(line, completed=reached, figures=figures)
            if total and not CONSOLE.is_terminal and 10 * before // total < 10 * reached // total:
                CONSOLE.print(
                    f"{description}: {reached}/{total} {figures}".rstrip(), highlight=False, soft_wrap=True
                )

        yield advance


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Gives advance(by) for things of which one wants to know how many come a second."""
    with progress(what, total) as advance:
        begun, done = time.perf_counter(), 0

        def count(by: int) -> None:
            nonlocal done
            done += by
            advance(by, f"{done / (time.perf_counter() - begun):,.0f}/s")

        yield count
