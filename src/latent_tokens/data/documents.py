"""Documents of text, as files, folders, lines of JSON and data sets of the library `datasets` hold them. One large text is read in blocks."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from latent_tokens.checks import first_line

PIECES, SHORTEST, LONGEST = (
    256,
    200,
    16_384,
)  # one text is cut into about so many documents of so many characters
BLOCK = 1 << 20  # bytes read at a time
HALF = re.compile("[\ud800-\udfff]")
SUFFIXES = (".txt", ".md", ".rst", ".text", "")  # of files in a folder that are read
HUB = "hub:"  # how a source is named that is fetched
SAVED = ("dataset_info.json", "dataset_dict.json")  # in a folder that `datasets` saved


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
            raise ValueError(
                f"{source}: no text files in it ({', '.join(filter(None, SUFFIXES))} or no ending){hint}"
            )
        for file in files:
            yield text_of(file)
    elif source.is_file():
        yield from pieces(blocks_of(source), length_of(blocks_of(source)))
    else:
        raise ValueError(
            f"source={source}: no such file or folder; name a text file, a folder of them, a .jsonl, or {HUB}OWNER/NAME"
        )


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
        raise ValueError(
            f"source={name}: the library datasets is not installed. Install it from a clone: pip install -e '.[text]'"
        ) from None
    try:
        if name.startswith(HUB):
            place, _, config = name.removeprefix(HUB).partition(":")
            found = datasets.load_dataset(place, config or None, split="train", streaming=True)
        else:
            found = datasets.load_from_disk(name)
            if isinstance(found, datasets.DatasetDict):
                if "train" not in found:
                    raise LookupError(
                        f"has no split named train; save one of its {', '.join(found)} by itself"
                    )
                found = found["train"]
        for number, row in enumerate(found):
            if not isinstance(row.get(field), str):
                raise LookupError(
                    f"row {number:,} has no text in the field {field}; name one of {', '.join(row)} with --field"
                )
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
                raise ValueError(
                    f"{file}: no UTF-8 at byte {place + error.start:,} (line {number:,}); convert it first"
                ) from None
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{file}, line {number}: no JSON ({first_line(error)})") from None
            text = content.get(field) if isinstance(content, dict) else None
            if not isinstance(text, str):
                raise ValueError(
                    f"{file}, line {number}: has no text in the field {field}; name another with --field"
                )
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
                raise ValueError(
                    f"{file}: no UTF-8 at byte {place - before + error.start:,} (line {line:,}); convert it first"
                ) from None
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
