"""Measure what docs/performance.md shows, and write its tables.

    python scripts/performance.py                 # measure every part, 30 minutes or more, and write the page
    python scripts/performance.py board text      # measure these parts
    python scripts/performance.py --render        # write the page from the rows that are stored

The rows are in results/performance/rows.jsonl, with hardware, versions and commit. A part that is measured
replaces its rows. Each table of the page is between two comments that name its part.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from page_tables import filled, names_of

from latent_tokens.bench.bench import bench
from latent_tokens.bench.report import speed_cells
from latent_tokens.configs import BenchConfig
from latent_tokens.evaluation.intervals import half_interval
from latent_tokens.evaluation.report import as_markdown
from latent_tokens.processes import fastest_device
from latent_tokens.progress import progress
from latent_tokens.storage.files import write_atomic
from latent_tokens.storage.rows import read_lines
from latent_tokens.storage.versions import source_commit

Row = dict[str, Any]

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "results" / "performance" / "rows.jsonl"
PAGE = ROOT / "docs" / "performance.md"
HEADINGS = [
    "what", "of", "n", "k", "rate", "seconds", "roofline time", "% of roofline", "speedup", "x mdm",
    "predicted",
]  # fmt: skip

PARTS = {
    "tiny": BenchConfig(),
    "board": BenchConfig(methods=("mdm", "sidm", "scdm"), lengths=(81,), train=()),
    "latents": BenchConfig(
        methods=("scdm",), latents=(0, 4, 8, 16, 32, 64, 128), precisions=("fp32",), train=(), plain=False
    ),
    "text": BenchConfig(
        methods=("esolm",), sizes=("small",), lengths=(1_024,), batch_sizes=(1, 8, 16), vocabulary=50_258,
        positions="rotary", top_p=0.9, plain=False, rounds=1, train=(),
    ),
}  # fmt: skip
"""The settings of each part. A part without them is not measured here, and its rows stay as they are."""


def measured(part: str) -> list[Row]:
    """Measure a part. Return its rows with their origin."""
    origin = {
        "part": part,
        "hardware": hardware(),
        "torch": torch.__version__.split("+")[0],
        "threads": torch.get_num_threads(),
        "commit": source_commit(),
    }
    return [{**origin, **row} for row in bench(PARTS[part])]


def hardware() -> str:
    """Return the name of the accelerator, or the number of CPU cores and their model."""
    device = fastest_device()
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    path = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", path.read_text()) if path.is_file() else None
    name = f"{os.cpu_count()} vCPUs"
    return name if model is None else f"{name} ({model[1].strip()})"


def caption(rows: Sequence[Row]) -> str:
    """Return the hardware, versions and limits that the rows of a table share."""
    first = rows[0]
    settings = [first["hardware"], f"PyTorch {first['torch']}"]
    if "threads" in first:
        settings.append(f"{first['threads']} threads")
    if "rounds" in first:
        settings.append(f"medians of {first['rounds']}" if first["rounds"] > 1 else "1 round")
    sentences = [", ".join(settings)]
    speeds = {row["precision"]: row["gemm_gflops"] for row in rows if "gemm_gflops" in row}
    if speeds:
        products = " and ".join(f"{speed:.0f} GFLOP/s in {name}" for name, speed in speeds.items())
        sentences.append(f"Matrix product: {products}")
        sentences.append(f"Copy: {first['copy_gbytes']:.0f} GB/s")
    return ".\n".join(sentences) + "."


def bench_table(rows: Sequence[Row]) -> str:
    """Return the caption and the table of benchmark rows."""
    lines = [HEADINGS]
    for row in rows:
        cells = speed_cells(row)
        if "reference_length" in row:
            cells[1] += f" (reference: padded to {row['reference_length']})"
        lines.append(cells)
    return f"{caption(rows)}\n\n{as_markdown(lines)}"


def latents_table(rows: Sequence[Row]) -> str:
    """Return seconds over n, and those predicted from the number of tokens and the seconds of n = all."""
    last = rows[-1]
    lines = [["n"], ["seconds"], ["predicted"], ["off by"]]
    for row in rows:
        predicted = last["seconds"] * last["token_theory"] / row["token_theory"]
        cells = [str(row["latents"]), f"{row['seconds']:.2f}", f"{predicted:.2f}"]
        cells.append(f"{row['seconds'] / predicted - 1:+.0%}")
        for line, cell in zip(lines, cells, strict=True):
            line.append(cell)
    return f"{caption(rows)}\n\n{as_markdown(lines)}"


def versions_table(rows: Sequence[Row]) -> str:
    """Return the CPU seconds of two versions, and their ratio."""
    lines = [["decode", "before", "after", "speedup"]]
    lines += [
        [row["of"], f"{row['before']:.2f}", f"{row['after']:.2f}", f"{row['ratio']:.2f}"] for row in rows
    ]
    return f"{caption(rows)}\n\n{as_markdown(lines)}"


def accuracy_table(rows: Sequence[Row]) -> str:
    """Return validation losses and valid boards of training in fp32 and in bf16, means over seeds."""
    lines = [
        [
            "method",
            "seeds",
            "loss, fp32",
            "loss, bf16",
            "difference",
            "valid, fp32",
            "valid, bf16",
            "difference",
        ]
    ]
    for method in dict.fromkeys(row["method"] for row in rows):
        of_method = [row for row in rows if row["method"] == method]
        cells = [f"`{method}`", str(len(of_method))]
        for name, digits, unit in (("validation_loss", 4, ""), ("valid", 1, "%")):
            pairs = [(row["fp32"][name], row["bf16"][name]) for row in of_method]
            cells += [f"{fmean(values):.{digits}f}{unit}" for values in zip(*pairs, strict=True)]
            differences = [bf16 - fp32 for fp32, bf16 in pairs]
            interval = f" ± {half_interval(differences):.{digits}f}" if len(pairs) > 1 else ""
            cells.append(f"{fmean(differences):+.{digits}f}{interval}")
        lines.append(cells)
    first = rows[0]
    recipe = f"sudoku-6, {first['size']}, {first['steps']:,} steps of 32 boards"
    samples = f"{first['samples']:,} samples per seed, n = all, k = 4"
    return f"{caption(rows)}\n{recipe}, {samples}.\n\n{as_markdown(lines)}"


def rendered(page: str, rows: Sequence[Row]) -> str:
    """Return the page with the table of each part made of its rows.

    Raises:
        ValueError: a part of the page has no rows.
    """
    tables = {}
    for part in names_of(page):
        of_part = [row for row in rows if row["part"] == part]
        if not of_part:
            raise ValueError(f"{PAGE.name} has the table {part}, and {ROWS} has no row of it")
        tables[part] = RENDERERS.get(part, bench_table)(of_part)
    return filled(page, tables)


RENDERERS = {
    "latents": latents_table,
    "cached-step": versions_table,
    "bf16-step": versions_table,
    "bf16-accuracy": accuracy_table,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the parts that were named, then write rows and page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}. Default: all.")
    parser.add_argument("--render", action="store_true", help="Measure nothing.")
    options = parser.parse_args(arguments)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"{unknown[0]}: is not a part. Use {', '.join(PARTS)}.")

    parts = [] if options.render else options.parts or list(PARTS)
    with progress("measuring", len(parts)) as advance:
        for part in parts:
            new = measured(part)
            rows = [row for row in read_lines(ROWS) if row["part"] != part] + new
            write_atomic({ROWS: "".join(f"{json.dumps(row)}\n" for row in rows).encode()})
            advance(1, part)
    page = rendered(PAGE.read_text(encoding="utf-8"), read_lines(ROWS))
    write_atomic({PAGE: page.encode()})


if __name__ == "__main__":
    main()
