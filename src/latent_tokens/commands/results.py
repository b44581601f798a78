"""latent-tokens results and reproduce."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from latent_tokens.checks import in_message
from latent_tokens.commands.shared import (
    Command,
    EvaluatorName,
    keep_freed_memory,
    print_markdown,
    print_table,
)
from latent_tokens.configs import ExperimentName, ReproduceConfig
from latent_tokens.progress import CONSOLE
from latent_tokens.storage import write_atomic

if TYPE_CHECKING:
    from latent_tokens.evaluation.report import Measurement

PROTOCOL = "protocol"  # the last heading, if a measurement followed one
RESULT_HEADINGS = ("run", "task", "method", "size", "seed", "steps", "order", "k", "n", "metric", "value",
            "95% interval", "samples", "tokens", PROTOCOL)  # fmt: skip
TEXTS = ("run", "task", "method", "size", "order", "metric", PROTOCOL)
OPTIONAL_OF_RESULTS = ("samples", "steps", "size", "tokens", PROTOCOL, "task", "seed", "metric")
"""The columns that a narrow terminal leaves out, the first one first."""
OPTIONAL_OF_PAPER = ("relative cost, paper's formula", "each seed", "kind", "samples", "chance", "strict %",
                     "metric", "relative cost")  # fmt: skip
"""Likewise those of the paper's tables."""


@dataclass(frozen=True)
class Results:
    """Print the results of several runs as one table, or write them as CSV.

    Examples:
        latent-tokens results 'runs/*' --metric cells --csv results.csv
        latent-tokens results --compare 'runs/sudoku-6-scdm-*' 'runs/sudoku-6-sidm-*'
    """

    runs: Annotated[Positional[tuple[str, ...]], arg(metavar="[RUN ...]")] = ("runs/*",)
    """Runs to read. Run directories, files of result rows (.jsonl), or patterns of them. Default:
    runs/*."""
    metric: str | None = None
    """Metric to print, for example cells or relative_cost. Rows without it are left out. Default:
    that of each row."""
    compare: Annotated[tuple[str, str] | None, arg(metavar="RUN RUN")] = None
    """Compare two runs, or patterns of runs, on the same problems, in each setting that both have:
    A - B with its 95% interval. One training seed: McNemar's exact test. Several: Student's t over
    seeds."""
    csv: Path | None = None
    """CSV file to write instead of the table, with all columns. An existing file is replaced."""


def run_results(command: Results) -> int:
    """Run `latent-tokens results`. Print a table, or write a CSV file and print its path."""
    from latent_tokens.evaluation.report import as_csv, measurements, result_files
    from latent_tokens.tables import Sheet

    if command.compare is not None:
        for name in ("runs", "metric", "csv"):
            if (value := getattr(command, name)) != getattr(Results, name):
                problem = "a comparison is a table of two runs, each row by its own metric"
                setting = f"{name}={in_message(value)} with compare={in_message(command.compare)}"
                raise ValueError(f"{setting}: {problem}. Leave one of the two out.")
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
    columns = dict(zip(RESULT_HEADINGS, zip(*map(cells, rows), strict=True), strict=True))
    if not any(columns[PROTOCOL]):
        del columns[PROTOCOL]
    print_table(Sheet(columns, optional=OPTIONAL_OF_RESULTS, texts=TEXTS))
    return 0


def print_comparison(first: str, second: str) -> None:
    """Print the differences of two sets of runs, one line per setting of decoding."""
    from latent_tokens.evaluation.compare import common_settings
    from latent_tokens.evaluation.report import found_files, latest_rows
    from latent_tokens.tables import Sheet

    sides = (
        [row for file in found_files([run]) for row in latest_rows(file)] for run in (first, second)
    )
    lines: list[tuple[str, ...]] = []
    for comparison in common_settings(*sides):
        low, high = comparison.interval
        test = ("", "", "")
        if comparison.p_value is not None:
            only_a, only_b = map(str, comparison.only_one)
            test = (f"{comparison.p_value:.2g}", only_a, only_b)
        seeds = " ".join(map(str, comparison.seeds))
        values = (f"{comparison.difference:+.1f}", f"{low:+.1f} - {high:+.1f}")
        lines.append((*comparison.settings, seeds, *values, *test))
    heads = ("A", "B", "seeds", "A - B", "95% interval", "p", "only A", "only B")
    columns = dict(zip(heads, map(list, zip(*lines, strict=True)), strict=True))
    print_table(Sheet(columns, optional=("only A", "only B", "seeds"), texts=("A", "B")))


def cells(row: Measurement) -> tuple[str, ...]:
    """Return the cells of a line. A missing value is empty."""
    from latent_tokens.evaluation.report import decoding_in_words
    from latent_tokens.evaluation.rows import METRICS_OF_TEXT, SHARES, labeled

    names = ("run", "task", "method", "size", "train_seed", "train_steps")
    # The metric of a task of a user is a share, too. Only that of a row has an interval.
    is_of_task = row["ci_low"] is not None and row["metric"] not in METRICS_OF_TEXT
    is_share = row["metric"] in SHARES or is_of_task
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
    print_markdown(reproduce(command.config(ReproduceConfig)), OPTIONAL_OF_PAPER)
    return 0
