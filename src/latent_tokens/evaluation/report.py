"""Result rows for people: a table in the terminal, and the figure of accuracy and cost."""

from __future__ import annotations

import csv
import glob
import io
import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latent_tokens.checks import did_you_mean, is_number
from latent_tokens.evaluation.rows import (
    IF_SET,
    KEYS,
    NOT_MEASURED,
    Row,
    bounds_of,
    described_run,
    entries,
    labeled,
    metric_of,
    read_results,
    speed_in_words,
    value_of,
)
from latent_tokens.palette import DARK, METHOD_COLORS
from latent_tokens.storage import kind_of, read_description
from latent_tokens.tables import Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

CHARACTERS_PER_INCH = 17  # of a caption
CAPTION_LINE = 0.13  # inches
NO_BREAK = "\N{NO-BREAK SPACE}"
ORDER_NAMES = {
    "top_prob": "top-prob",
    "margin": "margin",
    "entropy": "entropy",
    "uniform": "uniform",
    "left_to_right": "left to right",
}


OPTIONAL_MEASUREMENTS = ("samples/s", "passes", "entropy", "per step", "tokens")
"""The columns of a table of results that a narrow terminal leaves out, the first one first."""


def table(rows: Sequence[Row], title: str) -> Sheet:
    """Return a table of results, one line per row: metric, 95% interval, tokens, forward passes.

    A column is left out if no row has its setting, or a row lacks its measurement.
    """
    heading = rows[0]["metric"] if "entropy" in rows[0] else f"{rows[0]['metric']} %"
    selected = any(map(selection_in_words, rows))

    def numbers(name: str, form: str) -> list[str]:
        values = [value_of(row, name) for row in rows if name in row]
        return [form.format(value) for value in values] if len(values) == len(rows) else []

    columns = {
        "method": [row["method"] for row in rows],
        "order": [order_in_words(row) for row in rows],
        "k": [str(row["candidates"]) for row in rows],
        "latents n": [labeled(row["latents"], row.get("off_distribution", False)) for row in rows],
        "per step": [selection_in_words(row) for row in rows if selected],
        heading: [f"{metric_of(row):.1f}" for row in rows],
        "95% interval": [bounds_of(row["ci95"]) for row in rows],
        "entropy": numbers("entropy", "{:.2f}"),
        "tokens": numbers("relative_cost", "{:.2f}x"),
        "passes": numbers("forward_passes_mean", "{:.1f}"),
        "samples/s": [speed_in_words(float(cell)) for cell in numbers("samples_per_second", "{}")],
    }
    columns = {name: cells for name, cells in columns.items() if cells}
    ends = [
        number
        for number, (row, after) in enumerate(pairwise(rows))
        if setting(row) != setting(after)
    ]
    return Sheet(columns, title, OPTIONAL_MEASUREMENTS, ("method", "order"), ends)


def decoding_in_words(row: Mapping[str, Any]) -> str:
    """Return the order of a row and what else its decoding sets besides k and n."""
    return ", ".join(filter(None, (order_in_words(row), variant_in_words(row))))


def variant_in_words(row: Mapping[str, Any]) -> str:
    """Return what a row's decoding sets besides order, k and n, empty if it is the usual one."""
    words = [selection_in_words(row)]
    for name, label in (("temperature", "temperature"), ("top_p", "top-p")):
        if row.get(name, 1) != 1:
            words.append(f"{label} {row[name]:g}")
    words += [f"{name.replace('_', ' ')} {row[name]}" for name in IF_SET[1:] if name in row]
    if row.get("latent_policy", "nearest") != "nearest":
        words.append(f"{row['latent_policy']} latents")
    if not row.get("refresh", True):
        words.append("not reshuffled")
    return ", ".join(filter(None, words))


def selection_in_words(row: Mapping[str, Any]) -> str:
    """Return how many tokens a step decodes, empty for one."""
    names = ("threshold", "entropy_bound", "factor", "frechet_bound")
    words = [f"{name.replace('_', ' ')} {row[name]:g}" for name in names if name in row]
    if "select" in row:
        words.append(row["select"])
    if "tokens_per_step" in row:
        words.append(f"{'at most ' if words else ''}{row['tokens_per_step']}")
    return ", ".join(words)


def as_markdown(table: Sequence[Sequence[str]]) -> str:
    """Return a table, whose first line are the headings."""
    heading, *body = table
    rows = [heading, ["---"] * len(heading), *body]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def setting(row: Row) -> tuple[str, str, int | str]:
    """Return the settings that the rows of one curve share."""
    return row["method"], order_in_words(row), row["candidates"]


def order_in_words(row: Mapping[str, Any]) -> str:
    """Return the order of a row as people read it, with the scale of the noise on its confidence."""
    order = ORDER_NAMES.get(row["order"], row["order"])
    if block := re.fullmatch(r"blockwise:(\d+) ?(.*)", order):
        order = f"blocks of {block[1]}, {ORDER_NAMES.get(block[2] or 'top_prob', block[2])}"
    noise = row.get("confidence_noise")
    return f"{order}, noise {noise:g}" if noise else order


def draw_results(
    curves: Sequence[Sequence[Row]], references: Sequence[Row], title: str, caption: str, stem: Path
) -> list[Path]:
    """Draw validity against tokens processed, with 95% intervals, to STEM.png and STEM.svg.

    Args:
        curves: results of one model, a curve for each decoding order, one row per number of latent
            tokens n. The first order is drawn as the main one, with its n at each point.
        references: results of models whose n is fixed, one point each.
        title: the message of the figure.
        caption: task, network, training, samples and seeds.
        stem: path without suffix.
    """
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(7.2, 4.8), layout="constrained")
    axes = sheet.subplots()
    for curve, linestyle in zip(curves, LINE_STYLES, strict=False):
        label = f"{curve[0]['method'].upper()}, {order_in_words(curve[0])}"
        draw_points(axes, curve, marker="o", linestyle=linestyle, label=label)
    for row in curves[0]:
        at = (row["relative_cost"], row["valid"])
        axes.annotate(
            f"n = {row['latents']}",
            at,
            (6, -13),
            textcoords="offset points",
            fontsize=9,
            bbox=OVER_GRID,
        )
    markers = dict(zip((order_in_words(curve[0]) for curve in curves), "DPs^", strict=False))
    for row in references:
        order = order_in_words(row)
        label = f"{row['method'].upper()}, {order}"
        draw_points(axes, [row], marker=markers[order], linestyle="none", label=label)
    axes.set_ylim(0, None)
    axes.margins(x=0.1)
    style(axes, "tokens processed, relative to n = all", "valid boards (%)")
    legend_of(sheet, columns=3)
    return save_sheet(sheet, title, caption, stem, dark=True)


OVER_GRID = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
"""The box of a label, which hides the grid behind it."""

LINE_STYLES = ("-", "--", "-.", ":")
"""The curves of four decoding orders, the main one first."""


def draw_points(axes: Axes, rows: Sequence[Row], marker: str, linestyle: str, label: str) -> None:
    """Draw the validity of results of one method against their relative cost, with 95% intervals."""
    shares = [row["valid"] for row in rows]
    bounds = [row["ci95"] or (row["valid"], row["valid"]) for row in rows]
    below = [share - low for share, (low, _) in zip(shares, bounds, strict=True)]
    above = [high - share for share, (_, high) in zip(shares, bounds, strict=True)]
    costs = [row["relative_cost"] for row in rows]
    style: Any = {
        "color": METHOD_COLORS[rows[0]["method"]],
        "marker": marker,
        "linestyle": linestyle,
        "label": label,
    }
    axes.errorbar(costs, shares, [below, above], **style, capsize=3)


def style(axes: Axes, x: str, y: str, title: str = "") -> None:
    """Give a panel its labels, with their units, and the look of all figures: two spines and a pale grid."""
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)


def legend_of(sheet: Figure, columns: int) -> None:
    """Draw the legend of all panels below them, where it hides no curve. Each label is in it once.

    `save_sheet` places it above the caption.
    """
    entries = [
        pair for axes in sheet.axes for pair in zip(*axes.get_legend_handles_labels(), strict=True)
    ]
    by_label = {label: handle for handle, label in reversed(entries)}
    labels = list(dict.fromkeys(label for _, label in entries))
    sheet.legend(
        [by_label[label] for label in labels],
        labels,
        loc="lower center",
        borderaxespad=0,
        ncols=columns,
        fontsize=8.5,
        frameon=False,
        handlelength=3,  # shows a dashed line as one
    )


def save_sheet(
    sheet: Figure, title: str, caption: str, stem: Path, *, dark: bool = False
) -> list[Path]:
    """Write a figure with its title and caption to STEM.png and STEM.svg, the same bytes each time.

    With `dark`, also STEM-dark.svg, for pages in dark colors.
    """
    from matplotlib import rc_context

    width = int(CHARACTERS_PER_INCH * sheet.get_figwidth())
    text = "\n".join(wrapped(line, width) for line in caption.splitlines())
    for legend in sheet.legends:  # which the layout does not know: empty lines keep its place
        num_lines = text.count("\n") + 1.5
        legend.set_bbox_to_anchor((0.5, num_lines * CAPTION_LINE / sheet.get_figheight()))
        num_columns = legend._ncols  # type: ignore[attr-defined]  # it has no getter
        num_rows = math.ceil(len(legend.get_texts()) / num_columns)
        text = "\n" * round(1.6 * num_rows + 0.5) + text
    sheet.suptitle(title, fontsize=12)
    sheet.supxlabel(text, fontsize=8, color="#555555")
    paths = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    with rc_context({"svg.hashsalt": stem.name}):  # else the identifiers of an .svg are random
        for path in paths:
            sheet.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
        if dark:
            darken(sheet)
            paths.append(stem.with_name(f"{stem.stem}-dark.svg"))
            sheet.savefig(paths[-1], metadata={"Date": None})
    return paths


def darken(sheet: Figure) -> None:
    """Replace the colors of a figure by those for dark pages."""
    from matplotlib.artist import Artist, getp
    from matplotlib.colors import to_hex, to_rgba_array
    from matplotlib.text import Text

    names = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")
    artists = sheet.findobj(Artist)
    boxes = [box for text in sheet.findobj(Text) if (box := text.get_bbox_patch()) is not None]
    for artist in dict.fromkeys([*artists, *boxes]):
        for name in names:
            if not hasattr(artist, f"set_{name}") or not hasattr(artist, f"get_{name}"):
                continue
            colors = to_rgba_array(getp(artist, name))
            dark = [(DARK.get(to_hex(color), to_hex(color)), color[3]) for color in colors]
            if dark:
                artist.set(**{name: dark if len(dark) > 1 else dark[0]})


def wrapped(line: str, width: int) -> str:
    """Return a line of a caption. If it is too wide, it is broken after commas, into similar lengths."""
    joined = line.replace(" ", NO_BREAK).replace(f",{NO_BREAK}", ", ")
    wrap = partial(textwrap.wrap, joined, break_long_words=False, break_on_hyphens=False)
    num_lines = len(wrap(width))
    parts = next(
        parts for columns in range(1, width + 1) if len(parts := wrap(columns)) <= num_lines
    )
    return "\n".join(parts).replace(NO_BREAK, " ")


Measurement = dict[str, str | float | None]  # a result row whose values are numbers and texts
Paths = Sequence[str | Path]
FIRST_COLUMNS = (
    "run", "task", "method", "size", "train_seed", "train_steps", "order", "candidates", "latents",
    "candidates_setting", "latents_setting", "metric", "value", "ci_low", "ci_high", "num_samples",
    "relative_cost",
)  # fmt: skip
INTEGERS = ("train_seed", "train_steps", "candidates", "latents", "num_samples", "length", "seed")
DRAWN_KEYS = ("task", "method", "order", "latents", "candidates", "metric", "ci95", "num_samples")


def results(*runs: str | Path, metric: str | None = None) -> DataFrame:
    """Return the results of several runs as a pandas DataFrame, one row per measurement.

    Rows that differ in times and versions only are one measurement, of which the last one stays.

    Columns are the entries of results.jsonl that are numbers or texts, with these differences:

    - `run`, `folder`, `size`, `train_seed` and `train_steps` name the training run. Its other settings are
      `train_lr`, `train_batch_size` and so on.
    - `value` is the value of `metric`. `ci_low` and `ci_high` are the bounds of its 95% interval.
    - `latents` and `candidates` are whole numbers. "all" is the length of the sequence, and the name of a
      rule is missing. `latents_setting` and `candidates_setting` are texts, as set: "4" or "all".
    - `commit` is the commit of the code that measured.

    Args:
        runs: run directories, files of result rows (.jsonl), and glob patterns of them. Runs
            without results are left out.
        metric: the metric to have as `value`. Rows without it are left out. None: the metric of
            each row. A metric that is not the row's own has no interval.

    Raises:
        ImportError: pandas is not installed.
        ValueError: nothing is found, or a file is corrupt.

    Example::

        table = results("runs/*")
        table.groupby(["method", "latents"]).value.agg(["mean", "std"])  # over seeds
    """
    try:
        import pandas as pd
    except ImportError:
        fix = "pip install pandas, or use `latent-tokens results RUN --csv FILE`"
        raise ImportError(f"latent_tokens.results: pandas is not installed. {fix}.") from None

    rows = measurements(runs, metric)
    table = pd.DataFrame(rows, columns=columns_of(rows))
    return table.astype({name: "Int64" for name in INTEGERS if name in table})


def measurements(runs: Paths, metric: str | None = None) -> list[Measurement]:
    """Return the rows of `results`, which also documents them."""
    rows = [row for file in found_files(runs) for row in measurements_of(file)]
    return rows if metric is None else of_metric(rows, metric)


def found_files(runs: Paths) -> list[Path]:
    """Return the files of result rows. Raise ValueError if there is none, or as `result_files`."""
    files, without_results = result_files(runs)
    if not files:
        folder = without_results[0] if without_results else "RUN"
        raise ValueError(
            f"{' '.join(map(str, runs))}: has no results.jsonl. Run latent-tokens evaluate {folder} first."
        )
    return files


def latest_rows(file: Path) -> list[Row]:
    """Return the rows of a file, the last one of those that differ in times and versions only."""
    return list({measurement_key(row): row for row in read_results(file, DRAWN_KEYS)}.values())


def result_files(runs: Paths) -> tuple[list[Path], list[Path]]:
    """Return (the files of result rows, the run directories that have none).

    Raises:
        ValueError: a path or a pattern matches nothing, or a path is neither a run nor a file of
            rows.
    """
    files: list[Path] = []
    without_results: list[Path] = []
    for run in runs:
        path = Path(run)
        is_there = kind_of(path) != "missing"
        matches = [path] if is_there else list(map(Path, sorted(glob.glob(str(run)))))
        if not matches:
            fix = "Name run directories, or quote a pattern: 'runs/*'."
            raise ValueError(f"{run}: not found. {fix}")
        for match in matches:
            kind = kind_of(match)
            if kind == "rows":
                files.append(match)
            elif (match / "results.jsonl").is_file():
                files.append(match / "results.jsonl")
            elif kind in ("model", "corrupt"):
                without_results.append(match)
            elif is_there:  # others that a pattern matches are left out
                fix = "Name one, a .jsonl, or a pattern in quotes: 'runs/*'."
                raise ValueError(f"{run}: is not a run directory. {fix}")
    return list(dict.fromkeys(files)), without_results


def measurements_of(file: Path) -> list[Measurement]:
    """Return the rows of one file. The settings of a run are those of the config.json next to it."""
    folder = file.parent
    run: dict[str, object] = {"folder": str(folder)}
    if kind_of(folder) in ("model", "corrupt"):
        description = read_description(folder, "config.json", "run")
        training = entries(description, "training")
        others = [name for name in training if name not in (*KEYS.values(), "task", "method")]
        run |= {
            **described_run(folder, description),
            **{f"train_{name}": training[name] for name in others},
        }
    # That of today, if the directory was renamed
    run_name = {"run": run["run"]} if "run" in run else {}
    return [measurement({**run, **row, **run_name}) for row in latest_rows(file)]


def measurement_key(row: Row) -> str:
    """Return what a row measured, as text. Rows that repeat a measurement differ in times and versions."""
    content = {name: value for name, value in row.items() if name not in NOT_MEASURED}
    return json.dumps(content, sort_keys=True)


def measurement(row: Mapping[str, Any]) -> Measurement:
    """Return a row with its metric as `value`. Lists and nested entries are left out."""
    low, high = row["ci95"] or (None, None)
    kinds = str | float | int | None
    plain = {name: value for name, value in row.items() if isinstance(value, kinds)}
    for name in ("candidates", "latents"):
        plain[f"{name}_setting"] = str(row[name])
        number = row.get("length") if row[name] == "all" else row[name]
        plain[name] = number if isinstance(number, int) else None  # None for a rule
    return {
        **plain,
        "value": row[row["metric"]],
        "ci_low": low,
        "ci_high": high,
        "commit": (row.get("made_with") or {}).get("commit"),
    }


def of_metric(rows: list[Measurement], metric: str) -> list[Measurement]:
    """Return the rows that have a metric, with it as their value. Raise ValueError if none has it."""
    having = [row for row in rows if is_number(row.get(metric))]
    if not having:
        names = sorted({name for row in rows for name, value in row.items() if is_number(value)})
        own = sorted({str(row["metric"]) for row in rows})
        fix = did_you_mean(metric, names) or f". Leave it out for {' or '.join(own)}."
        raise ValueError(f"metric={metric}: no row has it{fix}")
    no_interval: Measurement = {"ci_low": None, "ci_high": None}
    return [
        row
        if row["metric"] == metric
        else {**row, **no_interval, "metric": metric, "value": row[metric]}
        for row in having
    ]


def columns_of(rows: Iterable[Measurement]) -> list[str]:
    """Return the columns of a table: those that most readers want come first."""
    return list(dict.fromkeys([*FIRST_COLUMNS, *(name for row in rows for name in row)]))


def as_csv(rows: list[Measurement]) -> str:
    """Return rows as a CSV file with a line of names. A missing value is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns_of(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
