"""How fast this machine makes examples: a rate for one process and for two, measured in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from joblib import Parallel, delayed

from latent_tokens.data.splits import CHUNK, compile_kernels
from latent_tokens.progress import progress
from latent_tokens.tasks import TASKS, Sudoku, SudokuPuzzle, Task, description

ROUNDS = 5
SECONDS = 1.0  # of work for one process in each round

Row = dict[str, Any]


def kinds(task: Task) -> dict[str, Task]:
    """What is measured of a task, by name; for 9x9 puzzles, where nothing else is asked, three kinds."""
    if task == TASKS["sudoku-puzzle"] and isinstance(task, SudokuPuzzle):
        free = replace(task, guessing="allowed")
        return {
            "unique puzzles at 30 clues": replace(free, clues=30),
            "unique minimal puzzles": replace(free, clues="minimal"),
            "unique minimal puzzles that need no guessing": replace(task, guessing="never", clues="minimal"),
        }
    if isinstance(task, Sudoku):
        return {f"{task.side}x{task.side} boards, {task.source}": task}
    about = ", ".join(f"{name}={value}" for name, value in description(task).items() if name != "name")
    return {f"puzzles, {about}": task}


def measure_rates(task: Task) -> Iterator[Row]:
    """A row {task, what, rate, unit, cores} for each kind and number of processes: the median examples a second of five rounds."""
    for what, kind in kinds(task).items():
        compile_kernels(kind)
        count = calibrate(kind)
        rates: dict[int, list[float]] = {1: [], 2: []}
        with Parallel(n_jobs=2) as pool, progress(f"measuring {what}", 2 * ROUNDS) as advance:
            pool(delayed(make)(kind, 1, number) for number in range(4))
            for number in range(ROUNDS):
                for cores, found in rates.items():
                    begun = time.perf_counter()
                    made = sum(pool(delayed(make)(kind, count, 2 * number + part) for part in range(cores)))
                    found.append(made / (time.perf_counter() - begun))
                    advance(1, "")
        for cores, found in rates.items():
            yield {
                "task": task.name,
                "what": what,
                "rate": round(statistics.median(found)),
                "unit": "examples/s",
                "cores": cores,
            }


def make(task: Task, count: int, number: int) -> int:
    """How many examples a process has made, in chunks as they are made for data sets; fewer than `count` where some do not fit."""
    starts = range(number * count, (number + 1) * count, CHUNK)
    return sum(
        len(task.generate(min(CHUNK, starts.stop - start), seed=0, first=start).tokens) for start in starts
    )


def calibrate(task: Task) -> int:
    """How many examples one process makes in about SECONDS."""
    count = 16
    while True:
        begun = time.perf_counter()
        task.generate(count, seed=1)
        taken = time.perf_counter() - begun
        if taken > SECONDS / 8:
            return max(1, round(count * SECONDS / taken))
        count *= 2
