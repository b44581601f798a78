"""Data sets as they are stored and loaded: manifests, splits, and examples as tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from latent_tokens.configs import Split
from latent_tokens.storage import Json, read_description, sha256_of
from latent_tokens.tasks import (
    SPLITS,
    Examples,
    Language,
    Text,
    Tokens,
    described,
    differing_settings,
    is_described,
)
from latent_tokens.tasks.examples import smallest_type

HASHED_AT_ONCE = 10_000  # examples that are hashed at a time

Manifest = dict[str, Any]
"""The manifest of a data set: its task, its splits, their origin and what was left out (docs/tasks.md)."""


def fingerprint(examples: Examples) -> str:
    """Return the SHA-256 of tokens, known masks and lengths, each with its type and shape."""
    digest = hashlib.sha256()
    for part in examples:
        digest.update(f"{part.dtype} {part.shape}".encode())
        # A mapped or broadcast array is never in memory as a whole
        for start in range(0, len(part), HASHED_AT_ONCE):
            digest.update(np.ascontiguousarray(part[start : start + HASHED_AT_ONCE]).data)
    return digest.hexdigest()


def read_manifest(folder: Path, task: Language | None = None) -> tuple[Language, Manifest]:
    """Return the task of a directory that `make_data` wrote, and its manifest.

    `task` is used if the data set has its description: code of a user is not imported here. Raise
    ValueError if the manifest is missing or corrupt.
    """
    manifest = read_description(folder, "manifest.json", "data set", ("task", "splits"))
    splits = manifest["splits"]
    try:
        learned = manifest["task"]
        is_same = task is not None and is_described(task, learned)
        if task is not None and not is_same and isinstance(learned, dict) and "module" in learned:
            for name, (value, other) in differing_settings(task, learned).items():
                raise ValueError(f"has {name}={other}, and {task.name} has {name}={value}")
        if task is None or isinstance(task, Text) or not is_same:
            task = described(learned, folder)
        if not all(isinstance(entry, dict) for entry in [splits, *dict(splits).values()]):
            raise ValueError("its manifest lists no splits")
    except (TypeError, ValueError) as error:
        raise ValueError(f"data={folder}: {error}. Make the data set again.") from None
    return task, manifest


def load_data(
    folder: str | Path, splits: Sequence[Split] = SPLITS, task: Language | None = None
) -> tuple[Language, dict[Split, Examples]]:
    """Return the task of a data set and those of the splits that it has.

    Args:
        folder: The directory that `make_data` wrote.
        splits: The splits to load.
        task: The task, if it is your own: its code is not imported by the name in the files.

    Returns:
        The task, and the examples by split.

    Raises:
        ValueError: The data set is missing or corrupt, or does not match the checksums in its
            manifest.

    Example:
        >>> task, splits = load_data("data/sudoku-9")
        >>> splits["train"].tokens.shape
        (48000, 81)
    """
    folder = Path(folder)
    task, manifest = read_manifest(folder, task)
    checksums = {split: entry.get("sha256") for split, entry in manifest["splits"].items()}
    stored = [split for split in splits if split in checksums]
    return task, {split: load_split(folder, task, split, checksums[split]) for split in stored}


def load_split(folder: Path, task: Language, split: Split, sha256: object) -> Examples:
    """Return one split. Text is mapped from disk and not read.

    Raise ValueError if a file cannot be read, has another checksum, or is of another task.
    """
    try:
        if isinstance(task, Text) and not (folder / f"{split}.known.npy").is_file():
            file = folder / f"{split}.tokens.npy"
            stored = sha256_of(file)
            tokens = np.load(file, mmap_mode="r")
            known = np.broadcast_to(np.False_, tokens.shape)
            examples = Examples(tokens, known, np.broadcast_to(np.uint16(task.length), len(tokens)))
        else:
            files = [folder / f"{split}.{part}.npy" for part in Examples._fields]
            mode: Literal["r"] | None = "r" if isinstance(task, Text) else None
            examples = Examples(*(np.load(file, mmap_mode=mode) for file in files))
            stored = fingerprint(examples)
    except Exception as error:  # a corrupt header can fail in any way
        problem = f"cannot be read ({type(error).__name__})"
    else:
        if stored == sha256 and examples.tokens.shape[1:] == (task.length,):
            return examples
        problem = "does not match the checksum in its manifest"
        if stored == sha256:
            problem = "is of another task"
    raise ValueError(f"data={folder}: {split} {problem}. Make the data set again.")


def write_split(folder: Path, split: Split, examples: Examples) -> dict[str, Json]:
    """Write {split}.{tokens,known,lengths}.npy, and return the split's entry of the manifest."""
    for part, array in zip(Examples._fields, examples, strict=True):
        np.save(folder / f"{split}.{part}.npy", array)
    return {"examples": len(examples), "sha256": fingerprint(examples)}


def change_detector(data: Path | None) -> Callable[[], bool]:
    """Return a function that tells whether the files of a data set are unchanged since this call.

    Files are compared by their size, inode and modification time.
    """

    def snapshot() -> list[tuple[str, int, int, int]]:
        files = [] if data is None else [*data.glob("*.npy"), *data.glob("*.j*")]  # .json, .jinja
        stats = [(file.name, file.stat()) for file in sorted(files)]
        return [(name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats]

    before = snapshot()
    return lambda: snapshot() == before


def as_tensors(
    examples: Examples, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor, Tensor]:
    """Return examples as the tensors that `loss` and `generate` take.

    Args:
        examples: N examples of at most L positions.
        device: The device of the tensors.

    Returns:
        tokens: Int64, (N, L).
        known: Bool, (N, L). False past the length, where nothing is given.
        lengths: Int64, (N,).

    Example:
        >>> tokens, known, lengths = as_tensors(TASKS["sudoku-4"].generate(2, seed=0))
        >>> tokens.shape
        torch.Size([2, 16])
    """
    tokens = torch.from_numpy(examples.tokens.astype(np.int64)).to(device)
    known = torch.from_numpy(np.asarray(examples.known, np.bool_) & examples.inside).to(device)
    lengths = torch.from_numpy(examples.lengths.astype(np.int64)).to(device)
    return tokens, known, lengths


def as_numpy(tokens: Tensor) -> Tokens:
    """Return tokens as tasks take them: of the smallest type, uint8, uint16 or uint32, on the CPU.

    Args:
        tokens: token ids, on any device.

    Example:
        >>> as_numpy(torch.tensor([[1, 2]])).dtype
        dtype('uint8')
    """
    array = tokens.cpu().numpy()
    return cast(Tokens, array.astype(smallest_type(int(array.max(initial=0)))))
