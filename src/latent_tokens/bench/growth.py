"""Decoding time against latent tokens, length and batch size, compared with the number of tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from latent_tokens.bench.bench import measure_all
from latent_tokens.bench.cases import Case, Row, Setting, decoding_case, nets, settings
from latent_tokens.configs import BenchConfig, Precision
from latent_tokens.evaluation.report import save_sheet
from latent_tokens.palette import AMBER, METHOD_COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LATENTS = (0, 4, 8, 16, 32, 64, 128)
LENGTHS = (16, 32, 64)
BATCHES = (1, 4, 16, 64, 256)
SHORT = 32  # the length of the panel over batch sizes
PANELS = ("latents", "length", "batch")
GRAY = "#555555"  # of the legend
LABELS = {"latents": "latent tokens n"}  # of the x axes


def grow(config: BenchConfig, folder: Path, *, on_row: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """Measure decoding time in the first size and precision. Write growth.png, growth.svg, growth.jsonl.

    The panels are scdm against latents at the config's longest length and first batch size, and each method
    against length and against batch size. Latents, lengths or batch sizes of the config replace the default
    ones if there are several.
    """
    # The settings of each panel.
    precisions = (config.precisions or ("fp32",))[:1]
    base = replace(config, sizes=config.sizes[:1], precisions=precisions, train=(), plain=False)
    settings(base)  # raises ValueError before anything is measured
    length = max(config.lengths)
    batch = config.batch_sizes[0]
    latents = several(config.latents, (*(n for n in LATENTS if n < length), length))
    lengths = several(config.lengths, (*(x for x in LENGTHS if x < length), length))
    batches = several(config.batch_sizes, BATCHES)
    panels = {
        "latents": replace(
            base, methods=("mdm", "scdm"), lengths=(length,), batch_sizes=(batch,), latents=latents
        ),
        "length": replace(base, lengths=lengths, batch_sizes=(batch,), latents=(0,)),
        "batch": replace(base, lengths=(min(SHORT, length),), batch_sizes=batches, latents=(0,)),
    }

    # Their rows.
    rows = []
    for panel, panel_config in panels.items():
        cases_of = partial(decoding_cases, panel_config, settings(panel_config))
        measured = measure_all(panel_config, cases_of, partial(report_row, on_row, panel))
        rows += [{**row, "panel": panel} for row in measured]

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "growth.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    draw_figure(rows, folder / "growth")
    return rows


def several(values: tuple[int, ...], default: tuple[int, ...]) -> tuple[int, ...]:
    """Return the values if there are several, otherwise the default."""
    return values if len(values) > 1 else default


def report_row(on_row: Callable[[Row], None], panel: str, row: Row) -> None:
    """Report a row as growth.jsonl will have it."""
    on_row({**row, "panel": panel})


def decoding_cases(
    config: BenchConfig, chosen: list[Setting], precision: Precision, device: torch.device
) -> Iterator[list[Case]]:
    """Yield the decoding cases."""
    for net, size, length, batch in nets(config, precision, device):
        yield [decoding_case(net, size, length, batch, *setting, config.top_p) for setting in chosen]


def draw_figure(rows: Sequence[Row], stem: Path) -> None:
    """Write STEM.png and STEM.svg: measured seconds as points, numbers of tokens as lines."""
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(12, 4.2), layout="constrained")
    for axes, panel in zip(sheet.subplots(1, 3), PANELS, strict=True):
        panel_rows = [row for row in rows if row["panel"] == panel]
        if panel == "latents":
            panel_rows = [row for row in panel_rows if row["method"] == "scdm"]
        draw_panel(axes, panel, panel_rows)
    caption = "the prediction is scaled to the last point"
    save_sheet(sheet, f"Decoding time, {rows[0]['size']}, {rows[0]['precision']}", caption, stem)


def draw_panel(axes: Axes, panel: str, rows: Sequence[Row]) -> None:
    """Draw the rows of a panel, one color per method."""
    from matplotlib.ticker import LogFormatter, NullLocator, StrMethodFormatter

    for method in dict.fromkeys(row["method"] for row in rows):
        curve = [row for row in rows if row["method"] == method]
        xs = [x_of(row, panel) for row in curve]
        seconds = [row["seconds"] for row in curve]
        tokens = [row["batch"] * row["length"] ** 2 / row["token_theory"] for row in curve]
        scale = seconds[-1] / tokens[-1]
        color = METHOD_COLORS.get(method, AMBER)
        axes.plot(xs, seconds, "o", color=color, label=method)
        axes.plot(xs, [scale * count for count in tokens], "-", linewidth=1, color=color)
    axes.set(xscale="log", yscale="log", xlabel=LABELS.get(panel, panel), ylabel="seconds")
    ticks = {x_of(row, panel): str(row[panel]) for row in rows}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(LogFormatter())  # shown if less than a decade is
    axes.plot([], [], "o", color=GRAY, label="measured")
    axes.plot([], [], "-", linewidth=1, color=GRAY, label="predicted from tokens")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
    axes.set_title(title(rows, panel), fontsize=9)


def x_of(row: Row, panel: str) -> float:
    """Return the place of a row on the axis of a panel. Zero is drawn at 0.5."""
    value = row["length"] if row[panel] == "all" else row[panel]
    return max(float(value), 0.5)


def title(rows: Sequence[Row], panel: str) -> str:
    """Return the settings that are equal in a panel."""
    fixed = {"length": f"length {rows[0]['length']}", "batch": f"batch {rows[0]['batch']}"}
    return ", ".join(text for name, text in fixed.items() if name != panel)
