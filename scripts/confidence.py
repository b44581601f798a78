"""Measure which candidate to decode, with the bundled models of boards: a part of docs/results.md.

    python scripts/confidence.py              # measure what is missing, one row at a time
    python scripts/confidence.py --render     # write the tables and the figure from the rows that are stored

The confidence of a candidate is its largest probability (top-prob), the distance to the second largest
(margin), or the negative entropy of its prediction. The rows are in results/confidence/rows.jsonl. Those of
dead-ends.jsonl also have the step at which a board lost its last solution.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple, cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from page_tables import write_tables

from latent_tokens import load
from latent_tokens.evaluation.evaluate import Watcher, evaluate
from latent_tokens.evaluation.report import ORDER_NAMES, as_markdown, save_sheet
from latent_tokens.evaluation.rows import DeadEndRecord, Row, append_result, metric_of, read_results
from latent_tokens.palette import METHOD_COLORS
from latent_tokens.paper.figures.captions import hardware, span
from latent_tokens.paper.figures.legends import DASH_DOTTED, DOTTED, SOLID, legend_below
from latent_tokens.paper.watchers.dead_ends import DeadEnds
from latent_tokens.paper.watchers.diversity import Diversity, columns_of
from latent_tokens.tasks import Sudoku

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "results" / "confidence" / "rows.jsonl"
DEAD_ENDS = ROWS.with_name("dead-ends.jsonl")
PAGE = ROOT / "docs" / "results.md"
SAMPLES = 500
Candidates = Literal[8, "growing", "all"]
CANDIDATES: tuple[Candidates, ...] = (8, "growing", "all")
STYLES = {"top_prob": (SOLID, "o"), "margin": (DASH_DOTTED, "s"), "entropy": (DOTTED, "D")}
PLACES: dict[int | str, int] = {8: 0, "all": 1, "growing": 2}  # of candidates on the axis
STEPS = ((0, 10), (10, 20), (20, 81))  # numbers of clean tokens, the last one excluded

Latents = Literal[0, "all"]
Order = Literal["top_prob", "margin", "entropy"]


class Setting(NamedTuple):
    """A bundled model and how it decodes."""

    model: str
    order: Order
    candidates: Candidates
    latents: Latents


def settings() -> list[Setting]:
    """Return what is measured. With k = all, scdm has no latent tokens."""
    orders: tuple[Order, ...] = ("top_prob", "entropy")
    listed = []
    for side, order in product((6, 9), orders):
        listed += [Setting(f"sudoku-{side}-mdm", order, k, "all") for k in CANDIDATES]
    for side, order in product((6, 9), orders):
        with_latents: tuple[tuple[Candidates, Latents], ...] = ((8, 0), (8, "all"), ("all", 0))
        listed += [Setting(f"sudoku-{side}-scdm", order, k, n) for k, n in with_latents]
    return [*listed, *(Setting("sudoku-6-mdm", "margin", k, "all") for k in CANDIDATES)]


def settings_of_dead_ends() -> list[Setting]:
    """Return the settings of which the lost boards are counted: all candidates, two confidences."""
    return [each for each in settings() if each.candidates == "all" and each.order != "margin"]


def setting_of(row: Row) -> tuple[object, ...]:
    """Return the setting of a row, as `Setting` has it."""
    return row["run"], row["order"], row["candidates"], row["latents"]


def measure(path: Path, wanted: Sequence[Setting], watcher: Callable[[Sudoku], Watcher]) -> None:
    """Measure every setting without a row. Each row is stored when it has been measured."""
    path.parent.mkdir(exist_ok=True)
    for setting in wanted:
        if setting in map(setting_of, rows(path)):
            continue
        model = load(setting.model)
        task = cast(Sudoku, model.task)
        (row,) = evaluate(
            model.net,
            task,
            order=setting.order,
            candidates=setting.candidates,
            latents=(setting.latents,) if model.method.latent_control == "free" else None,
            num_samples=SAMPLES,
            watcher=partial(watcher, task),
        )
        append_result(path, row)


def rows(path: Path) -> list[Row]:
    """Return the rows that are stored."""
    return list(read_results(path)) if path.exists() else []


def table(stored: Sequence[Row]) -> str:
    """Return a line per model and confidence, with a column per number of candidates."""
    headings = ["model", "n", "confidence", *(f"k = {k}" for k in CANDIDATES), "intercalates at k = all"]
    lines = [headings]
    by_setting = {setting_of(row): row for row in stored}
    for model, n, order in dict.fromkeys((each.model, each.latents, each.order) for each in settings()):
        found = [by_setting.get((model, order, k, n)) for k in CANDIDATES]
        found[-1] = found[-1] or by_setting.get((model, order, "all", 0))
        cells = ["not run" if row is None else with_interval(row) for row in found]
        intercalates = "" if found[-1] is None else columns_of([found[-1]])[1]
        lines.append([f"`{model}`", str(n), ORDER_NAMES[order], *cells, intercalates])
    return as_markdown(lines)


def dead_ends_table(stored: Sequence[Row]) -> str:
    """Return a line per model and confidence: when boards lose their last solution, out of 100."""
    steps = ["steps 1 to 10", "11 to 20", "later"]
    headings = ["model", "confidence", "valid %", *steps, "largest probability, steps 1 to 10"]
    lines = [headings]
    for row in stored:
        lost = [100 * sum(each["died"] for each in part) / SAMPLES for part in by_steps(row)]
        first = by_steps(row)[0]
        sure = sum(each["sure"] * each["alive"] for each in first) / sum(each["alive"] for each in first)
        cells = [f"{metric_of(row):.1f}", *(f"{share:.1f}" for share in lost), f"{sure:.3f}"]
        lines.append([f"`{row['run']}`", ORDER_NAMES[row["order"]], *cells])
    return as_markdown(lines)


def by_steps(row: Row) -> list[list[DeadEndRecord]]:
    """Return the records of each group of steps."""
    return [[each for each in row["dead_ends"] if low <= each["clean"] < high] for low, high in STEPS]


def with_interval(row: Row) -> str:
    """Return the percent of valid boards with its interval."""
    low, high = row["ci95"] or (0, 100)
    return f"{metric_of(row):.1f} ({low:.1f}-{high:.1f})"


def draw(stored: Sequence[Row], stem: Path) -> None:
    """Write STEM.png and STEM.svg: valid boards over k, a curve per model and confidence, a panel per size.

    Adaptive candidates are apart from the numbers, because they are not a point of the curve.
    """
    sheet = Figure(figsize=(9, 5.4), layout="constrained")
    panels = sheet.subplots(1, 2, sharey=True)
    for axes, side in zip(panels, (6, 9), strict=True):
        of_side = [
            row
            for row in stored
            if row["run"].startswith(f"sudoku-{side}-")
            and (row["latents"] != 0 or row["candidates"] == "all")
        ]
        for method, order in product(("mdm", "scdm"), STYLES):
            curve = [row for row in of_side if (row["method"], row["order"]) == (method, order)]
            draw_curve(axes, sorted(curve, key=lambda row: PLACES[row["candidates"]]), method, order)
        axes.set_title(f"sudoku-{side}", fontsize=10)
        axes.set(xlabel="candidates k", xlim=(-0.3, 2.3), ylim=(0, 100))
        ticks = ["8", f"all ({side * side})", "growing\n(clean + 1)"]
        axes.set_xticks(list(PLACES.values()), ticks, fontsize=8)
        axes.axvline(1.5, linewidth=0.8, linestyle=":", color="#999999")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
        legend_below(axes)
    panels[0].set_ylabel("valid %")
    notes = [
        f"{span({row['num_samples'] for row in stored})} samples per seed",
        "1 training seed (bundled models)",
    ]
    notes += ["n = all", *hardware(stored), "95% intervals"]
    caption = f"{', '.join(notes)}\npython scripts/confidence.py --render"
    save_sheet(sheet, "Which candidate is decoded: bundled models", caption, stem)


def draw_curve(axes: Axes, curve: Sequence[Row], method: str, order: str) -> None:
    """Draw the results of a model and a confidence: a line between numbers of candidates only."""
    line, marker = STYLES[order]
    for is_joined in (True, False):
        points = [row for row in curve if (row["candidates"] != "growing") == is_joined]
        bounds = [row["ci95"] or [0, 100] for row in points]
        values = [metric_of(row) for row in points]
        below = [value - low for value, (low, _) in zip(values, bounds, strict=True)]
        above = [high - value for value, (_, high) in zip(values, bounds, strict=True)]
        if points:
            axes.errorbar(
                [PLACES[row["candidates"]] for row in points],
                values,
                [below, above],
                linestyle=line if is_joined else "none",
                marker=marker,
                markersize=5,
                capsize=3,
                color=METHOD_COLORS[method],
                label=f"{method}, {ORDER_NAMES[order]}" if is_joined else None,
            )


def main() -> None:
    """Measure what is missing, then write the tables and the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--render", action="store_true", help="Measure nothing.")
    if not parser.parse_args().render:
        measure(ROWS, settings(), Diversity)
        measure(DEAD_ENDS, settings_of_dead_ends(), DeadEnds)
    tables = {"confidence": table(rows(ROWS)), "dead-ends": dead_ends_table(rows(DEAD_ENDS))}
    write_tables(PAGE, tables)
    draw(rows(ROWS), ROWS.with_name("confidence"))


if __name__ == "__main__":
    main()
