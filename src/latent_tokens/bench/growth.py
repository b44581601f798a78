"""How decoding time grows: against latents, length and batch, beside what the number of tokens alone says. A figure and its rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from latent_tokens.bench.bench import Case, Setting, decoding_case, measure_all, nets, settings
from latent_tokens.configs import BenchConfig, Precision
from latent_tokens.evaluation.report import COLORS, save_sheet

Row = dict[str, Any]

LATENTS = (0, 4, 8, 16, 32, 64, 128)
LENGTHS = (16, 32, 64)
BATCHES = (1, 4, 16, 64, 256)
SHORT = 32  # the length at which the batch grows
PANELS = ("latents", "length", "batch")


def grow(config: BenchConfig, folder: Path, *, on_row: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """Measures and writes growth.png, growth.svg and growth.jsonl: decoding time against each of PANELS, in the config's first size and precision.

    scdm against latents at the config's longest length and first batch size, and each of its methods against length and batch
    size. Where the config names several latents, lengths or batch sizes, it is these.
    """
    base = replace(config, sizes=config.sizes[:1], precisions=config.precisions[:1], train=(), plain=False)
    settings(base)
    length, batch = max(config.lengths), config.batch_sizes[0]
    dial = config.latents if len(config.latents) > 1 else (*(n for n in LATENTS if n < length), length)
    lengths = config.lengths if len(config.lengths) > 1 else (*(x for x in LENGTHS if x < length), length)
    batches = config.batch_sizes if len(config.batch_sizes) > 1 else BATCHES
    sweeps = {
        "latents": replace(
            base, methods=("mdm", "scdm"), lengths=(length,), batch_sizes=(batch,), latents=dial
        ),
        "length": replace(base, lengths=lengths, batch_sizes=(batch,), latents=(0,)),
        "batch": replace(base, lengths=(min(SHORT, length),), batch_sizes=batches, latents=(0,)),
    }
    rows = []
    for panel, asked in sweeps.items():
        found = measure_all(
            asked, partial(decoding_alone, asked, settings(asked)), partial(say, on_row, panel)
        )
        rows += [{**row, "panel": panel} for row in found]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "growth.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    draw_figure(rows, folder / "growth")
    return rows


def say(on_row: Callable[[Row], None], panel: str, row: Row) -> None:
    """Tells of a row as growth.jsonl will have it."""
    on_row({**row, "panel": panel})


def decoding_alone(
    config: BenchConfig, asked: list[Setting], precision: Precision, device: torch.device
) -> Iterator[list[Case]]:
    """The decoding cases."""
    for net, size, length, batch in nets(config, precision, device):
        yield [decoding_case(net, size, length, batch, *setting, config.top_p) for setting in asked]


def draw_figure(rows: Sequence[Row], stem: Path) -> None:
    """STEM.png and STEM.svg: measured seconds as points, what the tokens say as lines, on log axes."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    sheet = Figure(figsize=(12, 4.2), layout="constrained")
    for axes, panel in zip(sheet.subplots(1, 3), PANELS, strict=True):
        here = [
            row for row in rows if row["panel"] == panel and (panel != "latents" or row["method"] == "scdm")
        ]
        for method in dict.fromkeys(row["method"] for row in here):
            curve = [row for row in here if row["method"] == method]
            where = [row["length"] if row[panel] == "all" else row[panel] for row in curve]
            tokens = [row["batch"] * row["length"] ** 2 / row["token_theory"] for row in curve]
            scale = curve[-1]["seconds"] / tokens[-1]
            colour = COLORS.get(method, "#E69F00")
            axes.plot(
                [max(x, 0.5) for x in where],
                [row["seconds"] for row in curve],
                "o",
                color=colour,
                label=method,
            )
            axes.plot(
                [max(x, 0.5) for x in where],
                [scale * count for count in tokens],
                "-",
                linewidth=1,
                color=colour,
            )
        axes.set(
            xscale="log",
            yscale="log",
            xlabel={"latents": "latent tokens n"}.get(panel, panel),
            ylabel="seconds",
        )
        places = {
            max(row["length"] if row[panel] == "all" else row[panel], 0.5): str(row[panel]) for row in here
        }
        axes.set_xticks(list(places), list(places.values()))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8, frameon=False)
        axes.set_title(title(here, panel), fontsize=9)
    about = rows[0]
    caption = "points are measured, lines are the number of tokens, scaled to the last point"
    save_sheet(sheet, f"Decoding time, {about['size']}, {about['precision']}", caption, stem)


def title(rows: Sequence[Row], panel: str) -> str:
    """What stays the same in a panel."""
    fixed = {"length": f"length {rows[0]['length']}", "batch": f"batch {rows[0]['batch']}"}
    return ", ".join(text for name, text in fixed.items() if name != panel)
