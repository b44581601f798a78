"""Examples by split: made from a seed in any number of processes, each puzzle once and in one split."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from latent_tokens import tasks
from latent_tokens.configs import Split
from latent_tokens.progress import CONSOLE
from latent_tokens.tasks import SPLITS, Examples, Task, joined
from latent_tokens.tasks.base import HELD_OUT

CHUNK = 1_024  # numbers tried at a time, at most
ROUND = 8  # chunks a process makes at most between two looks at whether they suffice
PATIENCE, HARDLY = (
    16_384,
    300,
)  # a split is as large as it gets where of so many numbers less than one in so many is new

Report = Callable[[int], None]


@dataclass
class SplitBuilder:
    """Examples by split, each puzzle once, up to the counts that are wanted; and how many were passed over."""

    wanted: Mapping[Split, int]
    parts: dict[Split, list[Examples]] = field(default_factory=dict)
    kept: dict[Split, int] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    tried: int = 0  # numbers of the seed
    too_long: int = 0
    repeated: int = 0
    recent: list[int] = field(
        default_factory=lambda: [0, 0]
    )  # tried, and new in an open split, since the last look

    @property
    def open(self) -> list[Split]:
        """The splits that are not full."""
        return [split for split in self.wanted if self.kept.get(split, 0) < self.wanted[split]]

    @property
    def lacking(self) -> int:
        """About how many more numbers it takes to fill every split."""
        share = {split: (HELD_OUT - 2 if split == "train" else 1) / HELD_OUT for split in self.open}
        return max(
            math.ceil((self.wanted[split] - self.kept.get(split, 0)) / share[split]) for split in self.open
        )

    def add(self, tried: int, examples: Examples, keys: NDArray[np.uint64], splits: NDArray[np.int8]) -> int:
        """Takes what is new of the examples of `tried` numbers; gives how many that were."""
        before = sum(self.kept.values())
        fresh = np.array([self._is_new(key) for key in keys.tolist()], np.bool_)
        self.tried, self.too_long, self.repeated = (
            self.tried + tried,
            self.too_long + tried - len(keys),
            self.repeated + int((~fresh).sum()),
        )
        new = 0
        for split in self.open:
            found = np.flatnonzero(fresh & (splits == SPLITS.index(split)))
            taken = found[: self.wanted[split] - self.kept.get(split, 0)]
            self.parts.setdefault(split, []).append(examples.take(taken))
            self.kept[split] = self.kept.get(split, 0) + len(taken)
            new += len(found)
        self.recent = [self.recent[0] + tried, self.recent[1] + new]
        return sum(self.kept.values()) - before

    def _is_new(self, key: int) -> bool:
        """Whether a key has not been there; from now on it has."""
        if key in self.seen:
            return False
        self.seen.add(key)
        return True

    def exhausted(self) -> bool:
        """Whether hardly anything new has come lately, so that the open splits are as large as they get."""
        if self.recent[0] < PATIENCE:
            return False
        (tried, new), self.recent = self.recent, [0, 0]
        return new * HARDLY < tried

    def examples(self) -> dict[Split, Examples]:
        """What was kept, by split."""
        return {split: joined(self.parts.pop(split)) for split in self.wanted if self.kept.get(split)}


def make_splits(
    task: Task,
    counts: Mapping[Split, int],
    seed: int,
    *,
    seen: set[int] | None = None,
    processes: int = 1,
    report: Report = lambda done: None,
) -> SplitBuilder:
    """The first `counts` different examples of each split; the same on any number of processes. `report` hears how many are new.

    A split of which the task has not so many stays smaller; examples whose keys are among `seen` do not come in.
    """
    sieve = SplitBuilder(counts, seen=set() if seen is None else seen)
    chunk = min(CHUNK, max(64, 2 * sum(counts.values())))
    compile_kernels(task)
    first = 0
    workers = (
        min(processes, math.ceil(sieve.lacking / chunk)) if sieve.open else 1
    )  # each has a chunk to make
    with Parallel(n_jobs=workers, return_as="generator") as pool:
        while sieve.open:
            chunks = min(ROUND * workers, math.ceil(sieve.lacking / chunk))
            starts = range(first, first + chunks * chunk, chunk)
            first = starts.stop
            for made in pool(
                delayed(sorted_chunk)(task, chunk, seed, start, os.getpid()) for start in starts
            ):
                if sieve.open:
                    report(sieve.add(chunk, *made))
                    if sieve.exhausted():
                        return sieve
    return sieve


def compile_kernels(task: Task) -> None:
    """Makes the first call, which compiles what later ones and other processes then find; says so where it took long.

    Compiled kernels that are older than a file of tasks are dropped first: numba looks only at the file a kernel stands in.
    """
    home = Path(tasks.__file__).parent
    newest = max(file.stat().st_mtime for file in home.rglob("*.py"))
    with suppress(OSError):
        for kernel in home.rglob("__pycache__/*.nb?"):
            if kernel.stat().st_mtime < newest:
                kernel.unlink()
    begun = time.perf_counter()
    sorted_chunk(task, 1, 0, 0, os.getpid())
    seconds = time.perf_counter() - begun
    if seconds > 1:
        CONSOLE.print(
            f"compiled {task.name} in {seconds:.1f} s; the next time it is at hand", highlight=False
        )


def sorted_chunk(
    task: Task, count: int, seed: int, first: int, parent: int
) -> tuple[Examples, NDArray[np.uint64], NDArray[np.int8]]:
    """(examples, their keys, their splits) of some numbers of a seed, made in the process `parent` or in one that ends with it."""
    end_with(parent)
    examples = task.generate(count, seed, first)
    return examples, task.keys(examples), task.splits(examples)


@cache
def end_with(parent: int) -> None:
    """Has this process end soon after its parent, which cannot ask for that where it is killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    if os.getpid() != parent:
        threading.Thread(target=watch, daemon=True).start()


def make_problems(task: Task, count: int, seed: int, report: Report = lambda done: None) -> Examples:
    """`count` problems of the test split, or as many as it has; where nothing is given there is only one problem, again and again.

    Raises ValueError where the test split is empty.
    """
    few = task.generate(16, seed)
    if not few.known.any():
        return few.take(np.zeros(count, np.int64))
    found = make_splits(task, {"test": count}, seed, report=report).examples()
    if "test" not in found:
        raise ValueError(
            f"{task.name} as it is set up has no problem of the test split; use wider settings, or bring a data set"
        )
    return found["test"]


def chunks_of(examples: Examples, size: int) -> Iterator[Examples]:
    """The examples, `size` at a time."""
    for start in range(0, len(examples.tokens), size):
        yield examples.take(slice(start, start + size))
