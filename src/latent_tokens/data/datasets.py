"""Data sets of puzzles: generated, or read from a file, and written with a manifest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from latent_tokens.checks import check_out
from latent_tokens.configs import Split
from latent_tokens.data.config import OF_PUZZLE_TASKS, DataConfig
from latent_tokens.data.corpus import write_documents
from latent_tokens.data.dialogues import has_dialogues, write_dialogues
from latent_tokens.data.loading import load_data, read_manifest, write_split
from latent_tokens.data.splits import make_splits
from latent_tokens.progress import Report, counting
from latent_tokens.storage import (
    FORMAT,
    Json,
    atomic_directory,
    json_bytes,
    provenance,
    sha256_of,
    write_atomic,
)
from latent_tokens.tasks import (
    SPLITS,
    CompactZebra,
    Examples,
    Solvable,
    Sudoku,
    SudokuPuzzle,
    Task,
    Text,
    Zebra,
    configured,
    description,
)
from latent_tokens.tasks.base import generate_checked
from latent_tokens.tasks.readers import read_source

GENERATOR = 1  # raised when a change gives other examples for the same task and seed
OF_GENERATORS = ("source", "clues", "guessing")  # settings that do not describe puzzles of a file

Made = tuple[dict[Split, Examples], dict[str, Json]]
"""Examples by split, and the manifest's entries about their origin."""


def make_data(config: DataConfig, report: Report = lambda num_examples: None) -> Path:
    """Make a data set, or read one from a file, and write it with its manifest.

    The directory is written completely or not at all. Another process that makes the same one
    waits.

    Args:
        config: The task, its settings, the numbers of examples and the directory.
        report: Receives the number of new examples of each step.

    Returns:
        The directory, with {train,validation,test}.{tokens,known,lengths}.npy and manifest.json.

    Raises:
        ValueError: The directory is not empty, the task does not have a setting, or a source cannot
            be read.

    Example:
        >>> make_data(DataConfig("sudoku-4", Path("data/sudoku-4"), num_train=100))
        PosixPath('data/sudoku-4')
    """
    check_out(config.folder)
    write = write_puzzles
    if config.task == Text.name:
        write = write_dialogues if has_dialogues(config) else write_documents
    with atomic_directory(config.folder) as folder:
        manifest = {"format": FORMAT, **write(config, folder, report), "made_with": provenance()}
        write_atomic({folder / "manifest.json": json_bytes(manifest)})
    return config.folder


def write_puzzles(config: DataConfig, folder: Path, report: Report) -> dict[str, Json]:
    """Write the arrays of puzzles, generated or of a file, and return the manifest's entries."""
    task = task_of(config)
    settings = description(task)
    make = generate_splits
    if config.from_file:
        settings = {name: value for name, value in settings.items() if name not in OF_GENERATORS}
        make = import_splits
    splits, origin = make(task, config, report)
    if not splits:
        fix = "Increase num_train, num_validation or num_test, or leave out fewer puzzles"
        raise ValueError(f"{config.task}: no example is left. {fix}.")
    return {
        "task": settings,
        "note": getattr(task, "note", None),
        "apart_from": {str(d): read_manifest(d, task)[1]["splits"] for d in config.apart_from},
        **origin,
        "splits": {split: write_split(folder, split, part) for split, part in splits.items()},
    }


def make_counted(config: DataConfig) -> Path:
    """Call `make_data` with a progress bar of the examples. Raise as it does."""
    total = None
    if not config.from_file and config.task != Text.name:
        total = sum(counts_of(task_of(config), config).values())
    with counting(f"making {config.task}", total) as count:
        return make_data(config, count)


def preview(task: Solvable, config: DataConfig, count: int) -> Examples:
    """Return the first examples that `make_data` would consider."""
    if config.from_file:
        return read_source(task, Path(str(config.source)), config.skip_bad, most=count)[0]
    return generate_checked(task, 2 * count, config.seed).take(slice(count))


def task_of(config: DataConfig) -> Solvable:
    """Return the task with the config's settings. Raise ValueError if it does not have one of them."""
    names = (*OF_PUZZLE_TASKS, *(() if config.from_file else ("source",)))
    settings = {name: value for name in names if (value := getattr(config, name)) is not None}
    return configured(config.task, settings)


def generate_splits(task: Task, config: DataConfig, report: Report) -> Made:
    """Return generated examples by split, and their origin."""
    num_wanted = counts_of(task, config)
    builder = make_splits(
        task,
        num_wanted,
        config.seed,
        apart=keys_of(config.apart_from, task),
        processes=config.processes or os.cpu_count() or 1,
        report=report,
    )
    return builder.examples(), {
        "seed": config.seed,
        "generator": GENERATOR,
        "tried": builder.tried,
        "too_long": builder.too_long,
        "kept_out": builder.kept_out,
        "repeated": builder.repeated,
        "smaller_than_asked": {str(split): num_wanted[split] for split in builder.open},
    }


def import_splits(task: Task, config: DataConfig, report: Report) -> Made:
    """Return the examples of a file by split, and their origin. All are of `config.split` if it is set.

    If no example is kept out, no more rows are read than are needed.
    """
    # Read the file.
    file = Path(str(config.source))
    num_wanted = {split: getattr(config, f"num_{split}") for split in SPLITS}
    num_rows = None
    if config.split is not None and not config.apart_from:
        num_rows = num_wanted[config.split] or None
    examples, bad_rows = read_source(task, file, config.skip_bad, report, num_rows)

    # Assign the splits.
    keys = task.keys(examples)
    splits = task.splits(examples)
    if config.split is not None:
        splits = np.full_like(splits, SPLITS.index(config.split))
    is_new = ~np.isin(keys, np.array(list(keys_of(config.apart_from, task)), np.uint64))
    parts: dict[Split, Examples] = {}
    smaller: dict[str, Json] = {}
    for number, (split, most) in enumerate(num_wanted.items()):
        indices = np.flatnonzero(is_new & (splits == number))[:most]
        if len(indices):
            parts[split] = examples.take(indices)
        if len(indices) < (most or 0):
            smaller[split] = most
    return parts, {
        "file": file.name,
        "file_sha256": sha256_of(file),
        "bad_rows": bad_rows,
        "kept_out": int((~is_new).sum()),
        "smaller_than_asked": smaller,
    }


def keys_of(folders: Sequence[Path], task: Task) -> set[int]:
    """Return the keys of all examples of some data sets.

    Raise ValueError if the task of one can have no puzzle in common with this one.
    """
    keys: set[int] = set()
    for folder in folders:
        other, splits = load_data(folder, task=task)
        if not isinstance(other, Task) or puzzles_of(other) != puzzles_of(task):
            problem = f"contains {other.name}, which has no puzzle in common with {task.name}"
            raise ValueError(f"apart_from={folder}: {problem}")
        for examples in splits.values():
            keys |= set(other.keys(examples).tolist())
    return keys


def puzzles_of(task: Task) -> tuple[object, ...]:
    """Return a value that is equal for two tasks that can have a puzzle in common."""
    if isinstance(task, Sudoku | SudokuPuzzle):
        return (task.grid,)
    if isinstance(task, Zebra | CompactZebra):
        return (Zebra,)
    return type(task), getattr(task, "numbers", None)


def counts_of(task: Task, config: DataConfig) -> dict[Split, int]:
    """Return the number of examples of each split: the config's, else the task's for training and 1,024."""
    counts: dict[Split, int] = {"train": task.num_train, "validation": 1_024, "test": 1_024}
    for split in SPLITS:
        asked = getattr(config, f"num_{split}")
        counts[split] = counts[split] if asked is None else asked
    return counts
