"""Data sets on disk: arrays with a manifest that pins them; and the examples of a training run."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from latent_tokens.configs import DataConfig, check_out
from latent_tokens.storage import FORMAT, json_bytes, provenance, read_description, write_whole
from latent_tokens.tasks import TASKS, Examples, Task

FIRST_VALIDATION = 1 << 40  # validation examples are numbered from here, training examples from 0
CHUNK = 4_096  # examples made between two reports of progress

Split = Literal["train", "validation"]
Report = Callable[[int], None]


def make_examples(task: Task, split: Split, count: int, seed: int, report: Report = lambda done: None) -> Examples:
    """The first `count` examples of a split; `report` hears how many have been made since it last did."""
    first, chunks = FIRST_VALIDATION if split == "validation" else 0, []
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        chunks.append(task.generate(size, seed, first + start))
        report(size)
    return Examples(*(np.concatenate(parts) for parts in zip(*chunks, strict=True)))


def fingerprint(examples: Examples) -> str:
    """SHA-256 of the tokens, then of which are known."""
    return hashlib.sha256(examples.tokens.tobytes() + examples.known.tobytes()).hexdigest()


def make_data(config: DataConfig, report: Report = lambda done: None) -> Path:
    """The folder with the data set: {train,validation}.{tokens,known}.npy and manifest.json, written last.

    Raises ValueError where the folder is there and not empty.
    """
    check_out(config.folder)
    task = with_source(TASKS[config.task], config.source)
    config.folder.mkdir(parents=True, exist_ok=True)
    splits: dict[Split, int] = {"train": config.num_train, "validation": config.num_validation}
    manifest: dict[str, Any] = {"format": FORMAT, "task": task.name, "source": getattr(task, "source", None), "seed": config.seed, "splits": {}}
    for split, count in splits.items():
        examples = make_examples(task, split, count, config.seed, report)
        for part, array in examples._asdict().items():
            write_whole({config.folder / f"{split}.{part}.npy": npy_bytes(array)})
        manifest["splits"][split] = {"examples": count, "sha256": fingerprint(examples)}
    write_whole({config.folder / "manifest.json": json_bytes({**manifest, "made_with": provenance()})})
    return config.folder


def load_data(folder: Path, task: Task) -> dict[Split, Examples]:
    """The splits of a folder that `make_data` wrote. Raises ValueError where it is missing, damaged or of another task."""
    manifest = read_description(folder, "manifest.json", "data set", ("task", "splits"))
    if manifest["task"] != task.name:
        raise ValueError(f"data={folder}: holds {manifest['task']}, not {task.name}")
    splits: dict[Split, Examples] = {}
    for split in ("train", "validation"):
        try:
            splits[split] = Examples(*(np.load(folder / f"{split}.{part}.npy", allow_pickle=False) for part in Examples._fields))
        except (OSError, ValueError) as error:
            raise ValueError(f"data={folder}: {split} cannot be read ({error}); make the data set again") from None
        if fingerprint(splits[split]) != manifest["splits"].get(split, {}).get("sha256"):
            raise ValueError(f"data={folder}: {split} is not what its manifest pins; make the data set again")
    return splits


def with_source(task: Task, source: str | None) -> Task:
    """The task with its boards from another source; as it is for None."""
    return task if source is None else replace(task, source=source)  # type: ignore[type-var]


def npy_bytes(array: NDArray[Any]) -> bytes:
    """The .npy file that holds an array."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()
