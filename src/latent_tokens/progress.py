"""Progress bars on standard error: description, bar, figures, remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from latent_tokens import processes

CONSOLE = Console(
    stderr=True, markup=False, highlight=False, soft_wrap=True, quiet=not processes.is_main()
)

Advance = Callable[[int, str], None]
Report = Callable[[int], None]
"""What a function calls with the number of things that it has just done."""


@contextmanager
def progress(description: str, total: int | None, done: int = 0) -> Iterator[Advance]:
    """Yield advance(steps, figures), which moves a progress bar.

    Without a terminal there is no bar. The figures are printed at each tenth of the total, if there
    is one. When its block ends without an error, the bar is complete.

    Example:
        with progress("scdm on sudoku-6", total=100) as advance:
            for _ in range(100):
                advance(1, "loss 1.250")
    """
    # The bar, which is hidden without a terminal.
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=CONSOLE, disable=not CONSOLE.is_terminal) as bar:
        line = bar.add_task(description, total=total, completed=done, figures="")
        completed = done

        # Without a terminal, a line per tenth of the total.
        def advance(steps: int, figures: str = "") -> None:
            nonlocal completed
            before = completed
            completed += steps
            bar.update(line, completed=completed, figures=figures)
            if total and not CONSOLE.is_terminal and 10 * before // total < 10 * completed // total:
                CONSOLE.print(f"{description}: {completed}/{total} {figures}".rstrip())

        yield advance
        # It ends at its end, also if fewer steps were there to take, or none was reported.
        bar.update(line, total=completed or total, completed=completed or total)


@contextmanager
def counting(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yield count(number), which moves a progress bar whose figure is a rate per second."""
    with progress(description, total) as advance:
        start_time = time.perf_counter()
        done = 0

        def count(number: int) -> None:
            nonlocal done
            done += number
            advance(number, f"{done / (time.perf_counter() - start_time):,.0f}/s")

        yield count
