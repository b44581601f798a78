"""latent-tokens results and reproduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from latent_tokens.commands.shared import Command, EvaluatorName, keep_freed_memory
from latent_tokens.configs import ExperimentName, ReproduceConfig
from latent_tokens.progress import CONSOLE
from latent_tokens.storage import write_atomic

if TYPE_CHECKING:
    from latent_tokens.evaluation.report import Measurement

PROTOCOL = "protocol"  # the last heading, if a measurement followed one
RESULT_HEADINGS = ("run", "task", "method", "size", "seed", "steps", "order", "k", "n", "metric", "value",
            "95% interval", "samples", "tokens", PROTOCOL)  # fmt: skip
# Aligned at the right
NUMBERS = {"seed", "steps", "k", "n", "value", "95% interval", "samples", "tokens"}


@dataclass(frozen=True)
class Results:
    """Print the results of several runs as one table, or write them as CSV.

    Examples:
        latent-tokens results runs/four runs/five
        latent-tokens results 'runs/*' --metric cells --csv results.csv
        latent-tokens results --compare 'runs/sudoku-6-scdm-*' 'runs/sudoku-6-sidm-*'
    """

    runs: Annotated[Positional[tuple[str, ...]], arg(metavar="[RUN ...]")] = ("runs/*",)
    """Runs to read. Run directories, files of result rows (.jsonl), or patterns of them. Default:
    runs/*."""
    metric: str | None = None
    """Metric to print, for example cells or relative_cost. Rows without it are left out. Default:
    that of each row."""
    compare: tuple[str, str] | None = None
    """Compare two runs, or patterns of runs, on the same problems, in each setting that both have:
    A - B with its 95% interval. One training seed: McNemar's exact test. Several: Student's t over
    seeds."""
    csv: Path | None = None
    """CSV file to write instead of the table, with all columns. An existing file is replaced."""


def run_results(command: Results) -> int:
    """Run `latent-tokens results`. Print a table, or write a CSV file and print its path."""
    from latent_tokens.evaluation.report import as_csv, measurements, result_files

    if command.compare is not None:
        print_comparison(*command.compare)
        return 0
    rows = measurements(command.runs, command.metric)
    _, without_results = result_files(command.runs)
    if without_results:
        CONSOLE.print(f"without results: {', '.join(map(str, without_results))}", soft_wrap=True)
    if command.csv is not None:
        write_atomic({command.csv: as_csv(rows).encode()})
        print(command.csv)
        return 0
    lines = [RESULT_HEADINGS, *map(cells, rows)]
    if not any(row.get(PROTOCOL) for row in rows):
        lines = [line[:-1] for line in lines]
    print(aligned(lines))
    return 0


def print_comparison(first: str, second: str) -> None:
    """Print the differences of two sets of runs, one line per setting of decoding."""
    from latent_tokens.evaluation.compare import common_settings
    from latent_tokens.evaluation.report import found_files, latest_rows

    sides = (
        [row for file in found_files([run]) for row in latest_rows(file)] for run in (first, second)
    )
    lines: list[tuple[str, ...]] = [
        ("A", "B", "seeds", "A - B", "95% interval", "p", "only A", "only B")
    ]
    for found in common_settings(*sides):
        low, high = found.interval
        test: tuple[str, ...] = ("", "", "")
        if found.p_value is not None:
            test = (f"{found.p_value:.2g}", *map(str, found.only_one))
        seeds = " ".join(map(str, found.seeds))
        lines.append(
            (*found.settings, seeds, f"{found.difference:+.1f}", f"{low:+.1f} - {high:+.1f}", *test)
        )
    print(aligned(lines))


def cells(row: Measurement) -> tuple[str, ...]:
    """Return the cells of a line. A missing value is empty."""
    from latent_tokens.evaluation.report import decoding_in_words
    from latent_tokens.evaluation.rows import SHARES, labeled

    names = ("run", "task", "method", "size", "train_seed", "train_steps")
    is_share = row["metric"] in SHARES
    number = "{:.1f}" if is_share else "{:.4g}"
    interval = "" if row["ci_low"] is None else f"{number} - {number}"
    return (
        *("" if row.get(name) is None else str(row[name]) for name in names),
        decoding_in_words(row),
        str(row["candidates_setting"]),
        labeled(str(row["latents_setting"]), bool(row.get("off_distribution"))),
        f"{row['metric']} %" if is_share else str(row["metric"]),
        number.format(row["value"]),
        interval.format(row["ci_low"], row["ci_high"]),
        f"{row['num_samples']:,}",
        f"{row['relative_cost']:.2f}x",
        str(row.get(PROTOCOL) or ""),
    )


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells as text with aligned columns. The first line are the headings."""
    columns = []
    for column in zip(*lines, strict=True):
        side = ">" if column[0] in NUMBERS else "<"
        width = max(map(len, column))
        columns.append([f"{cell:{side}{width}}" for cell in column])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


@dataclass(frozen=True, kw_only=True)
class Reproduce(Command, ReproduceConfig):
    """Reproduce a table or figure of the paper.

    Missing results are computed, interrupted runs are resumed and stored ones are reused.

    Examples:
        latent-tokens reproduce figure-1 --scale smoke
        latent-tokens reproduce all --status
    """

    experiment: Annotated[ExperimentName, arg(metavar="NAME")]
    evaluator: EvaluatorName = None


def run_reproduce(command: Reproduce) -> int:
    """Run `latent-tokens reproduce`. Print the table."""
    from latent_tokens.paper.reproduce import reproduce

    keep_freed_memory()
    print(reproduce(command.config(ReproduceConfig)), end="")
    return 0
