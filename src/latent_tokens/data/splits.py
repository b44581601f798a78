"""Examples by split: made from a seed in any number of processes, each puzzle once and in one split."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from latent_tokens import tasks
from latent_tokens.checks import check_choice
from latent_tokens.configs import Split
from latent_tokens.progress import CONSOLE, Report
from latent_tokens.tasks import SPLITS, Examples, Keys, Task, joined, task_or_named
from latent_tokens.tasks.base import HELD_OUT, generate_checked

DRAWN_AT_ONCE = 1_024  # numbers of the seed tried in one call, at most
CHUNKS_PER_ROUND = 8  # of each process, at most, before the splits are checked again
WINDOW = 16_384  # numbers tried before a split may be declared exhausted
NUMBERS_PER_NEW = 300  # numbers tried per new example, above which it is
NOTICE_AFTER = 2.0  # seconds without an example

SplitExamples = tuple[Examples, Keys, NDArray[np.int8]]


@dataclass
class SplitBuilder:
    """Collects examples by split, each puzzle once."""

    wanted: Mapping[Split, int]  # the number of examples of each split to collect
    apart: set[int] = field(default_factory=set)  # keys of examples to leave out
    seen: set[int] = field(default_factory=set)  # the keys of all examples so far
    parts: dict[Split, list[Examples]] = field(default_factory=dict)
    counts: dict[Split, int] = field(default_factory=dict)  # of examples that were collected
    tried: int = 0  # numbers of the seed
    too_long: int = 0  # those whose example does not fit
    kept_out: int = 0  # examples of `apart`
    repeated: int = 0  # examples that were seen before
    recent_tried: int = 0  # numbers tried since the last check of `exhausted`
    recent_new: int = 0  # new examples of splits that were not full since then

    @property
    def open(self) -> list[Split]:
        """The splits that are not full."""
        return [split for split in self.wanted if self.num_missing(split) > 0]

    @property
    def lacking(self) -> int:
        """An estimate of how many more numbers it takes to fill every split."""
        shares = {split: HELD_OUT - 2 if split == "train" else 1 for split in self.open}
        return max(math.ceil(self.num_missing(s) * HELD_OUT / shares[s]) for s in shares)

    def num_missing(self, split: Split) -> int:
        """Return how many examples a split lacks."""
        return self.wanted[split] - self.counts.get(split, 0)

    def add(self, tried: int, examples: Examples, keys: Keys, splits: NDArray[np.int8]) -> int:
        """Add the new ones of the examples of `tried` numbers, and return how many were added."""
        is_new = np.zeros(len(keys), np.bool_)
        for i, key in enumerate(keys.tolist()):
            is_known = key in self.seen
            is_new[i] = not is_known and key not in self.apart
            self.kept_out += key in self.apart and not is_known
            self.repeated += is_known
            self.seen.add(key)
        self.tried += tried
        self.too_long += tried - len(keys)
        self.recent_tried += tried
        num_added = 0
        for split in self.open:
            indices = np.flatnonzero(is_new & (splits == SPLITS.index(split)))
            added = indices[: self.num_missing(split)]
            self.parts.setdefault(split, []).append(examples.take(added))
            self.counts[split] = self.counts.get(split, 0) + len(added)
            self.recent_new += len(indices)
            num_added += len(added)
        return num_added

    def exhausted(self) -> bool:
        """Return whether few recent examples were new, so that the open splits will not grow much."""
        if self.recent_tried < WINDOW:
            return False
        is_exhausted = self.recent_new * NUMBERS_PER_NEW < self.recent_tried
        self.recent_tried = 0
        self.recent_new = 0
        return is_exhausted

    def examples(self) -> dict[Split, Examples]:
        """Return the collected examples by split, and forget them."""
        filled = [split for split in self.wanted if self.counts.get(split)]
        return {split: joined(self.parts.pop(split)) for split in filled}


def make_splits(
    task: Task,
    counts: Mapping[Split, int],
    seed: int,
    *,
    apart: set[int] | None = None,
    processes: int = 1,
    report: Report = lambda num_new: None,
) -> SplitBuilder:
    """Return the first different examples of each split, the same for any number of processes.

    Args:
        task: The task that generates them.
        counts: The number of examples of each split. A split of a task that has fewer stays
            smaller.
        seed: The seed.
        apart: Keys of examples to leave out.
        processes: The number of processes that generate, at most.
        report: Receives the number of new examples of each chunk.

    Example:
        >>> make_splits(TASKS["sudoku-4"], {"train": 10}, seed=0).counts
        {'train': 10}
    """
    builder = SplitBuilder(counts, apart=set() if apart is None else apart)
    chunk = min(DRAWN_AT_ONCE, max(64, 2 * sum(counts.values())))
    compile_kernels(task)
    first = 0
    workers = min(processes, math.ceil(builder.lacking / chunk)) if builder.open else 1
    with Parallel(n_jobs=workers, return_as="generator") as pool:
        while builder.open:
            num_chunks = min(CHUNKS_PER_ROUND * workers, math.ceil(builder.lacking / chunk))
            starts = range(first, first + num_chunks * chunk, chunk)
            first = starts.stop
            jobs = (
                delayed(generate_chunk)(task, chunk, seed, start, os.getpid()) for start in starts
            )
            for generated in pool(jobs):
                if builder.open:
                    report(builder.add(chunk, *generated))
                    if builder.exhausted():
                        return builder
    return builder


def compile_kernels(task: Task) -> None:
    """Compile the task's kernels by a first call, so that other processes read them from numba's cache.

    Cached kernels older than any file of `tasks` are deleted first: numba compares only the file
    that defines a kernel, and not those that it imports.
    """
    home = Path(tasks.__file__).parent
    newest = max(file.stat().st_mtime for file in home.rglob("*.py"))
    with suppress(OSError):
        for kernel in home.rglob("__pycache__/*.nb?"):
            if kernel.stat().st_mtime < newest:
                kernel.unlink()
    text = f"{task.name}: making the first example"
    if type(task).__module__.startswith(tasks.__name__):
        text += ", which compiles the task once"
    notice = threading.Timer(NOTICE_AFTER, CONSOLE.print, [text])
    notice.start()
    try:
        generate_chunk(task, 1, 0, 0, os.getpid())
    finally:
        notice.cancel()


def generate_chunk(task: Task, count: int, seed: int, first: int, parent: int) -> SplitExamples:
    """Return (examples, keys, splits) of numbers of a seed, in `parent` or a process that ends with it."""
    end_with(parent)
    examples = generate_checked(task, count, seed, first)
    return examples, task.keys(examples), task.splits(examples)


@cache
def end_with(parent: int) -> None:
    """End this process within a second of its parent, which cannot end it itself if it is killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    if os.getpid() != parent:
        threading.Thread(target=watch, daemon=True).start()


def make_problems(
    task: Task, count: int, seed: int, report: Report = lambda num_new: None
) -> Examples:
    """Return `count` problems of the test split, or as many as the task has. Raise ValueError for none.

    If nothing is given and all lengths are equal, there is one problem, and it is repeated.
    """
    sample = generate_checked(task, 16, seed)
    if len(sample) and not sample.known.any() and (sample.lengths == sample.lengths[0]).all():
        return sample.take(np.zeros(count, np.int64))
    splits = make_splits(task, {"test": count}, seed, report=report).examples()
    if "test" not in splits:
        fix = "Widen the task, override its splits, or use a data set."
        raise ValueError(f"task={task.name}: none of its problems is in the test split. {fix}")
    return splits["test"]


def dataset(task: Task | str, split: Split, count: int, seed: int = 0) -> Examples:
    """Return generated examples of a split, which torch's DataLoader takes.

    Args:
        task: The task, or its name.
        split: "train", "validation" or "test". No example is in two splits.
        count: The number of examples. There are fewer if the task has no more.
        seed: The seed. Equal seeds are equal examples.

    Raises:
        ValueError: There is no such split.

    Example:
        >>> batch = next(iter(DataLoader(dataset("sudoku-4", "train", 64), batch_size=8)))
        >>> batch["tokens"].shape
        torch.Size([8, 16])
    """
    check_choice("split", split, SPLITS)
    task = task_or_named(task)
    examples = make_splits(task, {split: count}, seed).examples()
    return examples[split] if split in examples else generate_checked(task, 1, seed).take(slice(0))


def chunks_of(examples: Examples, size: int) -> Iterator[Examples]:
    """Yield the examples, `size` at a time."""
    for start in range(0, len(examples.tokens), size):
        yield examples.take(slice(start, start + size))
