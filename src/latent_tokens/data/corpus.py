"""A corpus: documents of a source, split so that none leaks across splits, and packed into sequences."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import numpy as np

from latent_tokens.checks import check_package, first_line
from latent_tokens.configs import Split
from latent_tokens.data.config import DataConfig
from latent_tokens.progress import Report
from latent_tokens.storage import Json, readable, sha256_of, write_atomic
from latent_tokens.tasks import SPLITS, Text
from latent_tokens.tasks.base import HELD_OUT, evenly
from latent_tokens.tasks.text.tokenizer import (
    TOKENIZER_FILE,
    Ids,
    Learned,
    learn_bpe,
    read_tokenizer,
)

PIECES = 256  # number of documents into which a text is cut, about
SHORTEST = 200  # characters of such a document
LONGEST_PIECE = 16_384  # half the most characters of such a document
# Characters: longer ones are cut, as tokenizing takes hundreds of bytes per token
LONGEST_DOCUMENT = 1 << 20
BLOCK = 1 << 20  # characters read at a time
BATCH = 16  # documents tokenized at a time
MAX_HELD_OUT = 1_024  # default number of sequences for validation and for the test, at most

SUFFIXES = (".txt", ".md", ".rst", ".text", "")  # of files in a directory that are read
TABLES = (".csv", ".tsv", ".json")  # endings of files whose text is in columns
HUB = "hub:"  # prefix of a source on the Hugging Face Hub
SAVED = ("dataset_info.json", "dataset_dict.json")  # in a directory that `datasets` saved


def write_documents(config: DataConfig, folder: Path, report: Report) -> dict[str, Json]:
    """Write {train,validation,test}.tokens.npy and the tokenizer, and return the manifest's entries.

    Raise ValueError if the source or the tokenizer cannot be read.
    """
    check_text_config(config)
    source = Path(str(config.source))
    read = partial(documents, source, config.field or "text")
    task = written_task(config, folder, (text for text in read() if split_of(text) == "train"))

    # Pack the documents, and thin out the held-out splits.
    splits, skipped = pack(read(), task, config.num_train, folder, report)
    for split in SPLITS[1:]:
        file = folder / f"{split}.tokens.npy"
        splits[split]["examples"] = thin(file, num_held_out(config, split))
    if not splits["train"]["examples"]:
        problem = f"not enough text for one sequence of {task.length} tokens"
        raise ValueError(f"{source}: {problem}. Use a smaller length, or more text.")

    entries: dict[str, Json] = {}
    for split, counts in splits.items():
        file = folder / f"{split}.tokens.npy"
        if counts["examples"]:
            entries[split] = {**counts, "sha256": sha256_of(file)}
        else:
            file.unlink()
    if source.is_dir() and not has_fields(source):
        skipped["not_read"] = files_of(source)[1]
    return text_entries(task, source, skipped, entries)


def text_entries(
    task: Text, source: Path, skipped: dict[str, int], splits: dict[str, Json]
) -> dict[str, Json]:
    """Return the entries of the manifest of a text, documents or dialogues."""
    return {
        "task": task.description(),
        "tokens": task.vocab_size,
        "source": source.name,
        **skipped,
        "splits": splits,
    }


def num_held_out(config: DataConfig, split: Split) -> int:
    """Return how many sequences a held-out split has at most."""
    count: int | None = getattr(config, f"num_{split}")
    return MAX_HELD_OUT if count is None else count


def check_text_config(config: DataConfig) -> None:
    """Raise ValueError if a text cannot be read from the source of a config, or has none to train on."""
    source = Path(str(config.source))
    if not config.from_file or source.suffix.lower() in TABLES:
        fix = 'Name a text file, a directory of them, or a .jsonl of lines like {"text": ...}.'
        raise ValueError(f"source={config.source}: text is read from a file without columns. {fix}")
    if config.num_train == 0:
        raise ValueError("num_train=0: text has sequences to train on. Use 1 or more.")
    if config.field is not None and not has_fields(source):
        raise ValueError(f"field={config.field}: {source} has no fields. Leave it out.")


def written_task(config: DataConfig, folder: Path, trained: Iterator[str]) -> Text:
    """Return the text of a config, with its tokenizer learned from or copied into a directory.

    `trained` yields the texts of the training split.
    """
    name = config.tokenizer or "bytes"
    kind, _, size = name.partition(":")
    if kind == "bpe" and not size.isdecimal():
        raise ValueError(f"tokenizer={name}: must be bpe:SIZE with a whole number, like bpe:4096")
    tokenizer = learn_bpe(trained, int(size)) if kind == "bpe" else read_tokenizer(name)
    if isinstance(tokenizer, Learned):
        write_atomic({folder / TOKENIZER_FILE: tokenizer.to_json()})
        name = TOKENIZER_FILE
    return Text(Text.length if config.length is None else config.length, name, folder)


def documents(source: Path, field: str) -> Iterator[str]:
    """Yield the documents of a source, those of more than LONGEST_DOCUMENT characters in pieces.

    A .jsonl has a document per line, a directory one per file, and a data set of the library
    `datasets`, saved or on the hub, one per row. One text file is cut between paragraphs. Raise
    ValueError if something in the source cannot be read.
    """
    if source.is_file() and not has_fields(source):
        yield from pieces(text_blocks(source), length_of(text_blocks(source)))
        return
    for text in texts_of(source, field):
        if len(text) > LONGEST_DOCUMENT:
            yield from pieces([text], len(text))
        else:
            yield text


def texts_of(source: Path, field: str) -> Iterator[str]:
    """Yield the texts of a source of several. Raise ValueError as `documents` does."""
    if has_fields(source):
        for number, row in enumerate(rows_of(source), start=1):
            text = row.get(field)
            if not isinstance(text, str):
                problem = f"record {number:,} has no text in the field {field}"
                raise ValueError(f"{source}: {problem}. Name one of {', '.join(row)} with --field.")
            yield text
    elif source.is_dir():
        files, num_others = files_of(source)
        if not files:
            problem = f"no text files in it ({', '.join(filter(None, SUFFIXES))} or no ending)"
            fix = f"Name one of its {num_others:,} other files itself"
            raise ValueError(f"{source}: {problem}. {fix}.")
        for file in files:
            yield file_text(file)
    else:
        fix = f"Name a text file, a directory of them, a .jsonl, or {HUB}OWNER/NAME"
        raise ValueError(f"source={source}: not found. {fix}.")


def files_of(folder: Path) -> tuple[list[Path], int]:
    """Return the text files below a directory, sorted, and the number of others. Hidden ones are neither."""
    names = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    hidden = {name for name in names if any(part.startswith(".") for part in name.parts)}
    shown = [folder / name for name in names if name not in hidden]
    text_files = [file for file in shown if file.suffix.lower() in SUFFIXES]
    return text_files, len(shown) - len(text_files)


def has_fields(source: Path) -> bool:
    """Return whether a source has a field for the text: a .jsonl, or a data set of the `datasets` library."""
    is_saved = str(source).startswith(HUB) or any((source / name).is_file() for name in SAVED)
    return is_saved or (source.suffix.lower() == ".jsonl" and source.is_file())


def rows_of(source: Path) -> Iterator[dict[str, object]]:
    """Return the records of a source that has fields. ValueError is raised if one cannot be read."""
    is_jsonl = source.suffix.lower() == ".jsonl"
    return json_lines(source) if is_jsonl else rows_of_datasets(str(source))


def json_lines(file: Path) -> Iterator[dict[str, object]]:
    """Yield the object of each line that is not blank. Raise ValueError naming a line without one."""
    with readable(file), file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                if rb"\u" in line:  # half of a surrogate pair cannot be encoded
                    json.dumps(row, ensure_ascii=False).encode()
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{file}, line {number}: not JSON ({first_line(error)})") from None
            if not isinstance(row, dict):
                raise ValueError(f"{file}, line {number}: must be an object with a text")
            yield row


def rows_of_datasets(name: str) -> Iterator[dict[str, object]]:
    """Yield each row of the train split of a data set. Raise ValueError if it cannot be read."""
    check_package("datasets", "text", f"source={name}")
    import datasets

    try:
        if name.startswith(HUB):
            repository, _, config = name.removeprefix(HUB).partition(":")
            rows = datasets.load_dataset(repository, config or None, split="train", streaming=True)
        else:
            rows = datasets.load_from_disk(name)
            rows = rows["train"] if isinstance(rows, datasets.DatasetDict) else rows
        yield from rows
    except Exception as error:  # a file, a hub or a network can fail in any way
        problem = f"no data set that can be read ({first_line(error)})"
        raise ValueError(f"source={name}: {problem}") from None


def file_text(file: Path) -> str:
    """Return the text of a file. Raise ValueError if it is not UTF-8."""
    return "".join(text_blocks(file))


def text_blocks(file: Path) -> Iterator[str]:
    """Yield a text file in parts. Raise ValueError if it is not UTF-8."""
    with readable(file), file.open(encoding="utf-8-sig") as content:
        try:
            while block := content.read(BLOCK):
                yield block
        except UnicodeDecodeError as error:
            raise ValueError(f"{file}: not UTF-8 ({error.reason}). Convert it to UTF-8.") from None


def length_of(blocks: Iterable[str]) -> int:
    """Return the characters of a text, counted until there are enough for the longest documents."""
    length = 0
    for block in blocks:
        length += len(block)
        if length >= LONGEST_PIECE * PIECES:
            break
    return length


def pieces(blocks: Iterable[str], length: int) -> Iterator[str]:
    """Yield one text as documents, cut after a paragraph, else a line, else a word, else anywhere.

    The more characters it has, the longer they are, but every split gets some.
    """
    size = max(SHORTEST, min(LONGEST_PIECE, length // PIECES))
    text = ""
    start = 0
    for block in chain(filter(None, blocks), [""]):  # the last one flushes the rest
        text = text[start:] + block
        start = 0
        while start + (2 * size if block else 1) <= len(text):
            stop = cut_after(text, start + size, start + 2 * size)
            yield text[start:stop]
            start = stop


def cut_after(text: str, earliest: int, latest: int) -> int:
    """Return the index after the first paragraph, else line, else word between two indices, else the last."""
    for gap in ("\n\n", "\n", " "):
        index = text.find(gap, earliest, latest)
        if index >= 0:
            return index + len(gap)
    return latest


class PackedFile:
    """A .npy file of sequences that grows: each is an end, tokens of consecutive documents, and an end."""

    def __init__(self, path: Path, task: Text, most: int | None) -> None:
        self.task = task
        self.most = most
        self.num_sequences = 0
        self.num_documents = 0
        self.num_tokens = 0
        self.remainder = np.zeros(0, task.token_type)  # tokens that do not fill a sequence yet
        self.path = path
        with path.open("wb") as file:
            self._write_header(file)

    @property
    def is_full(self) -> bool:
        return self.most is not None and self.num_sequences >= self.most

    def add(self, ids: Ids) -> None:
        """Append one document and its end, unless the file is full."""
        if self.is_full:
            return
        self.num_documents += 1
        self.num_tokens += len(ids) + 1
        end = self.task.coder.end
        inner = self.task.length - 2
        self.remainder = np.concatenate([self.remainder, ids, np.array([end], ids.dtype)])
        count = len(self.remainder) // inner
        if self.most is not None:
            count = min(count, self.most - self.num_sequences)
        rows = np.full((count, inner + 2), end, ids.dtype)
        rows[:, 1:-1] = self.remainder[: count * inner].reshape(count, inner)
        with self.path.open("ab") as file:
            file.write(rows.tobytes())
        self.num_sequences += count
        self.remainder = self.remainder[count * inner :]

    def close(self) -> dict[str, int]:
        """Write the number of sequences into the header, and return the counts of the manifest."""
        with self.path.open("r+b") as file:
            self._write_header(file)
        counts = {"documents": self.num_documents, "tokens": self.num_tokens}
        return {"examples": self.num_sequences, **counts}

    def _write_header(self, file: BinaryIO) -> None:
        """Write the header, in which numpy leaves space for a larger number."""
        header = {
            "descr": np.dtype(self.task.token_type).str,
            "fortran_order": False,
            "shape": (self.num_sequences, self.task.length),
        }
        np.lib.format.write_array_header_1_0(file, header)


def pack(
    texts: Iterable[str], task: Text, num_train: int | None, folder: Path, report: Report
) -> tuple[dict[Split, dict[str, int]], dict[str, int]]:
    """Write {split}.tokens.npy. Return the counts of each split, and of empty and repeated documents.

    Raise ValueError if there is no document.
    """
    limits = {"train": num_train}
    packed = {
        split: PackedFile(folder / f"{split}.tokens.npy", task, limits.get(split))
        for split in SPLITS
    }
    seen: set[bytes] = set()
    skipped = {"empty": 0, "repeated": 0}
    stream = iter(texts)
    while batch := list(islice(stream, BATCH)):
        # Leave out empty and repeated documents, and those of splits that are full.
        kept = []
        for text in batch:
            key = key_of(text)
            is_empty = not text.strip()
            skipped["empty"] += is_empty
            skipped["repeated"] += key in seen and not is_empty
            if not is_empty and key not in seen:
                seen.add(key)
                if not packed[split_of(text)].is_full:
                    kept.append(text)

        # Tokenize the others, each into its split.
        for text, ids in zip(kept, task.coder.encode(kept), strict=True):
            packed[split_of(text)].add(ids)
        report(len(batch))
    counts = {split: target.close() for split, target in packed.items()}
    if not seen:
        raise ValueError("no text: the source has no document that is not empty")
    return counts, skipped


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
    np.save(file, np.array(rows[evenly(len(rows), most)]))
    return most
