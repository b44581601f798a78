"""Result rows for people: a table in the terminal and the figure of accuracy against latent tokens and cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

Row = dict[str, Any]

COLOURS = {"scdm": "#0072B2", "mdm": "#D55E00", "sidm": "#009E73", "arm": "#666666", "ar-mtp": "#CC79A7", "esolm": "#56B4E9"}  # Okabe and Ito (2008)
ORDER_NAMES = {"top_prob": "top-prob", "uniform": "uniform", "left_to_right": "left to right"}


def table(rows: Sequence[Row], title: str) -> Table:
    """n, share, interval, tokens relative to n = all, samples a second: a line a row."""
    made = Table(title=title, title_justify="left")
    metric, of_text = rows[0]["metric"], ["entropy"] if "entropy" in rows[0] else []
    for heading in ("method", "order", "k", "latents n", metric if of_text else f"{metric} %", "95 % interval", *of_text, "tokens", "samples/s"):
        made.add_column(heading, justify="left" if heading in ("method", "order") else "right", no_wrap=True)
    for i, row in enumerate(rows):
        interval = "" if row["ci95"] is None else "{:.1f} - {:.1f}".format(*row["ci95"])
        made.add_row(
            row["method"], ORDER_NAMES.get(row["order"], row["order"]), str(row["candidates"]), str(row["latents"]),
            f"{row[metric]:.1f}", interval, *(f"{row[name]:.2f}" for name in of_text), f"{row['relative_cost']:.2f}x",
            f"{row['samples_per_second']:.3g}",
            end_section=i + 1 == len(rows) or setting(rows[i + 1]) != setting(row),
        )  # fmt: skip
    return made


def as_markdown(table: Sequence[Sequence[str]]) -> str:
    """A table, its first line the headings."""
    heading, *body = table
    rows = [heading, ["---"] * len(heading), *body]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def speed_table(rows: Sequence[Row]) -> Table:
    """What was measured, its rate, seconds beside the machine's floor, and how it compares: a line a row."""
    first = rows[0]
    limits = " and ".join(f"{row['gemm_gflops']:.0f} GFLOP/s {row['precision']}" for row in {row["precision"]: row for row in rows}.values())
    title = f"{first['device']}; matrix product {limits}; copy {first['copy_gbytes']:.0f} GB/s; medians of {first['rounds']}"
    made = Table(title=title, title_justify="left")
    for heading in ("what", "of", "n", "k", "rate", "seconds", "floor", "share", "x plain", "x mdm", "tokens say", "MB"):
        made.add_column(heading, justify="left" if heading in ("what", "of") else "right", no_wrap=True)
    for row in rows:
        said = [f"{row[name]:.2f}" if name in row else "" for name in ("ratio_to_reference", "ratio_to_mdm", "token_theory")]
        rate = f"{row['rate']:,.3g}" if row["rate"] < 100 else f"{row['rate']:,.0f}"
        about = f"{row['size']} {row['batch']} x {row['length']} {row['precision']}", str(row.get("latents", "")), str(row.get("candidates", ""))
        took = f"{rate} {row['unit']}", f"{row['seconds']:.3g}", f"{row['floor_seconds']:.2g}", f"{row['share']:.0%}"
        made.add_row(f"{row['what']} {row['method']}", *about, *took, *said, f"{row['process_peak_mb']:,.0f}")
    return made


def setting(row: Row) -> tuple[str, str, Any]:
    """What rows of one curve share."""
    return row["method"], row["order"], row["candidates"]


def figure(rows: Sequence[Row], references: Sequence[Row], title: str, caption: str, stem: Path) -> list[Path]:
    """Writes STEM.png and STEM.svg: validity against the number of latents, and against tokens processed; 95 % bars.

    rows: the curve of a model with a dial, any number of orders. references: models without one, a line each.
    """
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(10, 4.6), layout="constrained")
    left, right = sheet.subplots(1, 2, sharey=True)
    ticks = list(dict.fromkeys(row["latents"] for row in rows))
    for key, line, marker in zip(dict.fromkeys(map(setting, rows)), ("-", "--", ":"), ("o", "s", "^"), strict=False):
        curve = [row for row in rows if setting(row) == key]
        method, order, candidates = key
        shares = [row["valid"] for row in curve]
        bars = [[row["valid"] - row["ci95"][0] for row in curve], [row["ci95"][1] - row["valid"] for row in curve]]
        name = f"{method.upper()}, {ORDER_NAMES[order]}" + (f", k = {candidates}" if candidates != 1 else "")
        style = {"color": COLOURS["scdm"], "linestyle": line, "marker": marker, "capsize": 3, "label": name}
        left.errorbar([ticks.index(row["latents"]) for row in curve], shares, bars, **style)
        right.errorbar([row["relative_cost"] for row in curve], shares, bars, **style)
    gap = 0.04 * max(row["valid"] for row in (*rows, *references))
    height = -gap
    for row in sorted(references, key=lambda row: float(row["valid"])):
        name, uniform = f"{row['method'].upper()}, {ORDER_NAMES[row['order']]}", row["order"] == "uniform"
        colour, height = COLOURS[row["method"]], max(row["valid"], height + gap)  # labels keep their distance
        left.axhline(row["valid"], linewidth=1, color=colour, linestyle="--" if uniform else "-")
        text = f"{name} {row['valid']:.0f}"
        left.annotate(text, (len(ticks) - 0.45, height), fontsize=7.5, va="center", color=colour, annotation_clip=False)
        right.plot(row["relative_cost"], row["valid"], "D", color=colour, fillstyle="none" if uniform else "full", label=name)
    left.set(
        xticks=range(len(ticks)), xticklabels=ticks, xlabel="latent tokens n", ylabel="valid boards, %", xlim=(-0.3, len(ticks) - 0.5), ylim=(0, None)
    )
    right.set(xlabel="tokens processed, relative to showing all")
    right.legend(fontsize=8, loc="upper left", frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    return save_sheet(sheet, title, caption, stem)


def save_sheet(sheet: Any, title: str, caption: str, stem: Path) -> list[Path]:
    """Writes a figure with its title and caption to STEM.png and STEM.svg, the same bytes each time."""
    sheet.suptitle(title, fontsize=12)
    sheet.supxlabel(caption, fontsize=8, color="#555555")
    paths = [stem.with_suffix(suffix) for suffix in (".png", ".svg")]
    for path in paths:
        sheet.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths
