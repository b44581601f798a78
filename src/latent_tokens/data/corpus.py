"""A corpus: documents, split so that none leaks across splits, and packed into sequences of tokens."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import in_message
from latent_tokens.configs import DataConfig, Split
from latent_tokens.data.documents import documents, files_of, has_fields
from latent_tokens.data.loading import type_entry
from latent_tokens.storage import (
    FORMAT,
    Json,
    atomic_directory,
    json_bytes,
    provenance,
    sha256_of,
    write_atomic,
)
from latent_tokens.tasks import SPLITS, Text
from latent_tokens.tasks.base import HELD_OUT, evenly
from latent_tokens.tasks.text.tokenizer import (
    FILE,
    Learned,
    Tokenizer,
    learn_bpe,
    read_tokenizer,
    type_of_ids,
)

Counts = dict[str, int]


class PackedFile:
    """A .npy file of sequences that grows: each is an end, tokens of consecutive documents, and an end."""

    def __init__(
        self, file: BinaryIO, length: int, end: int, most: int | None, token_type: type[np.uint16 | np.uint32]
    ) -> None:
        self.file = file
        self.length = length
        self.end = end
        self.most = most
        self.token_type = token_type
        self.num_sequences = 0
        self.num_documents = 0
        self.num_tokens = 0
        self.remainder = np.zeros(0, token_type)  # tokens that do not fill a sequence yet
        self._write_header()

    @property
    def is_full(self) -> bool:
        return self.most is not None and self.num_sequences >= self.most

    def counts(self) -> Counts:
        """Return the manifest's counts."""
        return {"examples": self.num_sequences, "documents": self.num_documents, "tokens": self.num_tokens}

    def add(self, ids: NDArray[np.uint16 | np.uint32]) -> None:
        """Append one document and its end, unless the file is full."""
        if self.is_full:
            return
        self.num_documents += 1
        self.num_tokens += len(ids) + 1
        self.remainder = np.concatenate([self.remainder, ids, np.array([self.end], self.token_type)])
        inner = self.length - 2
        count = len(self.remainder) // inner
        if self.most is not None:
            count = min(count, self.most - self.num_sequences)
        if count:
            rows = np.full((count, self.length), self.end, self.token_type)
            rows[:, 1:-1] = self.remainder[: count * inner].reshape(count, inner)
            self.file.write(rows.tobytes())
            self.num_sequences += count
            self.remainder = self.remainder[count * inner :]

    def close(self) -> None:
        """Write the number of sequences into the header, where numpy leaves space for it, and flush."""
        self.file.seek(0)
        self._write_header()
        self.file.flush()
        os.fsync(self.file.fileno())

    def _write_header(self) -> None:
        header = {
            "descr": np.dtype(self.token_type).str,
            "fortran_order": False,
            "shape": (self.num_sequences, self.length),
        }
        np.lib.format.write_array_header_1_0(self.file, header)


BATCH = 64  # documents tokenized at a time


TABLES = (".csv", ".tsv", ".json")  # endings of files whose text is in columns or fields


MAX_HELD_OUT = 1_024  # default number of sequences for validation and for the test, at most


OF_PUZZLES = (
    "padding",
    "clues",
    "guessing",
    "houses",
    "attributes",
    "numbers",
    "targets",
    "split",
    "skip_bad",
    "apart_from",
)  # settings that text does not have


Report = Callable[[int], None]


def make_text(config: DataConfig, report: Report) -> Path:
    """Write a data set of text: {train,validation,test}.tokens.npy, its tokenizer and manifest.json.

    Raises:
        ValueError: The config has settings of puzzles, or the source or the tokenizer cannot be read.
    """
    check_text_config(config)
    source = Path(str(config.source))
    read = partial(documents, source, config.field or "text")
    with atomic_directory(config.folder) as folder:
        # Learn or copy the tokenizer.
        tokenizer = write_tokenizer(config.tokenizer or "bytes", read, folder)
        length = Text.length if config.length is None else config.length
        task = Text(length, tokenizer, folder)

        # Pack the documents, and thin out the held-out splits.
        splits, skipped = pack(read(), task.coder, length, config.num_train, folder, report)
        for split, count in (("validation", config.num_validation), ("test", config.num_test)):
            most = MAX_HELD_OUT if count is None else count
            splits[split]["examples"] = thin(folder / f"{split}.tokens.npy", most)
        if not splits["train"]["examples"]:
            raise ValueError(
                f"{source}: not enough text for one sequence of {length} tokens. "
                "Use a smaller length, or more text."
            )

        # Write the manifest.
        entries: dict[str, Json] = {}
        for split, counts in splits.items():
            file = folder / f"{split}.tokens.npy"
            if counts["examples"]:
                entries[split] = {**counts, **type_entry(task.token_type), "sha256": sha256_of(file)}
            else:
                file.unlink()
        manifest: dict[str, Json] = {
            "format": FORMAT,
            "task": task.description(),
            "tokens": task.vocab_size,
            "source": source.name,
            **skipped,
        }
        if source.is_dir() and not has_fields(source):
            manifest["not_read"] = files_of(source)[1]
        manifest |= {"splits": entries, "made_with": provenance()}
        write_atomic({folder / "manifest.json": json_bytes(manifest)})
    return config.folder


def check_text_config(config: DataConfig) -> None:
    """Raise ValueError if a config has a setting that text does not have, or no file."""
    for name in OF_PUZZLES:
        if getattr(config, name):
            raise ValueError(
                f"{name}={in_message(getattr(config, name))}: text has no such setting. "
                "Use source, field, tokenizer, length and num_*."
            )
    if not config.from_file:
        raise ValueError(
            f"source={config.source}: text is read from a file. "
            "Name a text file, a directory of them, or a .jsonl."
        )
    source = Path(str(config.source))
    if source.suffix.lower() in TABLES and source.is_file():
        raise ValueError(
            f"source={source}: columns are read from a .jsonl only. Write each text as a line "
            '{"text": ...} of a .jsonl, or rename the file to .txt to read all of it as one text.'
        )
    if config.field is not None and not has_fields(source):
        raise ValueError(
            f"field={config.field}: is for a .jsonl or a data set of the library datasets, "
            f"and {source} has no fields. Leave it out."
        )


def write_tokenizer(name: str, read: Callable[[], Iterator[str]], folder: Path) -> str:
    """Learn or copy a tokenizer into a directory, and return its name there: bytes or tokenizer.json."""
    if name == "bytes":
        return name
    if name.startswith("bpe:"):
        tokenizer = learn_bpe((text for text in read() if split_of(text) == "train"), size_of_bpe(name))
    else:
        other = read_tokenizer(name)
        if not isinstance(other, Learned):
            return "bytes"
        tokenizer = other
    write_atomic({folder / FILE: tokenizer.to_json()})
    return FILE


def size_of_bpe(name: str) -> int:
    """Return SIZE of bpe:SIZE. Raise ValueError if it is not a number."""
    size = name.removeprefix("bpe:")
    if not size.isdecimal():
        raise ValueError(f"tokenizer={name}: must be bpe:SIZE with a whole number, like bpe:4096")
    return int(size)


def split_of(text: str) -> Split:
    """Return the split of a document, by its hash as for puzzles."""
    remainder = int.from_bytes(key_of(text)[:8], "little") % HELD_OUT
    return SPLITS[remainder if remainder in (1, 2) else 0]


def key_of(text: str) -> bytes:
    """Return the hash by which equal documents are recognized."""
    return hashlib.sha256(text.encode()).digest()


def thin(file: Path, most: int) -> int:
    """Reduce a file to `most` sequences, evenly spaced over its documents, and return their number."""
    rows = np.load(file, mmap_mode="r")
    if len(rows) <= most:
        return len(rows)
    thinned = np.array(rows[evenly(len(rows), most)])
    del rows
    np.save(file, thinned)
    return most


def pack(
    texts: Iterable[str],
    tokenizer: Tokenizer,
    length: int,
    num_train: int | None,
    folder: Path,
    report: Report,
) -> tuple[dict[str, Counts], Counts]:
    """Write {split}.tokens.npy, with at most `num_train` sequences for training.

    Returns:
        The counts of each split, and how many documents were empty or repeated.

    Raises:
        ValueError: There is no document.
    """
    seen: set[bytes] = set()
    skipped = {"empty": 0, "repeated": 0}
    with ExitStack() as stack:
        packed = {}
        for split in SPLITS:
            file = stack.enter_context((folder / f"{split}.tokens.npy").open("wb"))
            most = num_train if split == "train" else None
            packed[split] = PackedFile(file, length, tokenizer.end, most, type_of_ids(tokenizer.vocab_size))
        stream = iter(texts)
        while batch := list(islice(stream, BATCH)):
            # Leave out empty and repeated documents.
            fresh = []
            for text in batch:
                key = key_of(text)
                is_empty = not text.strip()
                skipped["empty"] += is_empty
                skipped["repeated"] += key in seen and not is_empty
                if not is_empty and key not in seen:
                    seen.add(key)
                    fresh.append((packed[split_of(text)], text))

            # Tokenize the others, each into its split.
            open_files = [(target, text) for target, text in fresh if not target.is_full]
            ids = tokenizer.encode([text for _, text in open_files])
            for (target, _), document in zip(open_files, ids, strict=True):
                target.add(document)
            report(len(batch))
        for target in packed.values():
            target.close()
    if not seen:
        raise ValueError("no text: the source has no document that is not empty")
    return {split: target.counts() for split, target in packed.items()}, skipped
