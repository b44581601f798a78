"""Traces as pictures: a few moments of a decode in one PNG, and all of its steps as an animated GIF."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from PIL import Image, ImageColor

Trace = dict[str, Any]

GIVEN, DECODED, NEW = "#000000", "#0072B2", "#0072B2"  # here and below Okabe and Ito (2008), which the colour-blind tell apart
LATENT, CANDIDATE, BROKEN = "#E69F00", "#56B4E9", "#D55E00"
LINE, HATCH = "#888888", "#CCCCCC"
MOMENTS = 6  # of a strip
WIDEST = 20  # cells in a line
NARROW, WIDE, LEGEND_WIDTH = 2.2, 4.0, 8.4  # inches: a square board, another one, what the colours mean
MARGIN, TITLE, CAPTION, LEGEND_HEIGHT = 0.14, 0.28, 0.3, 0.5  # inches: beside a board, above it, below it, below all
PIXELS = 110  # an inch
COLOURS, BAR = 64, 20  # of an animation; pixels
FRAME_MS, LAST_MS = 350, 3_000  # milliseconds that a picture of an animation stays


@dataclass(frozen=True)
class Moment:
    """A trace before one of its steps is written, or at its end."""

    trace: Trace
    number: int  # steps taken before
    tokens: tuple[int | None, ...]  # at each cell
    frame: dict[str, Any] | None  # the step; None at the end

    @property
    def caption(self) -> str:
        """Which step, and what it has cost so far."""
        if self.frame is None:
            end = self.trace["end"]
            return (
                f"{'right' if end['right'] else 'wrong'}: {end['processed']:,} tokens, {end['processed'] / self.trace['start']['all_processed']:.2f}x"
            )
        return f"step {self.number + 1}: {self.frame['processed']:,} tokens, {self.frame['processed'] / self.frame['all_processed']:.2f}x"


def moments(trace: Trace) -> list[Moment]:
    """Every step of a trace, and its end."""
    tokens, found = list(trace["start"]["tokens"]), list[Moment]()
    for number, frame in enumerate(trace["frames"]):
        found.append(Moment(trace, number, tuple(tokens), frame))
        for cell, token in frame["chosen"]:
            tokens[cell] = token
    return [*found, Moment(trace, len(found), tuple(tokens), None)]


def strip(traces: Sequence[Trace]) -> bytes:
    """A PNG: a few moments from the first to the end, a line a trace; of long lines of cells, a column a trace."""
    rows = [spread(moments(trace)) for trace in traces]
    wide, high = shape(traces[0])
    if wide > 2 * high:
        count = max(map(len, rows))
        return png(figure([row[min(i, len(row) - 1)] for i in range(count) for row in rows], len(rows)))
    return png(figure([moment for row in rows for moment in row], len(rows[0])))


def animation(traces: Sequence[Trace]) -> bytes:
    """A GIF of every step, the traces side by side; one that is at its end before the others stays there."""
    rows = [moments(trace) for trace in traces]
    count = max(map(len, rows))
    drawn = [figure([row[min(i, len(row) - 1)] for row in rows], len(rows)) for i in range(count)]
    pictures = [Image.open(io.BytesIO(png(picture))).convert("RGB") for picture in drawn]
    palette = with_swatches(pictures[len(pictures) // 2]).quantize(COLOURS)
    pictures = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    made, times = io.BytesIO(), [FRAME_MS] * (count - 1) + [LAST_MS]
    pictures[0].save(made, "GIF", save_all=True, append_images=pictures[1:], duration=times, loop=0, optimize=True)
    return made.getvalue()


def with_swatches(picture: Image.Image) -> Image.Image:
    """A picture above bars of the colours that an animation must keep, however few cells have them."""
    kept = ("white", "black", DECODED, LATENT, CANDIDATE, BROKEN)
    made = Image.new("RGB", (picture.width, picture.height + BAR * len(kept)))
    made.paste(picture, (0, 0))
    for number, colour in enumerate(kept):
        made.paste(ImageColor.getrgb(colour), (0, picture.height + BAR * number, picture.width, picture.height + BAR * (number + 1)))
    return made


def spread(every: list[Moment]) -> list[Moment]:
    """A few of the moments, evenly spaced, the last one among them."""
    count = min(MOMENTS, len(every))
    return [every[round(i * (len(every) - 1) / max(count - 1, 1))] for i in range(count)]


def figure(shown: Sequence[Moment], columns: int) -> Figure:
    """The moments, so many in a line, above what the colours mean."""
    rows, (wide, high) = math.ceil(len(shown) / columns), shape(shown[0].trace)
    width = NARROW if wide == high else WIDE
    board = (width - 2 * MARGIN) * high / wide
    across, panel = max(width * columns, LEGEND_WIDTH / 2), board + TITLE + CAPTION
    legend_columns = len(legend()) if across > LEGEND_WIDTH else (len(legend()) + 1) // 2
    down = panel * rows + LEGEND_HEIGHT
    picture = Figure((across, down), dpi=PIXELS, facecolor="white")
    named: list[Trace] = []
    for place, moment in enumerate(shown):
        row, column = divmod(place, columns)
        left = (across - width * columns) / 2 + width * column + MARGIN
        below = down - panel * row - TITLE - board
        axes = picture.add_axes((left / across, below / down, (width - 2 * MARGIN) / across, board / down))
        draw(axes, moment, 72 * (width - 2 * MARGIN) / wide)
        axes.set_xlabel(moment.caption, fontsize=8)
        if all(moment.trace is not trace for trace in named):
            axes.set_title(name_of(moment.trace), loc="left", fontsize=9)
            named.append(moment.trace)
    style = {"fontsize": 8, "frameon": False, "handlelength": 1.2, "columnspacing": 1.2}
    picture.legend(handles=legend(), loc="lower center", ncols=legend_columns, **style)
    return picture


def shape(trace: Trace) -> tuple[int, int]:
    """(cells in a line, lines) of a trace; a long line is folded."""
    cells, columns = len(trace["start"]["tokens"]), min(trace["start"]["columns"], WIDEST)
    return columns, math.ceil(cells / columns)


def name_of(trace: Trace) -> str:
    """What was decoded by what, and how."""
    start = trace["start"]
    return f"{start['model']}, n = {start['settings']['latents']}, k = {start['settings']['candidates']}"


def legend() -> list[Patch]:
    """What the colours mean."""
    return [
        Patch(facecolor="white", edgecolor=LINE, label="given (black) or decoded (blue)"),
        Patch(facecolor=NEW, edgecolor=LINE, label="decoded now"),
        Patch(facecolor=CANDIDATE, edgecolor="black", linewidth=1.5, label="candidate"),
        Patch(facecolor=LATENT, edgecolor=LINE, label="latent"),
        Patch(facecolor="white", edgecolor=HATCH, hatch="////", label="not shown"),
        Patch(facecolor="white", edgecolor=BROKEN, linewidth=2, label="breaks a rule"),
    ]


def draw(axes: Axes, moment: Moment, points: float) -> None:
    """A board whose cells are so many points wide: what is known, what is shown, and what the model makes of each shown cell."""
    start, (wide, high) = moment.trace["start"], shape(moment.trace)
    axes.set(xlim=(-0.05, wide + 0.05), ylim=(high + 0.05, -0.05), aspect="equal", xticks=[])
    axes.set_yticks([line + 0.5 for line in range(len(start["heads"]))], start["heads"], fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    frame = moment.frame or {"chosen": [], "candidates": [], "latents": [], "beliefs": {}}
    chosen, shown = dict(frame["chosen"]), {kind: set(frame[kind]) for kind in ("candidates", "latents")}
    broken = set() if moment.frame else set(moment.trace["end"]["broken"])
    for cell, token in enumerate(moment.tokens):
        y, x = divmod(cell, wide)
        style: dict[str, Any] = {"facecolor": "white", "edgecolor": LINE, "linewidth": 0.6}
        text, colour, part, weight = token, GIVEN if start["tokens"][cell] is not None else DECODED, 0.55, "normal"
        if cell in chosen:
            text, colour, weight, style["facecolor"] = chosen[cell], "white", "bold", NEW
        elif cell in shown["candidates"] or cell in shown["latents"]:
            text, sure = frame["beliefs"][str(cell)][0]
            colour, part = GIVEN, 0.25 + 0.25 * sure
            style |= {"facecolor": CANDIDATE, "edgecolor": "black", "linewidth": 1.2} if cell in shown["candidates"] else {"facecolor": LATENT}
        elif token is None:
            style |= {"edgecolor": HATCH, "hatch": "////", "linewidth": 0.3}
        if cell in broken:
            style |= {"edgecolor": BROKEN, "linewidth": 2.2, "zorder": 3}
        inset = 0.06 if style["linewidth"] > 1 else 0
        axes.add_patch(Rectangle((x + inset, y + inset), 1 - 2 * inset, 1 - 2 * inset, **style))
        if text is not None:
            axes.text(
                x + 0.5, y + 0.53, start["signs"][text], fontsize=points * part, color=colour, weight=weight, ha="center", va="center", zorder=4
            )
    for edges in boxes(start, wide, high):
        axes.plot(*edges, color="black", linewidth=1.4, solid_capstyle="projecting", zorder=2)


def boxes(start: dict[str, Any], wide: int, high: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The lines, as x and y, around a Sudoku's boxes, or around all cells."""
    rows, columns = start.get("box") or (high, wide)
    yield from (((0, wide), (y, y)) for y in range(0, high + 1, rows))
    yield from (((x, x), (0, high)) for x in range(0, wide + 1, columns))


def png(picture: Figure) -> bytes:
    """A figure as a file."""
    made = io.BytesIO()
    picture.savefig(made, format="png")
    return made.getvalue()
