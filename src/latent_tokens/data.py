"""Data sets: made from a seed or read from a file, split so that no puzzle stands in two splits, pinned by a manifest."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from latent_tokens.configs import DataConfig, Split, check_out
from latent_tokens.splits import Report, make_splits
from latent_tokens.storage import FORMAT, json_bytes, provenance, read_description, write_whole
from latent_tokens.tasks import SPLITS, Examples, Puzzles, Sudoku, SudokuPuzzle, Task, configured, described, description
from latent_tokens.tasks.sources import read_source

GENERATOR = 1  # raised when a change gives other examples for the same task and seed


def made_here(task: Task, config: DataConfig, report: Report) -> tuple[dict[Split, Examples], dict[str, Any]]:
    """(examples by split, what the manifest says of their origin)."""
    counts, processes = how_many(task, config), config.processes or os.cpu_count() or 1
    sieve = make_splits(task, counts, config.seed, seen=keys_of(config.apart_from, task), processes=processes, report=report)
    passed_over = {"tried": sieve.tried, "too_long": sieve.too_long, "repeated": sieve.repeated}
    smaller = {split: counts[split] for split in sieve.open}
    return sieve.examples(), {"seed": config.seed, "generator": GENERATOR, **passed_over, "smaller_than_asked": smaller}


def made_by_others(task: Task, config: DataConfig, report: Report) -> tuple[dict[Split, Examples], dict[str, Any]]:
    """(all examples of the config's file by split, what the manifest says of their origin); all in `config.split` where it names one."""
    file = Path(str(config.source))
    examples, bad = read_source(task, file, config.skip_bad, report)
    keys, splits = task.keys(examples), task.splits(examples)
    if config.split is not None:
        splits = np.full_like(splits, SPLITS.index(config.split))
    kept = ~np.isin(keys, np.array(list(keys_of(config.apart_from, task)), np.uint64))
    parts = {split: np.flatnonzero(kept & (splits == SPLITS.index(split)))[:most] for split, most in asked_for(config).items()}
    origin = {"file": file.name, "file_sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "bad_rows": bad}
    return {split: examples.take(part) for split, part in parts.items() if len(part)}, {**origin, "kept_out": int((~kept).sum())}


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
    of_ours = config.source in ("solver", "pattern")
    names = ("padding", "clues", "guessing", "houses", "attributes", "numbers", "targets", *(["source"] * of_ours))
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
    splits, origin = (made_by_others if config.from_file else made_here)(task, config, report)
    about = {split: {"examples": len(examples.tokens), "sha256": fingerprint(examples)} for split, examples in splits.items()}
    what = {"format": FORMAT, "task": description(task), "note": getattr(task, "note", None)}
    manifest = {**what, **origin, "splits": about, "made_with": provenance()}
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
    return task.generate(2 * count, config.seed).take(slice(count))
