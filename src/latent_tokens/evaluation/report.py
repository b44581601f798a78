"""Result rows for people: a table in the terminal, and the figure of accuracy and cost."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from latent_tokens.evaluation.rows import Row, labeled, metric_of, with_noise
from latent_tokens.palette import METHOD_COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHARACTERS_PER_INCH = 17  # of a caption
NO_BREAK = "\N{NO-BREAK SPACE}"

ORDER_NAMES = {
    "top_prob": "top-prob",
    "margin": "margin",
    "entropy": "entropy",
    "uniform": "uniform",
    "left_to_right": "left to right",
}


def table(rows: Sequence[Row], title: str) -> Table:
    """Return a table of results, one line per row: metric, 95% interval, and relative cost.

    The column of samples per second is left out if a row has no such measurement.
    """
    sheet = Table(title=escape(title), title_justify="left")
    metric = rows[0]["metric"]
    of_text = "entropy" in rows[0]
    timed = all("samples_per_second" in row for row in rows)
    columns = ["method", "order", "k", "latents n", metric if of_text else f"{metric} %", "95% interval"]
    columns += ["entropy"] * of_text + ["tokens"] + ["samples/s"] * timed
    for column in columns:
        sheet.add_column(column, justify="left" if column in ("method", "order") else "right", no_wrap=True)
    for i, row in enumerate(rows):
        cells = [
            row["method"],
            order_in_words(row),
            str(row["candidates"]),
            labeled(row["latents"], row.get("off_distribution", False)),
        ]
        cells += [
            f"{metric_of(row):.1f}",
            "" if row["ci95"] is None else "{:.1f} - {:.1f}".format(*row["ci95"]),
        ]
        cells += [f"{row['entropy']:.2f}"] if of_text else []
        cells += [f"{row['relative_cost']:.2f}x"]
        cells += [f"{row['samples_per_second']:.3g}"] if timed else []
        sheet.add_row(*cells, end_section=i + 1 == len(rows) or setting(rows[i + 1]) != setting(row))
    return sheet


def as_markdown(table: Sequence[Sequence[str]]) -> str:
    """Return a table, whose first line are the headings."""
    heading, *body = table
    rows = [heading, ["---"] * len(heading), *body]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def setting(row: Row) -> tuple[str, str, int | str]:
    """Return the settings that the rows of one curve share."""
    return row["method"], order_in_words(row), row["candidates"]


def order_in_words(row: Row) -> str:
    """Return the order of a row as people read it."""
    return with_noise(ORDER_NAMES.get(row["order"], row["order"]), row.get("confidence_noise"))


def figure(
    curve: Sequence[Row], references: Sequence[Row], title: str, caption: str, stem: Path
) -> list[Path]:
    """Draw validity against tokens processed, with 95% intervals, to STEM.png and STEM.svg.

    Args:
        curve: results of one model in one setting, one per number of latent tokens n.
        references: results of models whose n is fixed, one point each.
        title: the message of the figure.
        caption: task, network, training, samples and seeds.
        stem: path without suffix.
    """
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = sheet.subplots()
    draw_points(axes, curve, marker="o", linestyle="-")
    for row in curve:
        axes.annotate(
            f"n = {row['latents']}",
            (row["relative_cost"], row["valid"]),
            (7, -13),
            textcoords="offset points",
            fontsize=9,
        )
    for row in references:
        draw_points(axes, [row], marker="D", linestyle="none")
    for row in (curve[-1], *references):
        at = (row["relative_cost"], row["valid"])
        axes.annotate(
            row["method"].upper(),
            at,
            (9, 4),
            textcoords="offset points",
            color=METHOD_COLORS[row["method"]],
            weight="bold",
        )
    axes.set(xlabel="tokens processed, relative to n = all", ylabel="valid boards (%)", ylim=(0, None))
    axes.margins(x=0.08)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    return save_sheet(sheet, title, caption, stem)


def draw_points(axes: Axes, rows: Sequence[Row], marker: str, linestyle: str) -> None:
    """Draw the validity of results of one method against their relative cost, with 95% intervals."""
    shares = [row["valid"] for row in rows]
    bounds = [row["ci95"] or (row["valid"], row["valid"]) for row in rows]
    below = [share - low for share, (low, _) in zip(shares, bounds, strict=True)]
    above = [high - share for share, (_, high) in zip(shares, bounds, strict=True)]
    costs = [row["relative_cost"] for row in rows]
    axes.errorbar(
        costs,
        shares,
        [below, above],
        color=METHOD_COLORS[rows[0]["method"]],
        marker=marker,
        linestyle=linestyle,
        capsize=3,
    )


def save_sheet(sheet: Figure, title: str, caption: str, stem: Path) -> list[Path]:
    """Write a figure with its title and caption to STEM.png and STEM.svg, the same bytes each time."""
    from matplotlib import rc_context

    width = int(CHARACTERS_PER_INCH * sheet.get_figwidth())
    text = "\n".join(wrapped(line, width) for line in caption.splitlines())
    sheet.suptitle(title, fontsize=12)
    sheet.supxlabel(text, fontsize=8, color="#555555")
    paths = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    with rc_context({"svg.hashsalt": stem.name}):  # else the identifiers of an .svg are random
        for path in paths:
            sheet.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def wrapped(line: str, width: int) -> str:
    """Return a line of a caption. If it is too wide, it is broken after commas, into similar lengths."""
    joined = line.replace(" ", NO_BREAK).replace(f",{NO_BREAK}", ", ")
    wrap = partial(textwrap.wrap, joined, break_long_words=False, break_on_hyphens=False)
    num_lines = len(wrap(width))
    parts = next(parts for columns in range(1, width + 1) if len(parts := wrap(columns)) <= num_lines)
    return "\n".join(parts).replace(NO_BREAK, " ")
