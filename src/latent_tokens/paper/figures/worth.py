"""The table and the figure of what masked tokens in the input are worth: exact nats of held-out text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from latent_tokens.core.method import METHODS
from latent_tokens.evaluation.report import ORDER_NAMES, as_markdown, save_sheet
from latent_tokens.evaluation.rows import Row
from latent_tokens.palette import METHOD_COLORS, PAGE
from latent_tokens.paper.design.cells import Cell
from latent_tokens.paper.design.experiments import EXPERIMENTS
from latent_tokens.paper.design.scales import SMOLLM2
from latent_tokens.paper.figures.captions import candidates_of, hardware, held_out_sequences
from latent_tokens.paper.figures.legends import by_method, legend_below
from latent_tokens.paper.figures.sheets import sheet_of
from latent_tokens.paper.running.held_out import held_out, nats_above
from latent_tokens.paper.tables.lines import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEADINGS = (
    *("model", "order", "n", "latent tokens", "seed", "nats per token", "difference to n = 0"),
    *("relative cost", "sequences"),
)
LEGEND = (
    "Nats are exact, of the same held-out sequences in every line of a model, along one order per sequence."
    " A difference has a 95% interval over sequences. Each line is of one training seed, and no interval"
    " covers the variation between seeds. The first n masked tokens of the order are `nearest`. `adjacent`"
    " are the n closest positions, `distant` the n farthest ones. `decaying` are drawn, with a probability"
    " that falls with the distance. In blocks of b positions, blocks are decoded from left to right, and each"
    " in any order. Blocks of 1 are the order from left to right. The difference is to n = 0 in the same"
    " blocks."
)
LINES = {
    "nearest": "-",
    "adjacent": "--",
    "decaying": "-.",
    "random": ":",
    "distant": (0, (2, 3)),
}
DODGE = 0.1  # between the points of two policies
MARKERS = {"nearest": "o", "adjacent": "s", "decaying": "D", "random": "^", "distant": "v"}


def policy_of(cell: Cell) -> str | None:
    """Return the latent policy of a cell, or None if the cell is about blocks."""
    if cell.variant in (None, "likelihood"):
        return "nearest"
    return cell.variant if block_of(cell) is None else None


def block_of(cell: Cell) -> int | None:
    """Return the block length of a cell, or None."""
    match = re.fullmatch(r"blocks of (\d+)", cell.variant or "")
    return int(match[1]) if match else None


def model_of(cell: Cell) -> str:
    """Return the name of the model of a cell."""
    return cell.method if cell.task != SMOLLM2 else f"SmolLM2, {cell.method}"


def without_latents(line: Line, lines: Sequence[Line]) -> Row | None:
    """Return the row of the same model and training seed, in the same order at n = 0, or None."""
    block = block_of(line.cell)
    seed = line.rows[0]["train_seed"]
    for other in lines:
        same = model_of(other.cell) == model_of(line.cell) and block_of(other.cell) == block
        if other.cell.latents == 0 and same:
            return next((row for row in other.rows if row["train_seed"] == seed), None)
    return None


def worth_markdown(lines: Sequence[Line], experiment: str) -> str:
    """Return the table of the experiment, and its legend."""
    body = [cells_of(one, lines) for line in lines for one in by_seed(line)]
    return f"{as_markdown([HEADINGS, *body])}\n{LEGEND}\n"


def by_seed(line: Line) -> list[Line]:
    """Return a line for each training seed with a result, or the line as it is if there is no result."""
    return [line.of_seeds([row["train_seed"]]) for row in line.rows] or [line]


def cells_of(line: Line, lines: Sequence[Line]) -> tuple[str, ...]:
    """Return one line of the table, of one training seed."""
    cell = line.cell
    order = ORDER_NAMES[cell.order] if block_of(cell) is None else str(cell.variant)
    names = (
        model_of(cell),
        order,
        str(cell.latents),
        "nearest" if policy_of(cell) is None else policy_of(cell),
    )
    if not line.rows:
        return (*map(str, names), "", "not run", "", "", "")
    row = line.rows[0]
    first = without_latents(line, lines)
    above = nats_above(row, first) if first is not None and cell.latents != 0 else None
    return (
        *map(str, names),
        str(row["train_seed"]),
        f"{held_out(row):.3f}",
        "" if above is None else f"{above[0]:+.4f} ± {above[1]:.4f}",
        f"{row['relative_cost']:.2f}x",
        f"{len(row['held_out_nats']):,}",
    )


def draw_worth(lines: Sequence[Line], experiment: str, command: str, stem: Path) -> list[Path]:
    """Write STEM.png and STEM.svg: a panel per model over n, and one over the length of blocks.

    Models without a difference to n = 0 have no panel.
    """
    shown = by_method([line for line in lines if line.rows])
    by_model: dict[str, list[Line]] = {}
    for line in shown:
        by_model.setdefault(model_of(line.cell), []).append(line)
    models = [model for model, its_lines in by_model.items() if curves_of(its_lines)]
    if not models:
        return []
    in_blocks = [line for line in shown if block_of(line.cell) is not None and line.cell.latents != 0]
    sheet = sheet_of(len(models) + bool(in_blocks), 4.6)
    panels = sheet.axes
    for axes in panels[1 : len(models)]:
        axes.sharey(panels[0])
    for axes, model in zip(panels, models, strict=False):
        over_latents(axes, by_model[model])
        axes.set_title(model, fontsize=10)
    if in_blocks:
        over_blocks(panels[-1], shown)
    for axes in panels:
        axes.set_ylabel("nats per token above n = 0")
        axes.axhline(0, color=PAGE["edge"], linewidth=1)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
        legend_below(axes)
    rows = [line.rows[0] for line in shown]
    notes = [held_out_sequences(rows), "one training seed", *candidates_of(rows), *hardware(rows)]
    caption = f"{', '.join(notes)}, 95% intervals over sequences\n{command}"
    return save_sheet(sheet, EXPERIMENTS[experiment].title, caption, stem)


def over_latents(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw the difference to n = 0 over n, one curve per policy, side by side."""
    curves = curves_of(lines)
    numbers = sorted({n for points in curves.values() for n, *_ in points})
    for number, (policy, points) in enumerate(curves.items()):
        at, above, half = zip(*points, strict=True)
        aside = DODGE * (number - (len(curves) - 1) / 2)
        axes.errorbar(
            [numbers.index(n) + aside for n in at],
            above,
            half,
            linestyle=LINES[policy],
            marker=MARKERS[policy],
            markersize=4,
            capsize=2,
            color=METHOD_COLORS[lines[0].cell.method],
            label=policy,
        )
    axes.set(xticks=range(len(numbers)), xticklabels=numbers, xlabel="latent tokens n")


def curves_of(lines: Sequence[Line]) -> dict[str, list[tuple[int, float, float]]]:
    """Return the points of each policy that has more than n = 0."""
    curves = {policy: points_of(lines, policy) for policy in LINES}
    return {policy: points for policy, points in curves.items() if len(points) > 1}


def points_of(lines: Sequence[Line], policy: str) -> list[tuple[int, float, float]]:
    """Return n, the nats above n = 0, and half of the interval, of each line of a policy. n = 0 is first."""
    points = [(0, 0.0, 0.0)]
    for line in lines:
        n = line.cell.latents
        first = without_latents(line, lines)
        if policy_of(line.cell) != policy or not isinstance(n, int) or not n or first is None:
            continue
        above = nats_above(line.rows[0], first)
        if above is not None:
            points.append((n, *above))
    return points


def over_blocks(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw the difference to n = 0 over the length of blocks, for one n and a curve per model."""
    blocks = [line for line in lines if block_of(line.cell) is not None and line.cell.latents != 0]
    n = blocks[0].cell.latents
    any_order = [
        line for line in lines
        if line.cell.latents == n and policy_of(line.cell) == "nearest"
        and not METHODS[line.cell.method].is_left_to_right
    ]  # fmt: skip
    sizes = sorted({size for line in blocks if (size := block_of(line.cell)) is not None})
    for model in dict.fromkeys(model_of(line.cell) for line in blocks):
        curve = [line for line in [*blocks, *any_order] if model_of(line.cell) == model]
        points = []
        for line in curve:
            first = without_latents(line, lines)
            above = None if first is None else nats_above(line.rows[0], first)
            if above is not None:
                size = block_of(line.cell)
                points.append((len(sizes) if size is None else sizes.index(size), *above))
        if not points:
            continue
        at, means, halves = zip(*sorted(points), strict=True)
        axes.errorbar(
            at, means, halves, marker="o", markersize=4, capsize=3,
            linestyle="--" if model.startswith("SmolLM2") else "-",
            color=METHOD_COLORS[curve[0].cell.method], label=model,
        )  # fmt: skip
    axes.set(xticks=range(len(sizes) + 1), xticklabels=[*sizes, "any order"], xlabel="positions of a block")
    axes.set_title(f"n = {n}, by block length", fontsize=10)
