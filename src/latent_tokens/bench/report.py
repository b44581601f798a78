"""The table of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from latent_tokens.evaluation.rows import labeled

BenchRow = Mapping[str, Any]
"""A row of `bench --json`."""

BENCH_ALIASES = {  # of keys in bench --json, to the names of the table
    "roofline_seconds": "floor_seconds",
    "roofline_fraction": "share",
    "speedup": "ratio_to_reference",
}


def bench_value(row: BenchRow, name: str) -> float | None:
    """Return a value of a benchmark row under its name or the key that `bench --json` writes, or None."""
    value: float | None = row.get(name, row.get(BENCH_ALIASES.get(name, name)))
    return value


def speed_table(rows: Sequence[BenchRow]) -> Table:
    """Return the benchmark as a table, one line per row: rate, seconds, roofline time and speedups."""
    first = rows[0]
    speeds = {row["precision"]: f"{row['gemm_gflops']:.0f} GFLOP/s {row['precision']}" for row in rows}
    title = (
        f"{first['device']}; matrix product {' and '.join(speeds.values())}; "
        f"copy {first['copy_gbytes']:.0f} GB/s; medians of {first['rounds']}"
    )
    table = Table(title=title, title_justify="left")
    for heading in ("what", "of"):
        table.add_column(heading, justify="left", no_wrap=True)
    for heading in (
        "n",
        "k",
        "rate",
        "seconds",
        "roofline\ntime",
        "% of\nroofline",
        "speedup",
        "x mdm",
        "predicted",
        "MB",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*speed_cells(row), f"{row['process_peak_mb']:,.0f}")
    return table


def speed_cells(row: BenchRow) -> list[str]:
    """Return the cells of a row of the benchmark, from its workload to the speedup predicted from tokens."""
    rate = f"{row['rate']:,.3g}" if row["rate"] < 100 else f"{row['rate']:,.0f}"
    ratios = [bench_value(row, name) for name in ("speedup", "ratio_to_mdm", "token_theory")]
    return [
        f"{row['what']} {row['method']}",
        f"{row['size']} {row['batch']} x {row['length']} {row['precision']}",
        labeled(row.get("latents", ""), row.get("off_distribution", False)),
        str(row.get("candidates", "")),
        f"{rate} {row['unit']}",
        f"{row['seconds']:.3g}",
        f"{bench_value(row, 'roofline_seconds'):.2g}",
        f"{bench_value(row, 'roofline_fraction'):.0%}",
        *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
    ]
