"""The moments of a decode as a matplotlib figure: a board for each, with captions and a legend."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from latent_tokens.evaluation.rows import labeled
from latent_tokens.palette import PAGE
from latent_tokens.trace.record import Frame, Start, TraceRecord, verdict_of

MAX_COLUMNS = 20  # cells per line
PIXELS = 110  # per inch
MOMENTS = 6  # of a trace in a PNG

# Inches.
NARROW = 2.2  # width of a square board
WIDE = 4.0  # width of another board
LEGEND_WIDTH = 8.4  # of a legend in one line
LEGEND_HEIGHT = 0.5
MARGIN = 0.14  # to the left and the right of a board
TITLE = 0.28  # above a board
CAPTION = 0.3  # below a board

STYLES: dict[str, dict[str, Any]] = {
    "given": {"facecolor": PAGE["faint"], "edgecolor": PAGE["edge"], "linewidth": 0.6},
    "decoded": {"facecolor": "white", "edgecolor": PAGE["edge"], "linewidth": 0.6},
    "decoded now": {"facecolor": PAGE["blue"], "edgecolor": PAGE["edge"], "linewidth": 0.6},
    "candidate": {"facecolor": PAGE["blue-wash"], "edgecolor": PAGE["blue"], "linewidth": 1.2},
    "latent": {
        "facecolor": PAGE["orange-wash"],
        "edgecolor": PAGE["orange-line"],
        "linewidth": 1.2,
        "linestyle": "--",
    },
    "skipped": {"facecolor": "white", "edgecolor": PAGE["line"], "linewidth": 0.3, "hatch": "////"},
    "conflict": {
        "facecolor": PAGE["red-wash"],
        "edgecolor": PAGE["red"],
        "linewidth": 2.2,
        "zorder": 3,
    },
}
"""The rectangle of a cell by its kind, also in the legend."""


@dataclass(frozen=True)
class Moment:
    """A trace before one of its steps, or at its end."""

    trace: TraceRecord
    number: int  # of steps taken before
    tokens: tuple[int | None, ...]  # of the cells
    frame: Frame | None  # the step; None at the end

    @property
    def caption(self) -> str:
        """The step or the verdict, the tokens processed, and the cost relative to all latent tokens."""
        if self.frame is None:
            end = self.trace["end"]
            verdict = verdict_of(self.trace)
            ratio = end["processed"] / self.trace["start"]["all_processed"]
            return f"{verdict}: {end['processed']:,} tokens processed ({ratio:.2f}x)"
        processed = self.frame["processed"]
        ratio = processed / self.frame["all_processed"]
        return f"step {self.number + 1}: {processed:,} tokens processed ({ratio:.2f}x)"

    @property
    def caption_color(self) -> str:
        """The color of the caption: that of the verdict at the end."""
        if self.frame is not None:
            return "black"
        return PAGE["green"] if self.trace["end"]["right"] else PAGE["red"]


def figure(moments: Sequence[Moment], columns: int) -> Figure:
    """Return the moments, row by row, in a grid of that many columns above the legend."""
    # Sizes in inches.
    rows = math.ceil(len(moments) / columns)
    cells_wide, cells_high = grid_shape(moments[0].trace)
    width = NARROW if cells_wide == cells_high else WIDE
    board_width = width - 2 * MARGIN
    board_height = board_width * cells_high / cells_wide
    scale = max(1.0, min(1.4, width / NARROW))  # of the text above and below a board
    panel_height = board_height + scale * (TITLE + CAPTION)
    total_width = max(width * columns, LEGEND_WIDTH / 2)
    total_height = panel_height * rows + LEGEND_HEIGHT

    # One board per moment. The first board of each trace has its title.
    drawing = Figure((total_width, total_height), dpi=PIXELS, facecolor="white")
    titled: list[TraceRecord] = []
    for number, moment in enumerate(moments):
        row, column = divmod(number, columns)
        x = (total_width - width * columns) / 2 + width * column + MARGIN
        y = total_height - panel_height * row - scale * TITLE - board_height
        corner = (x / total_width, y / total_height)
        axes = drawing.add_axes((*corner, board_width / total_width, board_height / total_height))
        draw_board(axes, moment, 72 * board_width / cells_wide)
        caption = moment.caption if scale > 1 else moment.caption.replace(" processed", "")
        weight = "normal" if moment.frame else "bold"
        axes.set_xlabel(caption, fontsize=8 * scale, color=moment.caption_color, weight=weight)
        if all(moment.trace is not trace for trace in titled):
            set_title(axes, moment.trace, scale)
            titled.append(moment.trace)

    # The legend.
    entries = [Patch(**style, label=kind) for kind, style in STYLES.items()]
    drawing.legend(
        handles=entries,
        loc="lower center",
        bbox_to_anchor=(0.5, 0),
        ncols=len(entries) if total_width > LEGEND_WIDTH else (len(entries) + 1) // 2,
        fontsize=8,
        frameon=False,
        handlelength=1.2,
        columnspacing=1.2,
    )
    return drawing


def set_title(axes: Axes, trace: TraceRecord, scale: float) -> None:
    """Write the model, its candidates and its latent tokens above a board."""
    start = trace["start"]
    setting = f"{Path(start['model']).name}, k = {start['settings']['candidates']}"
    count = start["settings"]["latents"]
    words = {"0": "no latent tokens", "1": "1 latent token"}.get(
        str(count), f"{count} latent tokens"
    )
    latents = labeled(words, start["settings"].get("off_distribution", False))
    if scale > 1:
        axes.set_title(latents, loc="left", fontsize=9 * scale, weight="bold")
        axes.set_title(setting, loc="right", fontsize=9)
    else:
        axes.set_title(f"{setting}, {latents}", loc="left", fontsize=9)


def grid_shape(trace: TraceRecord) -> tuple[int, int]:
    """Return the cells per line and the lines of a trace. Long lines are folded."""
    columns = min(trace["start"]["columns"], MAX_COLUMNS)
    return columns, math.ceil(len(trace["start"]["tokens"]) / columns)


def draw_board(axes: Axes, moment: Moment, points: float) -> None:
    """Draw clean tokens, and the most likely token of each candidate and latent cell.

    A cell is `points` points wide.
    """
    start = moment.trace["start"]
    width, height = grid_shape(moment.trace)
    axes.set(xlim=(-0.05, width + 0.05), ylim=(height + 0.05, -0.05), aspect="equal", xticks=[])
    axes.set_yticks([line + 0.5 for line in range(len(start["heads"]))], start["heads"], fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    broken = set() if moment.frame else set(moment.trace["end"]["broken"])
    for cell in range(len(moment.tokens)):
        draw_cell(axes, moment, cell, cell in broken, points)
    for xs, ys in box_lines(start, width, height):
        axes.plot(xs, ys, color="black", linewidth=1.4, solid_capstyle="projecting", zorder=2)


def draw_cell(axes: Axes, moment: Moment, cell: int, is_broken: bool, points: float) -> None:
    """Draw the rectangle of a cell and its token."""
    start = moment.trace["start"]
    frame = moment.frame
    token: float | None = moment.tokens[cell]
    kind = "skipped" if token is None else "decoded"
    color = PAGE["blue"]
    font_size = 0.55  # relative to the cell
    weight = "normal"

    # The kind of the cell, and the look of its token.
    decoded_now = {} if frame is None else {pair[0]: pair[1] for pair in frame["chosen"]}
    if start["tokens"][cell] is not None:
        kind = "given"
        color = PAGE["ink"]
        weight = "bold"
    elif cell in decoded_now:
        kind = "decoded now"
        token = decoded_now[cell]
        color = "white"
        weight = "bold"
    elif frame is not None and str(cell) in frame["beliefs"]:
        kind = "candidate" if cell in frame["candidates"] else "latent"
        color = PAGE["ink"]
        if beliefs := frame["beliefs"][str(cell)]:  # else all round to 0
            token, probability = beliefs[0]
            font_size = 0.25 + 0.25 * probability
    style = STYLES["conflict" if is_broken else kind]

    # The rectangle, within the thin lines of the grid if its own line is thick, and the token.
    y, x = divmod(cell, grid_shape(moment.trace)[0])
    inset = 0.06 if style["linewidth"] > 1 else 0
    axes.add_patch(Rectangle((x + inset, y + inset), 1 - 2 * inset, 1 - 2 * inset, **style))
    if token is not None:
        text = start["signs"][int(token)]
        drawn = axes.text(x + 0.5, y + 0.53, text, ha="center", va="center", zorder=4)
        drawn.set(fontsize=points * font_size, color=color, weight=weight, parse_math=False)


def box_lines(
    start: Start, width: int, height: int
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield the x and y of the lines around a Sudoku's boxes, or around all cells."""
    rows, columns = start.get("box") or (height, width)
    yield from (((0, width), (y, y)) for y in range(0, height + 1, rows))
    yield from (((x, x), (0, height)) for x in range(0, width + 1, columns))


def moments(trace: TraceRecord) -> list[Moment]:
    """Return every step of a trace, and its end."""
    tokens = list(trace["start"]["tokens"])
    steps = []
    for number, frame in enumerate(trace["frames"]):
        steps.append(Moment(trace, number, tuple(tokens), frame))
        for cell, token in frame["chosen"]:
            tokens[cell] = token
    return [*steps, Moment(trace, len(steps), tuple(tokens), None)]


def strip(traces: Sequence[TraceRecord]) -> bytes:
    """Return a PNG of a few steps and the end: a line per trace, or a column if boards are wide."""
    rows = [spread(moments(trace)) for trace in traces]
    width, height = grid_shape(traces[0])
    if width > 2 * height:  # each step of all traces is a row, and a shorter trace repeats its end
        num_steps = max(map(len, rows))
        rows = [[row[min(step, len(row) - 1)] for row in rows] for step in range(num_steps)]
    buffer = io.BytesIO()
    figure([moment for row in rows for moment in row], len(rows[0])).savefig(buffer, format="png")
    return buffer.getvalue()


def spread(steps: list[Moment]) -> list[Moment]:
    """Return a few of the moments, evenly spaced, with the first and the last."""
    count = min(MOMENTS, len(steps))
    return [steps[round(i * (len(steps) - 1) / max(count - 1, 1))] for i in range(count)]
