"""Published puzzle files: Shah et al. (2024), Ye et al. (2025), Sudoku-Extreme (2025), lists of boards."""

from __future__ import annotations

import csv
import io
import json
import pickle
import warnings
from collections.abc import Callable, Iterator
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import first_line
from latent_tokens.storage import readable
from latent_tokens.tasks.base import Task
from latent_tokens.tasks.countdown import Countdown
from latent_tokens.tasks.examples import Examples, joined
from latent_tokens.tasks.sudoku.boards import Sudoku
from latent_tokens.tasks.sudoku.puzzles import SudokuPuzzle
from latent_tokens.tasks.zebra.compact import CompactZebra
from latent_tokens.tasks.zebra.puzzles import Zebra

JOINED_AT_ONCE = 10_000  # examples joined at a time
LONGEST_ROW = 1 << 20  # characters
MOST_LINES = 100_000_000  # of a file, which can be a device without an end
LONGEST_REASON = 300  # characters of the message on a bad record, which may quote it
CSV_COLUMNS = {
    "quizzes,solutions": ("quizzes", "solutions"),  # Ye et al.
    "source,question,answer,rating": ("question", "answer"),  # Sudoku-Extreme
}

Records = Iterator[tuple[str, Any]]  # the location of each record, and the record
SudokuTask = Sudoku | SudokuPuzzle
ZebraTask = Zebra | CompactZebra


def read_source(
    task: Task,
    path: Path,
    skip_bad: bool,
    report: Callable[[int], None] = lambda done: None,
    most: int | None = None,
) -> tuple[Examples, list[str]]:
    """Return the examples of a file, all or the first `most`, and the errors in the records left out.

    Raise ValueError if the task does not have this kind of file, or for the first bad record,
    unless such are skipped.
    """
    # Find the reader by the ending of the name.
    readers = next((formats for kinds, formats in READERS if isinstance(task, kinds)), {})
    if path.suffix.lower() not in readers and "other" not in readers:
        known = ", ".join(readers) or "none"
        raise ValueError(f"source={path}: {task.name} is read from files that end in {known}")
    if not path.is_file():
        raise ValueError(f"source={path}: not found. Name a file of {task.name}.")
    records, example_of = readers.get(path.suffix.lower()) or readers["other"]

    # Read the records, each checked as a puzzle with one solution.
    parts: list[Examples] = []
    rows: list[Examples] = []
    bad: list[str] = []
    for where, record in records(path):
        if most is not None and JOINED_AT_ONCE * len(parts) + len(rows) == most:
            break
        try:
            rows.append(example_of(task, record))
        except Exception as error:  # a record can be anything
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            bad.append(f"{path.name}, {where}: {kind}{first_line(error)[:LONGEST_REASON]}")
            if not skip_bad:
                raise ValueError(f"{bad[-1]}. Use --skip-bad to leave such rows out.") from None
        if len(rows) == JOINED_AT_ONCE:
            parts.append(joined(rows))
            rows = []
        report(1)
    if not parts and not rows:
        raise ValueError("; ".join([f"{path}: no example in it", *bad[:1]]))
    return joined([*parts, *rows]), bad


def lines_of(path: Path) -> Records:
    """Yield the lines of a text file that are not blank. Raise ValueError for one that does not end."""
    try:
        with readable(path), path.open(encoding="utf-8-sig") as file:
            for number in range(1, MOST_LINES):
                line = file.readline(LONGEST_ROW)
                if not line:
                    return
                if len(line) == LONGEST_ROW:
                    problem = f"longer than {LONGEST_ROW:,} characters"
                    raise ValueError(f"{path}, line {number}: {problem}")
                if line.strip():
                    yield f"line {number}", line.strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not text in UTF-8 ({error.reason})") from None
    raise ValueError(f"{path}: has {MOST_LINES:,} lines or more")


def rows_of_npy(path: Path) -> Records:
    """Yield the rows of an array, which is mapped and not read."""
    try:
        with (
            warnings.catch_warnings()
        ):  # numpy parses the header as Python, which prints lines of code
            warnings.simplefilter("ignore")
            array = np.lib.format.open_memmap(path, mode="r")
        rows = enumerate(array)
    except Exception as error:  # a corrupt header can fail in any way
        raise ValueError(f"{path}: no complete array in it ({type(error).__name__})") from None
    for number, row in rows:
        yield f"row {number} (from 0)", row


def rows_of_csv(path: Path) -> Records:
    """Yield the puzzle and the solution of each row, quoted or not, by the names in the first line."""
    lines = lines_of(path)
    _, header = next(lines, ("", ""))
    columns = CSV_COLUMNS.get(header.replace('"', ""))
    if columns is None:
        must = f"must be {' or '.join(CSV_COLUMNS)}"
        raise ValueError(f"{path}: its first line is {header[:80]!r}, {must}")
    names = header.replace('"', "").split(",")
    for where, line in lines:
        row = dict(zip(names, next(csv.reader([line])), strict=False))
        yield where, [row.get(name, "") for name in columns]


def shah_sudoku(task: SudokuTask, row: NDArray[Any]) -> Examples:
    """Return an example of Shah et al.: the number of givens, then row, column, value, strategy of cells."""
    rows, columns, values, _ = row[1:].reshape(task.side**2, 4).astype(np.int64).T
    positions = rows * task.side + columns
    solution = np.full(task.side**2, -1, np.int16)
    solution[positions] = values - 1
    givens = np.full(task.side**2, -1, np.int16)
    shown = positions[: row[0]]
    givens[shown] = solution[shown]
    return task.example(givens, solution)


def sudoku_pair(task: SudokuTask, texts: list[str]) -> Examples:
    """Return an example of a puzzle and its solution. Empty cells are 0 or ."""
    return task.example(*map(task.grid.cells, texts))


def sudoku_line(task: SudokuTask, text: str) -> Examples:
    """Return an example of a puzzle, one character per cell."""
    return task.example(task.grid.cells(text))


def shah_zebra(task: ZebraTask, record: list[Any]) -> Examples:
    """Return an example of Shah et al., [tokens, table, order]: the clues come before ANSWER."""
    words, table, _ = record
    return zebra(task, words[: words.index("ANSWER")], table)


def zebra_line(task: ZebraTask, text: str) -> Examples:
    """Return an example of JSON: clues, a list of tokens; solution, rows, the first numbers houses."""
    content = json.loads(text)
    return zebra(task, content["clues"], content["solution"])


def zebra(task: ZebraTask, words: list[str], table: list[list[int]]) -> Examples:
    """Return an example of clue tokens and a table, whose first row numbers the houses."""
    numbered, *answer = [[index(value) for value in row] for row in table]
    if numbered != list(range(len(numbered))):
        raise ValueError(f"first row {numbered} of the table: it must number the houses from 0")
    return task.example(words, len(numbered), answer)


def countdown_line(task: Countdown, text: str) -> Examples:
    """Return an example of Ye et al.'s JSON: input, numbers and target; output, equations."""
    content = json.loads(text)
    return task.example(content["input"], content["output"])


class Ignored:
    """Stands in for arrays and their types, such as the order of a record, which is not read."""

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


ALLOWED: dict[str, Callable[..., Any]] = {
    "numpy.dtype": Ignored,
    "numpy.ndarray": Ignored,
    "numpy._core.multiarray._reconstruct": Ignored,
    "numpy._core.multiarray.scalar": lambda kind, raw: int.from_bytes(raw, "little", signed=True),
    "numpy._core.numeric._frombuffer": Ignored,
    "_codecs.encode": lambda text, _: text.encode("latin-1"),
    "__builtin__.bytes": bytes,
}


class PlainUnpickler(pickle.Unpickler):
    """An unpickler of lists, numbers and text. A name that arrays need is harmless, any other refused."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        full_name = f"{module.replace('numpy.core', 'numpy._core')}.{name}"
        if full_name not in ALLOWED:
            problem = "and only lists, numbers and strings are read"
            raise pickle.UnpicklingError(f"it names {full_name[:160]}, {problem}")
        return ALLOWED[full_name]


def rows_of_pickle(path: Path) -> Records:
    """Yield the entries of a pickled list, arrays as `Ignored`. Nothing is executed."""
    try:
        content = PlainUnpickler(io.BytesIO(path.read_bytes())).load()
    except Exception as error:  # a corrupt stream can fail in any way
        raise ValueError(f"{path}: pickle refused ({first_line(error)})") from None
    if not isinstance(content, list | tuple):
        raise ValueError(
            f"{path}: is a {type(content).__name__}, must be a list of [tokens, table, order]"
        )
    for number, record in enumerate(content):
        yield f"row {number} (from 0)", record


Format = tuple[Callable[[Path], Records], Callable[[Any, Any], Examples]]
SUDOKU_FORMATS: dict[str, Format] = {
    ".npy": (rows_of_npy, shah_sudoku),
    ".csv": (rows_of_csv, sudoku_pair),
    "other": (lines_of, sudoku_line),
}
ZEBRA_FORMATS: dict[str, Format] = {
    ".pkl": (rows_of_pickle, shah_zebra),
    ".jsonl": (lines_of, zebra_line),
}
READERS: tuple[tuple[tuple[type, ...], dict[str, Format]], ...] = (
    ((Sudoku, SudokuPuzzle), SUDOKU_FORMATS),
    ((Zebra, CompactZebra), ZEBRA_FORMATS),
    ((Countdown,), {".jsonl": (lines_of, countdown_line)}),
)
"""By the types of tasks and the ending of a file: what yields its records, and an example of one."""
