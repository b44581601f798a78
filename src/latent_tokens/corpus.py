"""A corpus: documents from files, split so that no document stands in two splits, and packed into sequences of tokens."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import first_line
from latent_tokens.configs import DataConfig, Split
from latent_tokens.hashing import sha256_of
from latent_tokens.storage import FORMAT, json_bytes, provenance, unfinished, write_whole
from latent_tokens.tasks import SPLITS, Text
from latent_tokens.tasks.base import HELD_OUT, evenly
from latent_tokens.tasks.tokenizer import FILE, Learned, Tokenizer, learn_bpe, read_tokenizer

PIECES, SHORTEST, LONGEST = 256, 200, 16_384  # one text is cut into about so many documents of so many characters
BATCH = 64  # documents tokenized at a time
BLOCK = 1 << 20  # bytes read at a time
HALF = re.compile("[\ud800-\udfff]")
SUFFIXES = (".txt", ".md", ".rst", ".text", "")  # of files in a folder that are read

HUB = "hub:"  # how a source is named that is fetched
SAVED = ("dataset_info.json", "dataset_dict.json")  # in a folder that `datasets` saved
HELD = 1_024  # sequences for validation and for the test, at most, where nothing else is asked for

Report = Callable[[int], None]


def make_text(config: DataConfig, report: Report) -> Path:
    """The folder with a data set of text: {train,validation,test}.tokens.npy, its tokenizer and manifest.json.

    Raises ValueError for settings of puzzles, and where the source or the tokenizer cannot be read.
    """
    for name in ("padding", "clues", "guessing", "houses", "attributes", "numbers", "targets", "split", "skip_bad", "apart_from"):
        if getattr(config, name):
            raise ValueError(f"{name}={getattr(config, name)}: text has no such setting; it has source, field, tokenizer, length and num_*")
    if not config.from_file:
        raise ValueError(f"source={config.source}: text is read from a file; name a text file, a folder of them, or a .jsonl")
    source, name = Path(str(config.source)), config.tokenizer or "bytes"
    if config.field is not None and not has_fields(source):
        raise ValueError(f"field={config.field}: is for a .jsonl or a data set of the library datasets; {source} has no fields, leave it out")
    read = partial(documents, source, config.field or "text")
    with unfinished(config.folder) as beside:
        if name.startswith("bpe:"):
            learned = learn_bpe((text for text in read() if split_of(text) == "train"), size_of_bpe(name))
            write_whole({beside / FILE: learned.to_json()})
        elif isinstance(other := read_tokenizer(name), Learned):
            write_whole({beside / FILE: other.to_json()})
        task = Text(Text.length if config.length is None else config.length, "bytes" if name == "bytes" else FILE, beside)
        found, passed = pack(read(), task.coder, task.length, config.num_train, beside, report)
        for split, asked in (("validation", config.num_validation), ("test", config.num_test)):
            found[split]["examples"] = thin(beside / f"{split}.tokens.npy", HELD if asked is None else asked)
        if not found["train"]["examples"]:
            raise ValueError(f"{source}: not enough text for one sequence of {task.length} tokens; use a smaller length, or more text")
        about = {}
        for split, counts in found.items():
            file = beside / f"{split}.tokens.npy"
            if counts["examples"]:
                about[split] = {**counts, "sha256": sha256_of(file)}
            else:
                file.unlink()
        what = {"format": FORMAT, "task": task.description(), "tokens": task.vocab_size, "source": source.name, **passed}
        what |= {"not_read": files_of(source)[1]} if source.is_dir() and not has_fields(source) else {}
        what |= {"splits": about, "made_with": provenance()}
        write_whole({beside / "manifest.json": json_bytes(what)})
    return config.folder


def size_of_bpe(name: str) -> int:
    """The number of tokens in bpe:SIZE. Raises ValueError where there is none."""
    size = name.removeprefix("bpe:")
    if not size.isdecimal():
        raise ValueError(f"tokenizer={name}: must be bpe:SIZE with a whole number, like bpe:4096")
    return int(size)


def documents(source: Path, field: str) -> Iterator[str]:
    """The documents of a source: a line each of a .jsonl, a file each of a folder, pieces of one text file, cut between paragraphs; or a row each
    of a data set of the `datasets` library, saved in a folder or on the hub.

    Raises ValueError where there is none, or something in it cannot be read.
    """
    if has_fields(source) and source.suffix.lower() != ".jsonl":
        yield from rows_of_datasets(str(source), field)
    elif has_fields(source):
        yield from json_lines(source, field)
    elif source.is_dir():
        files, others = files_of(source)
        if not files:
            hint = f"; name one of its {others:,} others itself" if others else ""
            raise ValueError(f"{source}: no text files in it ({', '.join(filter(None, SUFFIXES))} or no ending){hint}")
        for file in files:
            yield text_of(file)
    elif source.is_file():
        yield from pieces(blocks_of(source), length_of(blocks_of(source)))
    else:
        raise ValueError(f"source={source}: no such file or folder; name a text file, a folder of them, a .jsonl, or {HUB}OWNER/NAME")


def files_of(folder: Path) -> tuple[list[Path], int]:
    """(the text files of a folder and of those in it, in their order; how many others there are). Hidden ones are neither."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not is_hidden(path, folder))
    taken = [file for file in files if file.suffix.lower() in SUFFIXES]
    return taken, len(files) - len(taken)


def has_fields(source: Path) -> bool:
    """Whether a source has a field for the text: a .jsonl, or a data set of the `datasets` library."""
    saved = str(source).startswith(HUB) or any((source / name).is_file() for name in SAVED)
    return saved or (source.suffix.lower() == ".jsonl" and source.is_file())


def rows_of_datasets(name: str, field: str) -> Iterator[str]:
    """The field of each row of the train split, one after the other. Raises ValueError where there is no such data set or field."""
    try:
        import datasets
    except ImportError:
        raise ValueError(f"source={name}: the library datasets is not installed; pip install 'latent-tokens[text]'") from None
    try:
        if name.startswith(HUB):
            place, _, config = name.removeprefix(HUB).partition(":")
            found = datasets.load_dataset(place, config or None, split="train", streaming=True)
        else:
            found = datasets.load_from_disk(name)
            if isinstance(found, datasets.DatasetDict):
                if "train" not in found:
                    raise LookupError(f"has no split named train; save one of its {', '.join(found)} by itself")
                found = found["train"]
        for number, row in enumerate(found):
            if not isinstance(row.get(field), str):
                raise LookupError(f"row {number:,} has no text in the field {field}; name one of {', '.join(row)} with --field")
            yield row[field]
    except LookupError as error:
        raise ValueError(f"source={name}: {first_line(error)}") from None
    except Exception as error:  # of a file, a hub or a network: anything
        raise ValueError(f"source={name}: no data set that can be read ({first_line(error)})") from None


def is_hidden(path: Path, folder: Path) -> bool:
    """Whether a file, or a folder that it is in, has a name that begins with a dot."""
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def json_lines(file: Path, field: str) -> Iterator[str]:
    """The field of each line. Raises ValueError naming a line that has none."""
    place = 0
    with reading(file) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                content = json.loads(line.decode().removeprefix("\ufeff"))
            except UnicodeDecodeError as error:
                raise ValueError(f"{file}: no UTF-8 at byte {place + error.start:,} (line {number:,}); convert it first") from None
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{file}, line {number}: no JSON ({first_line(error)})") from None
            text = content.get(field) if isinstance(content, dict) else None
            if not isinstance(text, str):
                raise ValueError(f"{file}, line {number}: has no text in the field {field}; name another with --field")
            if HALF.search(text):
                raise ValueError(
                    f"{file}, line {number}: has half of a character (\\ud800 to \\udfff) in the field {field}; mend it, or leave it out"
                )
            place += len(line)
            yield text


def reading(file: Path) -> BinaryIO:
    """A file of a source, open. Raises ValueError where it cannot be read."""
    try:
        return file.open("rb")
    except OSError as error:
        raise ValueError(f"source={file}: cannot be read ({error.strerror})") from None


def text_of(file: Path) -> str:
    """A text file. Raises ValueError naming the place where it is no UTF-8."""
    return "".join(blocks_of(file))


def blocks_of(file: Path) -> Iterator[str]:
    """A text file from its beginning, some BLOCK bytes at a time, its lines ended by \\n. Raises ValueError naming the place where it is no UTF-8."""
    decoder, place, lines, held = codecs.getincrementaldecoder("utf-8")(), 0, 0, ""
    with reading(file) as content:
        while True:
            block = content.read(BLOCK)
            before = len(decoder.getstate()[0])  # bytes of a character whose others come with this block
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                line = lines + error.object[: error.start].count(b"\n") + 1
                raise ValueError(f"{file}: no UTF-8 at byte {place - before + error.start:,} (line {line:,}); convert it first") from None
            text = held + (text if place else text.removeprefix("\ufeff"))
            held = "\r" if block and text.endswith("\r") else ""  # of a \r\n, perhaps
            yield text[: len(text) - len(held)].replace("\r\n", "\n")
            place, lines = place + len(block), lines + block.count(b"\n")
            if not block:
                return


def length_of(blocks: Iterable[str]) -> int:
    """The characters of a text; of a long one, as many as make its documents as long as they get."""
    length = 0
    for block in blocks:
        length += len(block)
        if length >= LONGEST * PIECES:
            break
    return length


def pieces(blocks: Iterable[str], length: int) -> Iterator[str]:
    """One text of such a length as documents: long ones, but many enough for every split to get some; cut between paragraphs, else lines, else
    words.
    """
    size, text, start = max(SHORTEST, min(LONGEST, length // PIECES)), "", 0
    for block in chain(filter(None, blocks), [""]):  # the last for what is left
        text, start = text[start:] + block, 0
        while start + (2 * size if block else 1) <= len(text):
            latest = start + 2 * size
            found = ((text.find(gap, start + size, latest), gap) for gap in ("\n\n", "\n", " "))
            stop = next((place + len(gap) for place, gap in found if place >= 0), latest)
            yield text[start:stop]
            start = stop


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
    texts: Iterable[str], tokenizer: Tokenizer, length: int, num_train: int | None, folder: Path, report: Report
) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Writes {split}.tokens.npy, of the training documents the first `num_train`; gives what each split has, and how many documents were
    empty or there twice.

    Raises ValueError where there is no document.
    """
    seen: set[bytes] = set()
    passed = {"empty": 0, "repeated": 0}
    with ExitStack() as stack:
        files = {split: stack.enter_context((folder / f"{split}.tokens.npy").open("wb")) for split in SPLITS}
        packed = {split: Packed(file, length, tokenizer.end, num_train if split == "train" else None) for split, file in files.items()}
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
    return {split: {"examples": one.rows, "documents": one.documents, "tokens": one.tokens} for split, one in packed.items()}, passed
