"""Captions of figures: samples, training seeds, candidates and hardware of results."""

from __future__ import annotations

from collections.abc import Sequence

from latent_tokens.evaluation.rows import Row
from latent_tokens.paper.tables.lines import Line


def measurement(lines: Sequence[Line], samples: str = "samples per seed") -> list[str]:
    """Return the samples, training seeds, candidates and hardware of results, for a caption.

    Args:
        lines: with results.
        samples: the word for samples.
    """
    rows = [row for line in lines for row in line.rows]
    seeds = span({len(line.rows) for line in lines})
    notes = [f"{span({row['num_samples'] for row in rows})} {samples}"]
    notes.append(f"{seeds} training {plural('seed', seeds)}")
    candidates = {row.get("candidates") for row in rows if row.get("order") == "top_prob"}
    fixed = candidates - {"growing"}
    if len(fixed) == 1:
        notes.append(f"k = {fixed.pop()}{' or adaptive' * ('growing' in candidates)} in top-prob order")
    return [*notes, *hardware(rows)]


def hardware(rows: Sequence[Row]) -> list[str]:
    """Return the threads, the devices and the versions of PyTorch of results, for a caption."""
    notes = []
    threads = {row["threads"] for row in rows if "threads" in row}
    if threads:
        devices = ", ".join(sorted({str(row["device"]) for row in rows}))
        notes.append(f"{span(threads)} {plural('thread', span(threads))} ({devices})")
    versions = {str(row["made_with"]["torch"]) for row in rows if "made_with" in row}
    if versions:
        releases = sorted({".".join(version.split(".")[:2]) for version in versions})
        notes.append(f"PyTorch {' and '.join(releases)}")
    return notes


def held_out_sequences(rows: Sequence[Row]) -> str:
    """Return the number and the length of the held-out sequences of results with nats."""
    counts = " or ".join(map(str, sorted({len(row["held_out_nats"]) for row in rows})))
    length = rows[0]["held_out_tokens"] // len(rows[0]["held_out_nats"])
    return f"{counts} held-out sequences of {length} tokens"


def candidates_of(rows: Sequence[Row]) -> list[str]:
    """Return the numbers of candidates of results that have one."""
    numbers = sorted({str(row["candidates"]) for row in rows if "candidates" in row})
    return [f"k = {' or '.join(numbers)}"] if numbers else []


def plural(noun: str, number: str) -> str:
    """Return a noun as it follows a number."""
    return noun if number == "1" else f"{noun}s"


def span(numbers: set[int]) -> str:
    """Return the smallest and the largest number, or the only one."""
    return "-".join(f"{number:,}" for number in sorted({min(numbers), max(numbers)}))
