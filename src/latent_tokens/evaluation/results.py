"""Result rows in .jsonl files: each holds a hash of itself, so that an edited or damaged row is noticed when it is read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latent_tokens.storage import append_line, read_lines, short_hash

Row = dict[str, Any]

HASH = "row_sha256"
FILE_HASH = "weights_file_sha256"
DIGITS = 16  # of the hash
TIMES = {"seconds", "train_seconds", "evaluate_seconds", "samples_per_second"}
NOT_MEASURED = {*TIMES, "made_with", "trained_with", "trained_at", "device", "threads", HASH}


def row_hash(row: Row) -> str:
    """The hash of a row as JSON holds it, without its own."""
    content = json.loads(json.dumps({name: value for name, value in row.items() if name != HASH}))
    return short_hash(json.dumps(content, sort_keys=True).encode(), DIGITS)


def with_hash(row: Row) -> Row:
    """A row with the hash of its content."""
    return {**row, HASH: row_hash(row)}


def append_result(path: Path, row: Row) -> None:
    """Append one row with its hash. Raises OSError naming the file."""
    append_line(path, with_hash(row))


def read_results(path: Path, needed: Sequence[str] = ()) -> list[Row]:
    """The rows of a file of results; none if it is missing.

    Raises ValueError naming the first row that was changed after it was written, or that lacks one of the keys `needed` or the value of
    its metric. Rows of version 0.1 hold no hash and are accepted.
    """
    rows = read_lines(path)
    for number, row in enumerate(rows, start=1):
        problem = problem_of(row, needed)
        if problem is not None:
            raise ValueError(f"{path}, row {number}: {problem}. Remove the row, and it is measured again")
    return rows


def problem_of(row: Row, needed: Sequence[str]) -> str | None:
    """What is wrong with a row; None if nothing is."""
    missing = [name for name in needed if name not in row]
    if missing:
        return f"has no {', '.join(missing)}"
    if "metric" in needed and not isinstance(row.get(str(row["metric"])), int | float):
        return f"has no number for its metric, {str(row['metric'])[:40]}"
    if HASH in row and row[HASH] != row_hash(row):
        return f"was changed after it was measured (its {HASH} is not that of its content)"
    return None


def check_equal(path: Path, first: Row, second: Row) -> None:
    """Raises ValueError if two rows of one recipe differ in what was measured; times, versions and hashes of the row may differ."""
    for name in first.keys() & second.keys() - NOT_MEASURED:
        equal = same_weights(first, second) if name == "weights_sha256" else first[name] == second[name]
        if not equal:
            values = f"{str(first[name])[:40]} and {str(second[name])[:40]}"
            raise ValueError(
                f"{path}: two rows of recipe {first['recipe']} differ in {name} ({values}). Remove the one that is wrong"
            )


def same_weights(first: Row, second: Row) -> bool:
    """Whether two rows are of the same weights. Version 0.1 kept the hash of their file without metadata, which newer rows hold as well."""
    if (FILE_HASH in first) == (FILE_HASH in second):
        return bool(first["weights_sha256"] == second["weights_sha256"])
    return bool(
        first.get(FILE_HASH, first["weights_sha256"]) == second.get(FILE_HASH, second["weights_sha256"])
    )
