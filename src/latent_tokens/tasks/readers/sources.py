"""Published puzzle files: Shah et al. (2024), Ye et al. (2025), Sudoku-Extreme (2025), lists of boards."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from latent_tokens.tasks.base import Task
from latent_tokens.tasks.countdown import Countdown
from latent_tokens.tasks.examples import Examples, joined
from latent_tokens.tasks.readers.pickles import PlainArray, read_plain_pickle
from latent_tokens.tasks.sudoku.boards import Sudoku
from latent_tokens.tasks.sudoku.puzzles import SudokuPuzzle
from latent_tokens.tasks.zebra.compact import CompactZebra
from latent_tokens.tasks.zebra.puzzles import Zebra

LONGEST_EMPTY = 1_000  # an array without bytes can have a dimension of any length


def load_npy(path: Path) -> NDArray[np.generic]:
    """Return the array of a .npy file, mapped and not read.

    Raises:
        ValueError: The file is incomplete or corrupt, or holds no array, objects, or nothing.
    """
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (MemoryError, RecursionError):  # of Python's parser
        raise ValueError(f"{path}: no complete array in it (its header is nested too deep)") from None
    except Exception as error:  # a corrupt header can fail in any way
        raise ValueError(f"{path}: no complete array in it ({type(error).__name__})") from None
    if not array.ndim or (not array.nbytes and max(array.shape) > LONGEST_EMPTY):
        raise ValueError(f"{path}: no complete array in it (of {array.dtype}, its shape is {array.shape})")
    return array


T = TypeVar("T")


Record = tuple[str, Callable[[], Examples]]  # its location, and a function that reads it


def json_lines(path: Path, row: Callable[[str], Examples]) -> Iterator[Record]:
    """Yield one record per line that is not blank."""
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            yield f"line {number}", partial(row, line)


def json_fields(text: str, kind: type[T], *names: str) -> list[T]:
    """Return fields of one type of a JSON object. Raise ValueError if one is missing or of another type."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None
    for name in names:
        if not isinstance(content, dict) or not isinstance(content.get(name), kind):
            raise ValueError(f"must be an object with {' and '.join(names)}, {name} a {kind.__name__}")
    return [content[name] for name in names]


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file. Raise ValueError if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not text in UTF-8 ({error.reason} at byte {error.start})") from None


STRATEGIES = range(9)  # 0 is given; 1 is unused


PART = 10_000  # examples joined at a time


LONGEST_REASON = 300  # characters of the message on a bad row, which may quote it


Report = Callable[[int], None]


def read_source(
    task: Task, path: Path, skip_bad: bool, report: Report = lambda done: None, most: int | None = None
) -> tuple[Examples, list[str]]:
    """Return the examples of a file, all or the first `most`, and the errors in the rows that were left out.

    Raise ValueError if the task does not have this kind of file, or for the first bad row unless bad rows are
    skipped.
    """
    parts: list[Examples] = []
    rows: list[Examples] = []
    bad: list[str] = []
    read = 0
    for where, record in records(task, path):
        if read == most:
            break
        try:
            rows.append(record())
            read += 1
        except ValueError as error:
            reason = str(error) if len(str(error)) <= LONGEST_REASON else f"{str(error)[:LONGEST_REASON]} ..."
            bad.append(f"{path.name}, {where}: {reason}")
            if not skip_bad:
                raise ValueError(
                    f"{path}, {where}: {reason}. Use --skip-bad to leave such rows out."
                ) from None
        if len(rows) == PART:
            parts.append(joined(rows))
            rows.clear()
        report(1)
    if not read:
        raise ValueError(
            f"{path}: no example in it" + (f". The first of {len(bad)} bad rows is {bad[0]}" if bad else "")
        )
    return joined([*parts, *rows]), bad


def records(task: Task, path: Path) -> Iterator[Record]:
    """Return the records of a file, read by the ending of its name."""
    readers = next((kinds for types, kinds in READERS if isinstance(task, types)), {})
    reader = readers.get(path.suffix.lower(), readers.get("other"))
    if reader is None:
        known = ", ".join(readers) or "none"
        raise ValueError(f"source={path}: {task.name} is read from files that end in {known}")
    if not path.is_file():
        raise ValueError(f"source={path}: not found. Name a file of {task.name}.")
    return reader(task, path)


def shah_sudoku(task: Sudoku | SudokuPuzzle, path: Path) -> Iterator[Record]:
    """Read Shah et al.'s .npy: the number of givens, then (row, column, value, strategy) of each cell."""
    array = load_npy(path)
    width = 4 * task.side**2 + 1
    if array.ndim != 2 or array.shape[1] != width or array.dtype.kind not in "iu":
        raise ValueError(
            f"{path}: is {array.dtype} {array.shape}, and {task.name} takes whole numbers (N, {width})"
        )
    for number, row in enumerate(array):
        yield f"row {number} (from 0)", partial(shah_row, task, row)


def shah_row(task: Sudoku | SudokuPuzzle, row: NDArray[np.int64]) -> Examples:
    """Return one example of Shah et al.'s Sudoku. Raise ValueError if the row is invalid."""
    side = task.side
    num_givens = int(row[0])
    cells = row[1:].reshape(-1, 4).astype(np.int64)
    rows, columns, values, strategies = cells.T
    for name, numbers, low, high in (
        ("row", rows, 0, side - 1),
        ("column", columns, 0, side - 1),
        ("value", values, 1, side),
    ):
        off = (numbers < low) | (numbers > high)
        if off.any():
            raise ValueError(f"{name} {numbers[off][0]}: must be {low} to {high}")
    if not 0 <= num_givens <= len(cells):
        raise ValueError(f"{num_givens} givens of {len(cells)} cells")
    positions = rows * side + columns
    if len(np.unique(positions)) < len(positions):
        raise ValueError("a cell is in it twice")
    if (
        not np.isin(strategies, STRATEGIES).all()
        or ((strategies == 0) != (np.arange(len(cells)) < num_givens)).any()
    ):
        raise ValueError(f"its strategies must be 0, given, for the first {num_givens} cells only")
    solution = np.empty(len(cells), np.int16)
    solution[positions] = values - 1
    givens = np.full(len(cells), -1, np.int16)
    givens[positions[:num_givens]] = solution[positions[:num_givens]]
    return task.example(givens, solution)


def sudoku_csv(task: Sudoku | SudokuPuzzle, path: Path) -> Iterator[Record]:
    """Read a .csv of Ye et al.'s or of Sudoku-Extreme, by its first line. Empty cells are 0 or ."""
    lines = read_lines(path)
    row = CSV_ROWS.get(lines[0].replace('"', "") if lines else "")
    if row is None:
        raise ValueError(
            f"{path}: its first line is {''.join(lines[:1])[:80]!r}, must be {' or '.join(CSV_ROWS)}"
        )
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            yield f"line {number}", partial(row, task, line.strip())


def quiz_row(task: Sudoku | SudokuPuzzle, line: str) -> Examples:
    """Return one example of Ye et al.'s Sudoku."""
    return puzzle_row(task, columns_of(line), columns=2)


def extreme_row(task: Sudoku | SudokuPuzzle, line: str) -> Examples:
    """Return one example of Sudoku-Extreme. Raise ValueError if the row is invalid."""
    columns = columns_of(line)
    if len(columns) != 4:
        raise ValueError(f"{len(columns)} columns: must be 4")
    _, question, answer, rating = columns
    if not (rating.isascii() and rating.isdigit()):
        raise ValueError(f"rating {rating!r}: must be a whole number from 0")
    return puzzle_row(task, [question, answer], columns=2)


def columns_of(line: str) -> list[str]:
    """Return the columns of a row of a .csv, quoted or not. Raise ValueError if a quote does not end."""
    try:
        (columns,) = csv.reader([line], strict=True)
    except csv.Error as error:
        raise ValueError(f"not a row of a .csv ({error})") from None
    return columns


def sudoku_lines(task: Sudoku | SudokuPuzzle, path: Path) -> Iterator[Record]:
    """Read one puzzle per line, one character per cell. Empty cells are 0 or ."""
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            yield f"line {number}", partial(puzzle_row, task, [line.strip()], columns=1)


def puzzle_row(task: Sudoku | SudokuPuzzle, texts: list[str], columns: int) -> Examples:
    """Return one example from a puzzle and, if the file has it, its solution."""
    if len(texts) != columns:
        raise ValueError(f"{len(texts)} columns: must be {columns}")
    return task.example(*(task.grid.cells(text) for text in texts))


def shah_zebra(task: Zebra | CompactZebra, path: Path) -> Iterator[Record]:
    """Read Shah et al.'s .pkl: a list of [tokens, table, order]."""
    try:
        content = read_plain_pickle(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(content, list | tuple):
        raise ValueError(f"{path}: is a {type(content).__name__}, must be a list of [tokens, table, order]")
    for number, record in enumerate(content):
        yield f"row {number} (from 0)", partial(shah_zebra_row, task, record)


def shah_zebra_row(task: Zebra | CompactZebra, record: object) -> Examples:
    """Return one example of Shah et al.'s Zebra. The clues come before ANSWER; the table is the answer."""
    words, table, _ = record if isinstance(record, list | tuple) and len(record) == 3 else (None, None, None)
    if not is_text(words) or "ANSWER" not in words:
        raise ValueError("it must be [tokens, table, order], and the tokens text that contains ANSWER")
    return zebra_row(task, words[: words.index("ANSWER")], table)


def zebra_row(task: Zebra | CompactZebra, words: Sequence[str], table: object) -> Examples:
    """Return one example from clue tokens and a table whose first row numbers the houses."""
    lists = table.array.tolist() if isinstance(table, PlainArray) else table
    if not is_table(lists):
        raise ValueError("its table must be rows of whole numbers")
    numbered, *rows = lists
    if list(numbered) != list(range(len(numbered))):
        raise ValueError(f"the first row of its table is {numbered}: it must number the houses from 0")
    return task.example(words, len(numbered), rows)


def zebra_jsonl(task: Zebra | CompactZebra, path: Path) -> Iterator[Record]:
    """Read one JSON object per line: clues, a list of tokens; solution, rows, the first numbers houses."""

    def row(text: str) -> Examples:
        clues, table = json_fields(text, list, "clues", "solution")
        if not is_text(clues):
            raise ValueError("its clues must be a list of text")
        return zebra_row(task, clues, table)

    return json_lines(path, row)


def is_table(rows: object) -> TypeGuard[Sequence[Sequence[int]]]:
    """Return whether a value is a list of rows of whole numbers, at least one."""
    return (
        isinstance(rows, list | tuple)
        and bool(rows)
        and all(isinstance(row, list | tuple) and all(type(value) is int for value in row) for row in rows)
    )


def is_text(words: object) -> TypeGuard[Sequence[str]]:
    """Return whether a value is a list of text."""
    return isinstance(words, list | tuple) and all(isinstance(word, str) for word in words)


def countdown_jsonl(task: Countdown, path: Path) -> Iterator[Record]:
    """Read Ye et al.'s .jsonl: input, numbers and target; output, equations."""

    def row(text: str) -> Examples:
        problem, answer = json_fields(text, str, "input", "output")
        return task.example(problem, answer)

    return json_lines(path, row)


CSV_ROWS: dict[str, Callable[[Sudoku | SudokuPuzzle, str], Examples]] = {
    "quizzes,solutions": quiz_row,
    "source,question,answer,rating": extreme_row,
}


READERS: tuple[tuple[tuple[type, ...], dict[str, Callable[..., Iterator[Record]]]], ...] = (
    ((Sudoku, SudokuPuzzle), {".npy": shah_sudoku, ".csv": sudoku_csv, "other": sudoku_lines}),
    ((Zebra, CompactZebra), {".pkl": shah_zebra, ".jsonl": zebra_jsonl}),
    ((Countdown,), {".jsonl": countdown_jsonl}),
)
