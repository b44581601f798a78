"""A corpus: documents, split so that none stands in two splits, and packed into sequences of tokens."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from latent_tokens.configs import DataConfig, Split
from latent_tokens.data.documents import documents, files_of, has_fields
from latent_tokens.storage import FORMAT, atomic_directory, json_bytes, provenance, sha256_of, write_atomic
from latent_tokens.tasks import SPLITS, Text
from latent_tokens.tasks.base import HELD_OUT, evenly
from latent_tokens.tasks.text.tokenizer import FILE, Learned, Tokenizer, learn_bpe, read_tokenizer

BATCH = 64  # documents tokenized at a time
HELD = 1_024  # sequences for validation and for the test, at most, where nothing else is asked for

Report = Callable[[int], None]


def make_text(config: DataConfig, report: Report) -> Path:
    """The folder with a data set of text: {train,validation,test}.tokens.npy, its tokenizer and manifest.json.

    Raises ValueError for settings of puzzles, and where the source or the tokenizer cannot be read.
    """
    for name in (
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
    ):
        if getattr(config, name):
            raise ValueError(
                f"{name}={getattr(config, name)}: text has no such setting; it has source, field, tokenizer, length and num_*"
            )
    if not config.from_file:
        raise ValueError(
            f"source={config.source}: text is read from a file; name a text file, a folder of them, or a .jsonl"
        )
    source, name = Path(str(config.source)), config.tokenizer or "bytes"
    if config.field is not None and not has_fields(source):
        raise ValueError(
            f"field={config.field}: is for a .jsonl or a data set of the library datasets; {source} has no fields, leave it out"
        )
    read = partial(documents, source, config.field or "text")
    with atomic_directory(config.folder) as beside:
        if name.startswith("bpe:"):
            learned = learn_bpe((text for text in read() if split_of(text) == "train"), size_of_bpe(name))
            write_atomic({beside / FILE: learned.to_json()})
        elif isinstance(other := read_tokenizer(name), Learned):
            write_atomic({beside / FILE: other.to_json()})
        task = Text(
            Text.length if config.length is None else config.length,
            "bytes" if name == "bytes" else FILE,
            beside,
        )
        found, passed = pack(read(), task.coder, task.length, config.num_train, beside, report)
        for split, asked in (("validation", config.num_validation), ("test", config.num_test)):
            found[split]["examples"] = thin(beside / f"{split}.tokens.npy", HELD if asked is None else asked)
        if not found["train"]["examples"]:
            raise ValueError(
                f"{source}: not enough text for one sequence of {task.length} tokens; use a smaller length, or more text"
            )
        about = {}
        for split, counts in found.items():
            file = beside / f"{split}.tokens.npy"
            if counts["examples"]:
                about[split] = {**counts, "sha256": sha256_of(file)}
            else:
                file.unlink()
        what = {
            "format": FORMAT,
            "task": task.description(),
            "tokens": task.vocab_size,
            "source": source.name,
            **passed,
        }
        what |= {"not_read": files_of(source)[1]} if source.is_dir() and not has_fields(source) else {}
        what |= {"splits": about, "made_with": provenance()}
        write_atomic({beside / "manifest.json": json_bytes(what)})
    return config.folder


def size_of_bpe(name: str) -> int:
    """The number of tokens in bpe:SIZE. Raises ValueError where there is none."""
    size = name.removeprefix("bpe:")
    if not size.isdecimal():
        raise ValueError(f"tokenizer={name}: must be bpe:SIZE with a whole number, like bpe:4096")
    return int(size)


def split_of(text: str) -> Split:
    """The split of a document: by its hash, as for puzzles."""
    rest = int.from_bytes(key_of(text)[:8], "little") % HELD_OUT
    return SPLITS[rest if rest in (1, 2) else 0]


def key_of(text: str) -> bytes:
    """What two documents share that are one."""
    return hashlib.sha256(text.encode()).digest()


class Packed:
    """Sequences of one length in a .npy file that grows: an end, tokens of the documents one after the other, and an end again."""

    def __init__(self, file: BinaryIO, length: int, end: int, most: int | None) -> None:
        self.file, self.length, self.end, self.most = file, length, end, most
        self.rows, self.documents, self.tokens, self.left = 0, 0, 0, np.zeros(0, np.uint16)
        self._header()

    @property
    def full(self) -> bool:
        return self.most is not None and self.rows >= self.most

    def add(self, ids: NDArray[np.uint16]) -> None:
        """One document, with its end; nothing where there are enough."""
        if self.full:
            return
        self.documents, self.tokens = self.documents + 1, self.tokens + len(ids) + 1
        self.left = np.concatenate([self.left, ids, np.array([self.end], np.uint16)])
        inner = self.length - 2
        count = len(self.left) // inner
        if self.most is not None:
            count = min(count, self.most - self.rows)
        if count:
            rows = np.full((count, self.length), self.end, np.uint16)
            rows[:, 1:-1] = self.left[: count * inner].reshape(count, inner)
            self.file.write(rows.tobytes())
            self.rows, self.left = self.rows + count, self.left[count * inner :]

    def close(self) -> None:
        """Says in the header how many rows there are; numpy leaves room for the number to grow."""
        self.file.seek(0)
        self._header()
        self.file.flush()
        os.fsync(self.file.fileno())

    def _header(self) -> None:
        about = {"descr": "<u2", "fortran_order": False, "shape": (self.rows, self.length)}
        np.lib.format.write_array_header_1_0(self.file, about)


def thin(file: Path, most: int) -> int:
    """Leaves so many sequences of a file, evenly spaced, so that they are of as many documents as there are; gives how many it has then."""
    rows = np.load(file, mmap_mode="r")
    if len(rows) <= most:
        return len(rows)
    kept = np.array(rows[evenly(len(rows), most)])
    del rows
    np.save(file, kept)
    return most


def pack(
    texts: Iterable[str],
    tokenizer: Tokenizer,
    length: int,
    num_train: int | None,
    folder: Path,
    report: Report,
) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Writes {split}.tokens.npy, of the training documents the first `num_train`; gives what each split has, and how many documents were
    empty or there twice.

    Raises ValueError where there is no document.
    """
    seen: set[bytes] = set()
    passed = {"empty": 0, "repeated": 0}
    with ExitStack() as stack:
        files = {split: stack.enter_context((folder / f"{split}.tokens.npy").open("wb")) for split in SPLITS}
        packed = {
            split: Packed(file, length, tokenizer.end, num_train if split == "train" else None)
            for split, file in files.items()
        }
        stream = iter(texts)
        while batch := list(islice(stream, BATCH)):
            fresh = []
            for text in batch:
                key, empty = key_of(text), not text.strip()
                passed["empty"] += empty
                passed["repeated"] += key in seen and not empty
                if not empty and key not in seen:
                    seen.add(key)
                    fresh.append((packed[split_of(text)], text))
            wanted = [(place, text) for place, text in fresh if not place.full]
            for (place, _), ids in zip(wanted, tokenizer.encode([text for _, text in wanted]), strict=True):
                place.add(ids)
            report(len(batch))
        for one in packed.values():
            one.close()
    if not seen:
        raise ValueError("no text: the source has no document that is not empty")
    return {
        split: {"examples": one.rows, "documents": one.documents, "tokens": one.tokens}
        for split, one in packed.items()
    }, passed
