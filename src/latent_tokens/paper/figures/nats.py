"""The table and the figure of boards in exact nats, by latent tokens, policy and timing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from latent_tokens.evaluation.intervals import half_interval
from latent_tokens.evaluation.report import ORDER_NAMES, as_markdown, save_sheet
from latent_tokens.palette import METHOD_COLORS, PAGE
from latent_tokens.paper.design.experiments import EXPERIMENTS
from latent_tokens.paper.design.variants import IN_NATS, label
from latent_tokens.paper.figures.captions import measurement
from latent_tokens.paper.figures.entropy import NATS_PER_CELL
from latent_tokens.paper.figures.legends import by_method, legend_below
from latent_tokens.paper.tables.lines import Line, stand_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEADINGS = (
    *("task", "method", "order", "n", "latent tokens", "nats per cell", "each seed", "difference to n = 0"),
    *("over boards", "above the entropy", "relative cost", "boards"),
)
LEGEND = (
    "Nats are exact, of the same held-out boards in every line. The uniform order is a random one per board."
    " The top-prob order is the one in which the model decodes the board, by teacher forcing with all its"
    " latent tokens. One token is scored per step. The difference is to scdm with n = 0"
    " along the same kind of order, with the 95% interval over training seeds (Student's t), paired by seed"
    ' and board. "Over boards" is half of the 95% interval of its mean over boards. Latent tokens are random'
    " unless a policy is named, as in decoding, which reshuffles its schedule. In the top-prob order the"
    " `nearest` are those that are decoded next. In the uniform order they are random, too. The entropy of"
    " the solver's boards is the lower bound, 0.4691 nats per 6x6 cell. Equally likely boards would have"
    " ln(28,200,960) / 36 = 0.4765. Relative cost is tokens processed, relative to all masked tokens in every"
    " step."
)
ASIDE = {"nearest": -1, "relevant": -2, "constrained of a unit": -3, "constant": 0, "a share": 1, "early": 2}
ASIDE |= {"late": 3, "mdm": 1}
"""The places of markers of about the same cost: those of one n on its left, timings and mdm on the right."""
DODGE = 0.013  # of the relative cost, from one place to the next
MARKERS = dict(zip(IN_NATS, ("s", "o", "D", "^", "P", "X", "<", ">"), strict=True))


def without_latents(line: Line, lines: Sequence[Line]) -> Line | None:
    """Return the line of scdm at n = 0 along the same kind of order, or None."""
    for other in lines:
        if (other.cell.method, other.cell.order, other.cell.latents) == ("scdm", line.cell.order, 0):
            return other
    return None


def differences(line: Line, first: Line) -> np.ndarray:
    """Return the nats per cell that a line is above another, by seed and board, (seeds, boards)."""
    other = {row["train_seed"]: row for row in first.rows}
    return np.array(
        [
            (np.array(row["held_out_nats"]) - other[row["train_seed"]]["held_out_nats"])
            * len(row["held_out_nats"])
            / row["held_out_tokens"]
            for row in line.rows
            if row["train_seed"] in other
        ]
    )


def half_of(values: np.ndarray) -> float | None:
    """Return half of the 95% interval of a mean, or None for one value."""
    return half_interval(values.tolist()) if len(values) > 1 else None


def with_half(mean: float, half: float | None) -> str:
    """Return a difference with its interval if it has one."""
    return f"{mean:+.4f}" if half is None else f"{mean:+.4f} ± {half:.4f}"


def policy_of(line: Line) -> str:
    """Return the latent policy or the timing of a line, empty if n is not free."""
    return label(line.cell.variant) if line.cell.method == "scdm" else ""


def nats_markdown(lines: Sequence[Line], experiment: str) -> str:
    """Return the table of the experiment, and its legend."""
    body = [cells_of(line, lines) for line in lines]
    return f"{as_markdown([HEADINGS, *body])}\n{LEGEND}\n"


def cells_of(line: Line, lines: Sequence[Line]) -> tuple[str, ...]:
    """Return one line of the table."""
    n = line.cell.latents
    names = (
        *(stand_in(line), line.cell.method, ORDER_NAMES[line.cell.order]),
        *("" if n is None else str(n), policy_of(line)),
    )
    if not line.rows:
        return (*names, "not run", *("" for _ in HEADINGS[len(names) + 1 :]))
    first = without_latents(line, lines)
    above = np.empty((0, 0)) if first is None or first is line else differences(line, first)
    over_boards = half_of(above.mean(0)) if len(above) else None
    entropy = NATS_PER_CELL.get(stand_in(line))
    return (
        *names,
        line.written(line.mean),
        " ".join(map(line.written, line.values)),
        with_half(above.mean(), half_of(above.mean(1))) if len(above) else "",
        "" if over_boards is None else f"± {over_boards:.4f}",
        "" if entropy is None else line.signed(line.mean - entropy),
        f"{relative_cost(line):.2f}x",
        str(line.rows[0]["num_samples"]),
    )


def relative_cost(line: Line) -> float:
    """Return the mean relative cost over seeds."""
    return fmean(row["relative_cost"] for row in line.rows)


def draw_nats(lines: Sequence[Line], experiment: str, command: str, stem: Path) -> list[Path]:
    """Write STEM.png and STEM.svg: nats per cell over relative cost, a panel per kind of order.

    Without results nothing is written.
    """
    from matplotlib.figure import Figure

    shown = by_method([line for line in lines if line.rows])
    orders = list(dict.fromkeys(line.cell.order for line in shown))
    if not orders:
        return []
    sheet = Figure(figsize=(max(8, 5.5 * len(orders)), 5.8), layout="constrained")
    panels = sheet.subplots(1, len(orders), squeeze=False, sharey=True)[0]
    for axes, order in zip(panels, orders, strict=True):
        over_cost(axes, [line for line in shown if line.cell.order == order])
        axes.set_title(f"{stand_in(shown[0])}, {ORDER_NAMES[order]} order", fontsize=10)
    panels[0].set_ylabel("nats per cell")
    caption = (
        f"{', '.join(measurement(shown, 'held-out boards'))}\n"
        "Bars: 95% intervals over seeds of the difference to n = 0."
        f" Markers of about the same cost are side by side.\n{command}"
    )
    return save_sheet(sheet, EXPERIMENTS[experiment].title, caption, stem)


def over_cost(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw one panel: the curve of random latent tokens over n, and a marker for each other setting."""
    first = next((line for line in lines if line.cell.latents == 0), None)
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.cell.method, policy_of(line)), []).append(line)
    for (method, name), group in groups.items():
        is_curve = (method, name) == ("scdm", "random")
        apart = [differences(line, first) if first else np.empty((0, 0)) for line in group]
        halves = [half_of(above.mean(1)) if len(above) else None for above in apart]
        variant = (group[0].cell.variant or "").split(",")[0]
        aside = DODGE * ASIDE.get(variant if name else method, 0)
        axes.errorbar(
            [relative_cost(line) + aside for line in group],
            [line.mean for line in group],
            [half or 0 for half in halves],
            linestyle="-" if is_curve else "none",
            marker=MARKERS[variant] if name else "*",
            markersize=6 if name else 9,
            capsize=2,
            color=METHOD_COLORS[method],
            elinewidth=1,
            label=f"{method}, {name}" if name else method,
        )
    entropy = NATS_PER_CELL.get(stand_in(lines[0]))
    if entropy is not None:
        axes.axhline(entropy, color=PAGE["edge"], linewidth=1, linestyle="--", label="entropy of the boards")
    axes.set_xlabel("tokens processed, relative to all masked tokens")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    legend_below(axes)
