"""Rates at which examples are generated: with one process and with two, measured in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TypedDict

from joblib import Parallel, delayed

from latent_tokens.data.splits import CHUNK, compile_kernels
from latent_tokens.progress import progress
from latent_tokens.tasks import TASKS, Sudoku, SudokuPuzzle, Task, description

ROUNDS = 5
SECONDS = 1.0  # of work for one process in each round


class Row(TypedDict):
    """The rate of one kind of examples."""

    task: str
    what: str
    rate: int
    unit: str
    cores: int


def kinds(task: Task) -> dict[str, Task]:
    """Return the measured kinds of a task by name: three for the default 9x9 puzzles, otherwise one."""
    if task == TASKS["sudoku-puzzle"] and isinstance(task, SudokuPuzzle):
        free = replace(task, guessing="allowed")
        return {
            "unique puzzles at 30 clues": replace(free, clues=30),
            "unique minimal puzzles": replace(free, clues="minimal"),
            "unique minimal puzzles that need no guessing": replace(task, guessing="never", clues="minimal"),
        }
    if isinstance(task, Sudoku):
        return {f"{task.side}x{task.side} boards, {task.source}": task}
    settings = ", ".join(f"{name}={value}" for name, value in description(task).items() if name != "name")
    return {f"puzzles, {settings}": task}


def measure_rates(task: Task) -> Iterator[Row]:
    """Yield the median examples per second of five rounds, for each kind and number of processes."""
    for what, kind in kinds(task).items():
        compile_kernels(kind)
        num_examples = calibrate(kind)
        rates: dict[int, list[float]] = {1: [], 2: []}
        with Parallel(n_jobs=2) as pool, progress(f"measuring {what}", 2 * ROUNDS) as advance:
            pool(delayed(generate_examples)(kind, 1, block) for block in range(4))
            for round_number in range(ROUNDS):
                for cores, measured in rates.items():
                    start_time = time.perf_counter()
                    counts = pool(
                        delayed(generate_examples)(kind, num_examples, 2 * round_number + process)
                        for process in range(cores)
                    )
                    measured.append(sum(counts) / (time.perf_counter() - start_time))
                    advance(1, "")
        for cores, measured in rates.items():
            yield {
                "task": task.name,
                "what": what,
                "rate": round(statistics.median(measured)),
                "unit": "examples/s",
                "cores": cores,
            }


def generate_examples(task: Task, count: int, block: int) -> int:
    """Generate a block of `count` examples in chunks, as for data sets.

    Return how many fit the task's length.
    """
    starts = range(block * count, (block + 1) * count, CHUNK)
    sizes = [len(task.generate(min(CHUNK, starts.stop - start), 0, start).tokens) for start in starts]
    return sum(sizes)


def calibrate(task: Task) -> int:
    """Return how many examples one process generates in about SECONDS."""
    count = 16
    while True:
        start_time = time.perf_counter()
        task.generate(count, 1, 0)
        elapsed = time.perf_counter() - start_time
        if elapsed > SECONDS / 8:
            return max(1, round(count * SECONDS / elapsed))
        count *= 2
