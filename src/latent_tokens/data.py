"""Data sets: made from a seed or read from a file, split so that no puzzle stands in two splits, pinned by a manifest."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config
from numpy.typing import NDArray

from latent_tokens.configs import DataConfig, Split, check_out
from latent_tokens.progress import CONSOLE
from latent_tokens.storage import FORMAT, json_bytes, provenance, read_description, write_whole
from latent_tokens.tasks import SPLITS, Examples, Puzzles, Sudoku, SudokuPuzzle, Task, configured, described, description, joined
from latent_tokens.tasks.sources import read_source

GENERATOR = 1  # raised when a change gives other examples for the same task and seed
CHUNK = 1_024  # numbers tried at a time, at most
ROUND = 8  # chunks a process makes between two looks at whether they suffice
IDLE = 10  # seconds after which a process without work ends; one whose parent was killed, too
PATIENCE, HARDLY = 16_384, 300  # a split is as large as it gets where of so many numbers less than one in so many is new

Report = Callable[[int], None]


@dataclass
class Sieve:
    """Examples by split, each puzzle once, up to the counts that are wanted; and how many were passed over."""

    wanted: Mapping[Split, int]
    parts: dict[Split, list[Examples]] = field(default_factory=dict)
    kept: dict[Split, int] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    tried: int = 0  # numbers of the seed, or records of the file
    too_long: int = 0
    repeated: int = 0
    recent: list[int] = field(default_factory=lambda: [0, 0])  # tried, and new in an open split, since the last look

    @property
    def open(self) -> list[Split]:
        """The splits that are not full."""
        return [split for split in self.wanted if self.kept.get(split, 0) < self.wanted[split]]

    def add(self, tried: int, examples: Examples, keys: NDArray[np.uint64], splits: NDArray[np.int8]) -> int:
        """Takes what is new of the examples of `tried` numbers; gives how many that were."""
        before = sum(self.kept.values())
        fresh = np.array([not (key in self.seen or self.seen.add(key)) for key in keys.tolist()], np.bool_)  # type: ignore[func-returns-value]
        self.tried, self.too_long, self.repeated = self.tried + tried, self.too_long + tried - len(keys), self.repeated + int((~fresh).sum())
        new = 0
        for split in self.open:
            found = np.flatnonzero(fresh & (splits == SPLITS.index(split)))
            taken = found[: self.wanted[split] - self.kept.get(split, 0)]
            self.parts.setdefault(split, []).append(examples.take(taken))
            self.kept[split] = self.kept.get(split, 0) + len(taken)
            new += len(found)
        self.recent = [self.recent[0] + tried, self.recent[1] + new]
        return sum(self.kept.values()) - before

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
) -> Sieve:
    """The first `counts` different examples of each split; the same on any number of processes. `report` hears how many are new.

    A split of which the task has not so many stays smaller; examples whose keys are among `seen` do not come in.
    """
    sieve = Sieve(counts, seen=set() if seen is None else seen)
    chunk = min(CHUNK, max(64, 2 * sum(counts.values())))
    compile_kernels(task)
    first = 0
    with parallel_config("loky", idle_worker_timeout=IDLE), Parallel(n_jobs=processes, return_as="generator") as pool:
        while sieve.open:
            starts = range(first, first + ROUND * processes * chunk, chunk)
            first = starts.stop
            for made in pool(delayed(sorted_chunk)(task, chunk, seed, start) for start in starts):
                if sieve.open:
                    report(sieve.add(chunk, *made))
                    if sieve.exhausted():
                        return sieve
    return sieve


def compile_kernels(task: Task) -> None:
    """Makes the first call, which compiles what later ones and other processes then find; says so where it took long."""
    begun = time.perf_counter()
    sorted_chunk(task, 1, 0, 0)
    seconds = time.perf_counter() - begun
    if seconds > 1:
        CONSOLE.print(f"compiled {task.name} in {seconds:.1f} s; the next time it is at hand", highlight=False)


def sorted_chunk(task: Task, count: int, seed: int, first: int) -> tuple[Examples, NDArray[np.uint64], NDArray[np.int8]]:
    """(examples, their keys, their splits) of some numbers of a seed."""
    examples = task.generate(count, seed, first)
    return examples, task.keys(examples), task.splits(examples)


def read_splits(task: Puzzles, config: DataConfig, report: Report = lambda done: None) -> tuple[Sieve, list[str]]:
    """(the examples of the config's file by split, what was wrong with rows left out); all in `config.split` where it names one."""
    examples, bad = read_source(task, Path(str(config.source)), config.skip_bad, report)
    keys, splits = task.keys(examples), task.splits(examples)
    if config.split is not None:
        splits = np.full_like(splits, SPLITS.index(config.split))
    wanted = {split: len(keys) if count is None else count for split, count in asked_for(config).items()}
    sieve = Sieve(wanted, seen=keys_of(config.apart_from, task))
    sieve.add(len(keys), examples, keys, splits)
    return sieve, bad


def keys_of(folders: Sequence[Path], task: Task) -> set[int]:
    """The keys of all examples of some data sets. Raises ValueError where one cannot be read or is of another kind of task."""
    keys: set[int] = set()
    for folder in folders:
        other, splits = load_data(folder)
        if type(other) is not type(task) and not {type(other), type(task)} <= {Sudoku, SudokuPuzzle}:
            raise ValueError(f"apart_from={folder}: holds {other.name}, which has no puzzle in common with {task.name}")
        for examples in splits.values():
            keys |= set(other.keys(examples).tolist())
    return keys


def fingerprint(examples: Examples) -> str:
    """SHA-256 of the tokens, then of which are known, then of the lengths."""
    whole = hashlib.sha256()
    for part in examples:
        whole.update(np.ascontiguousarray(part).data)
    return whole.hexdigest()


def task_of(config: DataConfig) -> Puzzles:
    """The task with the config's changes. Raises ValueError for one that it does not take."""
    made_here = config.source in ("solver", "pattern")
    names = ("padding", "clues", "guessing", "houses", "attributes", "numbers", "targets", *(["source"] * made_here))
    return configured(config.task, {name: getattr(config, name) for name in names if getattr(config, name) is not None})


def asked_for(config: DataConfig) -> dict[Split, int | None]:
    """How many examples of each split the config names."""
    return {"train": config.num_train, "validation": config.num_validation, "test": config.num_test}


def make_data(config: DataConfig, report: Report = lambda done: None) -> Path:
    """The folder with the data set: {train,validation,test}.{tokens,known,lengths}.npy and manifest.json; there whole or not at all.

    Raises ValueError where the folder is there and not empty, for settings that the task has not, and for a source that cannot be read.
    """
    check_out(config.folder)
    task = task_of(config)
    origin: dict[str, Any]
    if config.from_file:
        sieve, bad = read_splits(task, config, report)
        content = Path(str(config.source)).read_bytes()
        origin = {"file": Path(str(config.source)).name, "file_sha256": hashlib.sha256(content).hexdigest(), "bad_rows": bad}
    else:
        counts = how_many(task, config)
        processes, seen = config.processes or os.cpu_count() or 1, keys_of(config.apart_from, task)
        sieve = make_splits(task, counts, config.seed, seen=seen, processes=processes, report=report)
        origin = {"seed": config.seed, "generator": GENERATOR, "smaller_than_asked": {split: counts[split] for split in sieve.open}}
    passed = {"tried": sieve.tried, "too_long": sieve.too_long, "repeated": sieve.repeated, "note": getattr(task, "note", None)}
    splits = sieve.examples()
    about = {split: {"examples": len(examples.tokens), "sha256": fingerprint(examples)} for split, examples in splits.items()}
    manifest = {"format": FORMAT, "task": description(task), **origin, **passed, "splits": about, "made_with": provenance()}
    write_folder(config.folder, splits, manifest)
    return config.folder


def how_many(task: Task, config: DataConfig) -> dict[Split, int]:
    """The examples to make of each split: as asked for, else the task's own number and 1,024 for each of the others."""
    default = {"train": task.num_train, "validation": 1_024, "test": 1_024}
    return {split: default[split] if count is None else count for split, count in asked_for(config).items()}


def write_folder(folder: Path, splits: Mapping[Split, Examples], manifest: dict[str, Any]) -> None:
    """Writes all into a folder beside, which then takes the name; what an earlier attempt left there is removed first."""
    beside = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
        for split, examples in splits.items():
            for part, array in examples._asdict().items():
                with (beside / f"{split}.{part}.npy").open("wb") as file:
                    np.save(file, array)
                    file.flush()
                    os.fsync(file.fileno())
        write_whole({beside / "manifest.json": json_bytes(manifest)})
        if folder.is_dir():
            folder.rmdir()
        beside.rename(folder)
    except OSError as error:
        raise OSError(f"{folder}: cannot be written ({error.strerror}); nothing of it is left") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def read_manifest(folder: Path) -> tuple[Puzzles, dict[str, Any]]:
    """The task of a folder that `make_data` wrote, and its manifest. Raises ValueError where it is missing or damaged."""
    manifest = read_description(folder, "manifest.json", "data set", ("task", "splits"))
    try:
        return described(manifest["task"]), manifest
    except ValueError as error:
        raise ValueError(f"data={folder}: {error}; make the data set again") from None


def load_data(folder: Path, splits: Sequence[Split] = ("train", "validation", "test")) -> tuple[Puzzles, dict[Split, Examples]]:
    """(task, the splits asked for that the folder has). Raises ValueError where it is missing, damaged, or not what its manifest pins."""
    task, manifest = read_manifest(folder)
    return task, {split: load_split(folder, split, manifest["splits"][split]) for split in splits if split in manifest["splits"]}


def load_split(folder: Path, split: Split, pinned: Mapping[str, Any]) -> Examples:
    """One split of a folder. Raises ValueError where it cannot be read or is not what the manifest pins."""
    try:
        examples = Examples(*(np.load(folder / f"{split}.{part}.npy", allow_pickle=False) for part in Examples._fields))
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"data={folder}: {split} cannot be read ({error}); make the data set again") from None
    if fingerprint(examples) != pinned.get("sha256"):
        raise ValueError(f"data={folder}: {split} is not what its manifest pins; make the data set again")
    return examples


def preview(config: DataConfig, count: int) -> Examples:
    """The first examples that `make_data` would go through."""
    task = task_of(config)
    if config.from_file:
        return read_source(task, Path(str(config.source)), config.skip_bad, most=count)[0]
    return task.generate(count + CHUNK // 64, config.seed).take(slice(count))


def make_problems(task: Task, count: int, seed: int, report: Report = lambda done: None) -> Examples:
    """`count` problems of the test split; where nothing is given there is only one problem, again and again."""
    few = task.generate(CHUNK // 64, seed)
    if not few.known.any():
        return few.take(np.zeros(count, np.int64))
    return make_splits(task, {"test": count}, seed, report=report).examples()["test"]


def chunks_of(examples: Examples, size: int) -> Iterator[Examples]:
    """The examples, `size` at a time."""
    for start in range(0, len(examples.tokens), size):
        yield examples.take(slice(start, start + size))
