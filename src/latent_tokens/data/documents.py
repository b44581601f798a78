"""Documents of text: read from files, folders, lines of JSON and data sets of the library `datasets`.

A single text file is read in blocks, and it and any long document are cut into several.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from latent_tokens.checks import first_line

PIECES = 256  # number of documents into which a text is cut, about
SHORTEST = 200  # characters of such a document
LONGEST = 16_384  # half the most characters of such a document
LONGEST_DOCUMENT = 1 << 20  # characters: longer ones are cut, as tokenizing takes hundreds of bytes per token
BLOCK = 1 << 20  # bytes read at a time
SURROGATE = re.compile("[\ud800-\udfff]")
SUFFIXES = (".txt", ".md", ".rst", ".text", "")  # of files in a folder that are read
HUB = "hub:"  # prefix of a source on the Hugging Face Hub
SAVED = ("dataset_info.json", "dataset_dict.json")  # in a folder that `datasets` saved


def documents(source: Path, field: str) -> Iterator[str]:
    """Yield the documents of a source, those of more than LONGEST_DOCUMENT characters in pieces.

    Args:
        source: A .jsonl (a document per line), a folder (one per file), a data set of the `datasets`
            library, saved in a folder or on the hub (one per row), or one text file, which is cut between
            paragraphs.
        field: The field of a line or row that holds the text.

    Raises:
        ValueError: The source is missing, or something in it cannot be read.
    """
    if source.is_file() and not has_fields(source):
        yield from pieces(blocks_of(source), length_of(blocks_of(source)))
        return
    for text in texts_of(source, field):
        if len(text) > LONGEST_DOCUMENT:
            yield from pieces([text], len(text))
        else:
            yield text


def texts_of(source: Path, field: str) -> Iterator[str]:
    """Yield the texts of a source of several. Raise ValueError as `documents` does."""
    if has_fields(source):
        is_jsonl = source.suffix.lower() == ".jsonl"
        yield from json_lines(source, field) if is_jsonl else rows_of_datasets(str(source), field)
    elif source.is_dir():
        files, num_others = files_of(source)
        if not files:
            hint = f". Name one of its {num_others:,} others itself." if num_others else ""
            raise ValueError(
                f"{source}: no text files in it ({', '.join(filter(None, SUFFIXES))} or no ending){hint}"
            )
        for file in files:
            yield text_of(file)
    else:
        raise ValueError(
            f"source={source}: not found. "
            f"Name a text file, a directory of them, a .jsonl, or {HUB}OWNER/NAME."
        )


def files_of(folder: Path) -> tuple[list[Path], int]:
    """Return the text files of a folder and its subfolders, sorted, and the number of others.

    Hidden files are neither.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not is_hidden(path, folder))
    text_files = [file for file in files if file.suffix.lower() in SUFFIXES]
    return text_files, len(files) - len(text_files)


def is_hidden(path: Path, folder: Path) -> bool:
    """Return whether a file, or a subfolder that it is in, has a name that begins with a dot."""
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def has_fields(source: Path) -> bool:
    """Return whether a source has a field for the text: a .jsonl, or a data set of the `datasets` library."""
    is_saved = str(source).startswith(HUB) or any((source / name).is_file() for name in SAVED)
    return is_saved or (source.suffix.lower() == ".jsonl" and source.is_file())


def rows_of_datasets(name: str, field: str) -> Iterator[str]:
    """Yield the field of each row of the train split. Raise ValueError if either is missing."""
    try:
        import datasets
    except ImportError:
        raise ValueError(
            f"source={name}: the library datasets is not installed. "
            "Install it from a clone: pip install -e '.[text]'"
        ) from None
    try:
        # Open the train split.
        if name.startswith(HUB):
            repository, _, config = name.removeprefix(HUB).partition(":")
            rows = datasets.load_dataset(repository, config or None, split="train", streaming=True)
        else:
            rows = datasets.load_from_disk(name)
            if isinstance(rows, datasets.DatasetDict):
                if "train" not in rows:
                    raise LookupError(
                        f"has no split named train. Save one of its splits on its own: {', '.join(rows)}."
                    )
                rows = rows["train"]

        # Read the field of each row.
        for number, row in enumerate(rows):
            if not isinstance(row.get(field), str):
                raise LookupError(
                    f"row {number:,} has no text in the field {field}. "
                    f"Name one of {', '.join(row)} with --field."
                )
            yield row[field]
    except LookupError as error:
        raise ValueError(f"source={name}: {first_line(error)}") from None
    except Exception as error:  # a file, a hub or a network can fail in any way
        raise ValueError(f"source={name}: no data set that can be read ({first_line(error)})") from None


def json_lines(file: Path, field: str) -> Iterator[str]:
    """Yield the field of each line that is not blank. Raise ValueError naming a line without it."""
    offset = 0
    with open_source(file) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                offset += len(line)
                continue
            try:
                content = json.loads(line.decode().removeprefix("\ufeff"))
            except UnicodeDecodeError as error:
                raise not_utf8(file, offset + error.start, number) from None
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{file}, line {number}: not JSON ({first_line(error)})") from None
            text = content.get(field) if isinstance(content, dict) else None
            if not isinstance(text, str):
                raise ValueError(
                    f"{file}, line {number}: has no text in the field {field}. Name another with --field."
                )
            if SURROGATE.search(text):
                raise ValueError(
                    f"{file}, line {number}: has half of a character (\\ud800 to \\udfff) "
                    f"in the field {field}. "
                    "Correct it, or leave it out."
                )
            offset += len(line)
            yield text


def open_source(file: Path) -> BinaryIO:
    """Return an open file. Raise ValueError if it cannot be read."""
    try:
        return file.open("rb")
    except OSError as error:
        raise ValueError(f"source={file}: cannot be read ({error.strerror})") from None


def not_utf8(file: Path, offset: int, line: int) -> ValueError:
    """Return the error of a file that is not UTF-8."""
    return ValueError(f"{file}: not UTF-8 at byte {offset:,} (line {line:,}). Convert it to UTF-8.")


def text_of(file: Path) -> str:
    """Return the text of a file. Raise ValueError naming the byte at which it is not UTF-8."""
    return "".join(blocks_of(file))


def blocks_of(file: Path) -> Iterator[str]:
    """Yield a text file in parts of about BLOCK bytes, its lines ended by \\n.

    Raises:
        ValueError: The file is not UTF-8; the message names the byte and the line.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset = 0
    num_lines = 0
    pending = ""
    with open_source(file) as content:
        while True:
            block = content.read(BLOCK)
            num_pending_bytes = len(decoder.getstate()[0])  # of a character that continues in this block
            try:
                decoded = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                line = num_lines + error.object[: error.start].count(b"\n") + 1
                raise not_utf8(file, offset - num_pending_bytes + error.start, line) from None
            text = pending + (decoded if offset else decoded.removeprefix("\ufeff"))
            pending = "\r" if block and text.endswith("\r") else ""  # it may begin a \r\n
            yield text[: len(text) - len(pending)].replace("\r\n", "\n")
            offset += len(block)
            num_lines += block.count(b"\n")
            if not block:
                return


def length_of(blocks: Iterable[str]) -> int:
    """Return the characters of a text, counted until there are enough for the longest documents."""
    length = 0
    for block in blocks:
        length += len(block)
        if length >= LONGEST * PIECES:
            break
    return length


def pieces(blocks: Iterable[str], length: int) -> Iterator[str]:
    """Yield one text as documents, cut after a paragraph, else a line, else a word, else anywhere.

    Args:
        blocks: The text in parts.
        length: The characters of the text. The more there are, the longer are the documents, but there are
            enough for every split to get some.
    """
    size = max(SHORTEST, min(LONGEST, length // PIECES))
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
