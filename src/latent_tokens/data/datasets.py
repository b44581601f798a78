"""Data sets: made from a seed or read from a file, split so that no puzzle stands in two splits, pinned by a manifest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from latent_tokens.checks import check_out
from latent_tokens.configs import DataConfig, Split
from latent_tokens.data.corpus import make_text
from latent_tokens.data.splits import Report, chunks_of, make_splits
from latent_tokens.progress import counting
from latent_tokens.storage import (
    FORMAT,
    atomic_directory,
    json_bytes,
    provenance,
    read_description,
    sha256_of,
    write_atomic,
)
from latent_tokens.tasks import (
    SPLITS,
    Examples,
    Language,
    Solvable,
    Sudoku,
    SudokuPuzzle,
    Task,
    Text,
    configured,
    described,
    description,
)
from latent_tokens.tasks.readers.sources import load_npy, read_source

OF_GENERATORS = ("source", "clues", "guessing")  # settings that say nothing of a file
AT_ONCE = 10_000  # examples
GENERATOR = 1  # raised when a change gives other examples for the same task and seed


def generate_splits(
    task: Task, config: DataConfig, report: Report
) -> tuple[dict[Split, Examples], dict[str, Any]]:
    """(examples by split, what the manifest says of their origin)."""
    counts, processes = counts_of(task, config), config.processes or os.cpu_count() or 1
    sieve = make_splits(
        task, counts, config.seed, seen=keys_of(config.apart_from, task), processes=processes, report=report
    )
    passed_over = {"tried": sieve.tried, "too_long": sieve.too_long, "repeated": sieve.repeated}
    smaller = {split: counts[split] for split in sieve.open}
    return sieve.examples(), {
        "seed": config.seed,
        "generator": GENERATOR,
        **passed_over,
        "smaller_than_asked": smaller,
    }


def import_splits(
    task: Task, config: DataConfig, report: Report
) -> tuple[dict[Split, Examples], dict[str, Any]]:
    """(the examples of the config's file by split, what the manifest says of their origin); all in `config.split` where it names one.

    Where one split takes all and nothing is kept out, no more rows are read than are asked for.
    """
    file, asked = Path(str(config.source)), asked_for(config)
    enough = asked[config.split] if config.split is not None and not config.apart_from else None
    examples, bad = read_source(task, file, config.skip_bad, report, enough or None)
    keys, splits = task.keys(examples), task.splits(examples)
    if config.split is not None:
        splits = np.full_like(splits, SPLITS.index(config.split))
    kept = ~np.isin(keys, np.array(list(keys_of(config.apart_from, task)), np.uint64))
    parts = {
        split: np.flatnonzero(kept & (splits == SPLITS.index(split)))[:most] for split, most in asked.items()
    }
    smaller = {split: asked[split] for split, part in parts.items() if len(part) < (asked[split] or 0)}
    origin = {
        "file": file.name,
        "file_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "bad_rows": bad,
        "kept_out": int((~kept).sum()),
    }
    return {split: examples.take(part) for split, part in parts.items() if len(part)}, {
        **origin,
        "smaller_than_asked": smaller,
    }


def keys_of(folders: Sequence[Path], task: Task) -> set[int]:
    """The keys of all examples of some data sets. Raises ValueError where one cannot be read or is of another kind of task."""
    keys: set[int] = set()
    for folder in folders:
        other, splits = load_data(folder)
        if not isinstance(other, Task) or puzzles_of(other) != puzzles_of(task):
            raise ValueError(
                f"apart_from={folder}: holds {other.name}, which has no puzzle in common with {task.name}"
            )
        for examples in splits.values():
            keys |= set(other.keys(examples).tolist())
    return keys


def puzzles_of(task: Task) -> Any:
    """What two tasks share that can have a puzzle in common."""
    return (
        task.grid if isinstance(task, Sudoku | SudokuPuzzle) else (type(task), getattr(task, "numbers", None))
    )


def fingerprint(examples: Examples) -> str:
    """SHA-256 of the tokens, then of which are known, then of the lengths, each with its type and shape."""
    whole = hashlib.sha256()
    for part in examples:
        whole.update(f"{part.dtype} {part.shape}".encode())
        for start in range(0, len(part), AT_ONCE):  # what is mapped or repeated takes no memory as a whole
            whole.update(np.ascontiguousarray(part[start : start + AT_ONCE]).data)
    return whole.hexdigest()


def task_of(config: DataConfig) -> Solvable:
    """The task with the config's changes. Raises ValueError for one that it does not take."""
    of_ours = config.source in ("solver", "pattern")
    names = (
        "padding",
        "clues",
        "guessing",
        "houses",
        "attributes",
        "numbers",
        "targets",
        *(["source"] * of_ours),
    )
    return configured(
        config.task, {name: getattr(config, name) for name in names if getattr(config, name) is not None}
    )


def asked_for(config: DataConfig) -> dict[Split, int | None]:
    """How many examples of each split the config names."""
    return {"train": config.num_train, "validation": config.num_validation, "test": config.num_test}


def make_counted(config: DataConfig) -> Path:
    """`make_data` with a bar of how many examples there are. Raises as it does."""
    total = (
        None
        if config.from_file or config.task == Text.name
        else sum(counts_of(task_of(config), config).values())
    )
    with counting(f"making {config.task}", total) as count:
        return make_data(config, count)


def make_data(config: DataConfig, report: Report = lambda done: None) -> Path:
    """The folder with the data set: {train,validation,test}.{tokens,known,lengths}.npy and manifest.json; there whole or not at all.

    Raises ValueError where the folder is there and not empty, for settings that the task has not, and for a source that cannot be read.
    """
    check_out(config.folder)
    if config.task == Text.name:
        return make_text(config, report)
    task = task_of(config)
    with atomic_directory(config.folder) as beside:
        splits, origin = (import_splits if config.from_file else generate_splits)(task, config, report)
        if not splits:
            raise ValueError(
                f"{config.task}: no example is left of what was asked for; ask for more, or keep less out"
            )
        about = {
            split: {"examples": len(examples.tokens), "sha256": fingerprint(examples)}
            for split, examples in splits.items()
        }
        for split, examples in splits.items():
            for part, array in examples._asdict().items():
                with (beside / f"{split}.{part}.npy").open("wb") as file:
                    np.save(file, array)
                    file.flush()
                    os.fsync(file.fileno())
        apart = {str(folder): read_manifest(folder)[1]["splits"] for folder in config.apart_from}
        settings = {
            name: value
            for name, value in description(task).items()
            if not (config.from_file and name in OF_GENERATORS)
        }
        what = {"format": FORMAT, "task": settings, "note": getattr(task, "note", None), "apart_from": apart}
        write_atomic(
            {
                beside / "manifest.json": json_bytes(
                    {**what, **origin, "splits": about, "made_with": provenance()}
                )
            }
        )
    return config.folder


def counts_of(task: Task, config: DataConfig) -> dict[Split, int]:
    """The examples to make of each split: as asked for, else the task's own number and 1,024 for each of the others."""
    default = {"train": task.num_train, "validation": 1_024, "test": 1_024}
    return {split: default[split] if count is None else count for split, count in asked_for(config).items()}


def read_manifest(folder: Path) -> tuple[Language, dict[str, Any]]:
    """The task of a folder that `make_data` wrote, and its manifest. Raises ValueError where it is missing or damaged."""
    manifest = read_description(folder, "manifest.json", "data set", ("task", "splits"))
    try:
        task = described(manifest["task"], folder)
    except ValueError as error:
        raise ValueError(f"data={folder}: {error}; make the data set again") from None
    pinned = manifest["splits"]
    if not isinstance(pinned, dict) or not all(
        split in SPLITS and isinstance(about, dict) for split, about in pinned.items()
    ):
        raise ValueError(f"data={folder}: damaged (its manifest lists no splits); make the data set again")
    return task, manifest


def load_data(
    folder: Path, splits: Sequence[Split] = ("train", "validation", "test")
) -> tuple[Language, dict[Split, Examples]]:
    """(task, the splits asked for that the folder has). Raises ValueError where it is missing, damaged, or not what its manifest pins."""
    task, manifest = read_manifest(folder)
    return task, {
        split: load_split(folder, task, split, manifest["splits"][split])
        for split in splits
        if split in manifest["splits"]
    }


def change_detector(data: Path | None) -> Callable[[], bool]:
    """Tells whether the files of a data set are still those that they were now, by their size and the time they were written."""

    def seen() -> dict[str, tuple[int, int, int]]:
        files = (
            ()
            if data is None or not data.is_dir()
            else sorted(path for path in data.iterdir() if path.is_file())
        )
        return {
            path.name: (about.st_size, about.st_mtime_ns, about.st_ino)
            for path in files
            for about in [path.stat()]
        }

    before = seen()
    return lambda: seen() == before


def load_split(folder: Path, task: Language, split: Split, pinned: Mapping[str, Any]) -> Examples:
    """One split of a folder; text is mapped, not read. Raises ValueError where it is not what the manifest pins, or no such examples."""
    try:
        if isinstance(task, Text):
            tokens = load_npy(folder / f"{split}.tokens.npy")
            examples = Examples(
                tokens,
                np.broadcast_to(np.False_, tokens.shape),
                np.broadcast_to(np.uint16(task.length), tokens.shape[:1]),
            )
        else:
            examples = Examples(
                *(np.array(load_npy(folder / f"{split}.{part}.npy")) for part in Examples._fields)
            )
    except ValueError as error:
        raise ValueError(
            f"data={folder}: {split} cannot be read ({error}); make the data set again"
        ) from None
    if (
        sha256_of(folder / f"{split}.tokens.npy") if isinstance(task, Text) else fingerprint(examples)
    ) != pinned.get("sha256"):
        raise ValueError(f"data={folder}: {split} is not what its manifest pins; make the data set again")
    if not fits(task, examples):
        raise ValueError(
            f"data={folder}: {split} holds no examples of {description(task)}; make the data set again"
        )
    return examples


def fits(task: Language, examples: Examples) -> bool:
    """Whether arrays are examples of a task: their types, shapes, lengths and tokens."""
    tokens, known, lengths = examples
    if [part.dtype.name for part in examples] != [
        "uint16" if isinstance(task, Text) else "uint8",
        "bool",
        "uint16",
    ] or tokens.ndim != 2:
        return False
    if (
        known.shape != tokens.shape
        or lengths.shape != tokens.shape[:1]
        or tokens.shape[1] != task.length
        or (lengths > task.length).any()
    ):
        return False
    return all(
        (part.tokens < task.vocab_size)[np.arange(task.length) < part.lengths[:, None]].all()
        for part in chunks_of(examples, AT_ONCE)
    )


def preview(task: Solvable, config: DataConfig, count: int) -> Examples:
    """The first examples that `make_data` would go through."""
    if config.from_file:
        return read_source(task, Path(str(config.source)), config.skip_bad, most=count)[0]
    return task.generate(2 * count, config.seed).take(slice(count))
