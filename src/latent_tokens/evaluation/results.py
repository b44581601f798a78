"""Result rows in .jsonl files. Each has a hash of itself, so that an edited or corrupt row is detected."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from latent_tokens.checks import is_number
from latent_tokens.evaluation.rows import Row, value_of
from latent_tokens.storage import append_line, read_lines, short_hash

HASH: Final = "row_sha256"
FILE_HASH = "weights_file_sha256"
DIGITS = 16  # of the hash
TIMES = {"seconds", "train_seconds", "evaluate_seconds", "samples_per_second"}
NOT_MEASURED = {*TIMES, "made_with", "trained_with", "trained_at", "device", "threads", HASH}

UNITS: Final = "units"
PERCENT = 2  # the value of UNITS in a row whose shares are all in percent
SHARES = (
    "valid",
    "exact",
    "cells",
    "clues",
    "rows",
    "lenient",
    "strict",
    "distinct_1",
    "distinct_2",
    "distinct_3",
    "distinct_share",
)
"""Keys of shares. Until version 0.1 they were fractions of 1, except for the metric of the row."""


def row_hash(row: Mapping[str, object]) -> str:
    """Return the hash of a row as JSON has it, without the entry of the hash itself."""
    content = json.loads(json.dumps({name: value for name, value in row.items() if name != HASH}))
    return short_hash(json.dumps(content, sort_keys=True).encode(), DIGITS)


def with_hash(row: Row) -> Row:
    """Return a row with the hash of its content."""
    return {**row, HASH: row_hash(row)}


def in_percent(row: Row) -> Row:
    """Return a row with every share in percent and `"units": 2`. Such a row is returned as it is.

    The metric of a row is in percent in both units. A hash is computed again.

    Example:
        >>> in_percent({"metric": "valid", "valid": 6.5, "exact": 0.065, "soft_loss": 1.2})
        {'metric': 'valid', 'valid': 6.5, 'exact': 6.5, 'soft_loss': 1.2, 'units': 2}
    """
    if row.get(UNITS) == PERCENT:
        return row
    fractions = [name for name in SHARES if name in row and name != row.get("metric")]
    percents = {name: round(100 * value_of(row, name), 2) for name in fractions}
    converted = cast(Row, {**row, **percents, UNITS: PERCENT})
    return with_hash(converted) if HASH in row else converted


def append_result(path: Path, row: Row) -> None:
    """Append one row with its hash.

    Raises:
        OSError: the file cannot be written. The message names it.
    """
    append_line(path, with_hash(row))


def read_results(path: Path, needed: Sequence[str] = ()) -> list[Row]:
    """Return the rows of a results file with every share in percent. A missing file has no rows.

    Rows of version 0.1 have no hash and are accepted.

    Args:
        path: a .jsonl file.
        needed: keys that each row must have. If "metric" is one, so is the value of that metric.

    Raises:
        ValueError: a row was changed after it was written, or a key is missing. The message names the first.
    """
    rows = read_lines(path)
    for number, row in enumerate(rows, start=1):
        problem = problem_of(row, needed)
        if problem is not None:
            raise ValueError(f"{path}, row {number}: {problem}. Remove the row, and it is measured again")
    return [in_percent(cast(Row, row)) for row in rows]


def problem_of(row: Mapping[str, object], needed: Sequence[str]) -> str | None:
    """Return the problem of a stored row, or None."""
    missing = [name for name in needed if name not in row]
    if missing:
        return f"has no {', '.join(missing)}"
    if "metric" in needed and not is_number(row.get(str(row["metric"]))):
        return f"has no number for its metric, {str(row['metric'])[:40]}"
    fractions = [name for name in SHARES if name in row and not is_number(row[name])]
    if fractions:
        return f"has no number for {fractions[0]}"
    if HASH in row and row[HASH] != row_hash(row):
        return f"was changed after it was measured (its {HASH} is not that of its content)"
    return None


def check_equal(path: Path, first: Row, second: Row) -> None:
    """Check that two rows of one recipe agree. Times, versions and hashes of the row may differ.

    Raises:
        ValueError: they differ in a measured value.
    """
    before: Mapping[str, object] = first
    after: Mapping[str, object] = second
    for name in before.keys() & after.keys() - NOT_MEASURED:
        equal = same_weights(first, second) if name == "weights_sha256" else before[name] == after[name]
        if not equal:
            values = f"{str(before[name])[:40]} and {str(after[name])[:40]}"
            raise ValueError(
                f"{path}: two rows of recipe {first['recipe']} differ in {name} ({values})."
                " Remove the one that is wrong"
            )


def same_weights(first: Row, second: Row) -> bool:
    """Return whether two rows are of the same weights.

    `weights_sha256` is the hash of the file without metadata in rows of version 0.1. Newer rows have that
    hash too, in `weights_file_sha256`.
    """
    if (FILE_HASH in first) == (FILE_HASH in second):
        return first["weights_sha256"] == second["weights_sha256"]
    file_hashes = [row.get(FILE_HASH, row["weights_sha256"]) for row in (first, second)]
    return file_hashes[0] == file_hashes[1]
