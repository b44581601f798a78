"""Traces as pictures: a few steps of a decode in one PNG, and all of its steps as an animated GIF."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from PIL import Image, ImageColor

Trace = dict[str, Any]

GIVEN, DECODED, NEW = (
    "#000000",
    "#0072B2",
    "#0072B2",
)  # here and below Okabe and Ito (2008), a palette for the color-blind
LATENT, CANDIDATE, BROKEN = "#E69F00", "#56B4E9", "#D55E00"
GIVEN_FILL, BROKEN_FILL, RIGHT, WRONG = "#EBEBEB", "#FBE0D4", "#007A59", "#B34700"
LINE, HATCH = "#888888", "#CCCCCC"
MOMENTS = 6  # of a strip
WIDEST = 20  # cells in a line
NARROW, WIDE, LEGEND_WIDTH = 2.2, 4.0, 8.4  # inches: a square board, another one, the legend in one line
MOVING = 3.64  # inches: a square board of an animation, two of which are 800 pixels wide
MARGIN, TITLE, CAPTION, LEGEND_HEIGHT, NOTE_LINE = (
    0.14,
    0.28,
    0.3,
    0.5,
    0.17,
)  # inches: left and right of a board, above it, below it, the foot
PIXELS = 110  # an inch
COLORS, BAR = 32, 20  # of an animation; pixels
NOTE_WIDTH = 15.5  # characters per inch of a note
FRAME_MS, LAST_MS = 250, 5_000  # milliseconds per picture of an animation


@dataclass(frozen=True)
class Moment:
    """A trace before the token of one of its steps is decoded, or at its end."""

    trace: Trace
    number: int  # steps taken before
    tokens: tuple[int | None, ...]  # at each cell
    frame: dict[str, Any] | None  # the step; None at the end

    @property
    def caption(self) -> str:
        """The step or the verdict, with the tokens processed so far and their cost relative to all latent tokens."""
        if self.frame is None:
            end, most = self.trace["end"], self.trace["start"]["all_processed"]
            verdict = "solved" if end["right"] else "wrong"
            return f"{verdict}: {end['processed']:,} tokens processed ({end['processed'] / most:.2f}x)"
        done, most = self.frame["processed"], self.frame["all_processed"]
        return f"step {self.number + 1}: {done:,} tokens processed ({done / most:.2f}x)"

    @property
    def style(self) -> dict[str, Any]:
        """How the caption is drawn: a verdict in its color."""
        if self.frame is not None:
            return {"color": "black"}
        return {"color": RIGHT if self.trace["end"]["right"] else WRONG, "weight": "bold"}


def moments(trace: Trace) -> list[Moment]:
    """Every step of a trace, and its end."""
    tokens, found = list(trace["start"]["tokens"]), list[Moment]()
    for number, frame in enumerate(trace["frames"]):
        found.append(Moment(trace, number, tuple(tokens), frame))
        for cell, token in frame["chosen"]:
            tokens[cell] = token
    return [*found, Moment(trace, len(found), tuple(tokens), None)]


def strip(traces: Sequence[Trace]) -> bytes:
    """A PNG: a few steps from the first to the end, one line per trace. Boards with long lines: one column per trace."""
    rows = [spread(moments(trace)) for trace in traces]
    wide, high = shape(traces[0])
    if wide > 2 * high:
        count = max(map(len, rows))
        return png(figure([row[min(i, len(row) - 1)] for i in range(count) for row in rows], len(rows)))
    return png(figure([moment for row in rows for moment in row], len(rows[0])))


def animation(traces: Sequence[Trace], note: str = "") -> bytes:
    """A GIF of every step, the traces side by side, with a note below. A trace that ends before the others stays at its end."""
    rows = [moments(trace) for trace in traces]
    count = max(map(len, rows))
    drawn = [
        figure([row[min(i, len(row) - 1)] for row in rows], len(rows), MOVING, note) for i in range(count)
    ]
    pictures = [Image.open(io.BytesIO(png(picture))).convert("RGB") for picture in drawn]
    palette = with_swatches(pictures[len(pictures) // 2]).quantize(COLORS)
    pictures = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    made, times = io.BytesIO(), [FRAME_MS] * (count - 1) + [LAST_MS]
    pictures[0].save(
        made, "GIF", save_all=True, append_images=pictures[1:], duration=times, loop=0, optimize=True
    )
    return made.getvalue()


def with_swatches(picture: Image.Image) -> Image.Image:
    """A picture above bars of the colours that an animation must keep, however few cells have them."""
    kept = ("white", "black", DECODED, LATENT, CANDIDATE, BROKEN, BROKEN_FILL, RIGHT, WRONG)
    made = Image.new("RGB", (picture.width, picture.height + BAR * len(kept)))
    made.paste(picture, (0, 0))
    for number, colour in enumerate(kept):
        made.paste(
            ImageColor.getrgb(colour),
            (0, picture.height + BAR * number, picture.width, picture.height + BAR * (number + 1)),
        )
    return made


def spread(every: list[Moment]) -> list[Moment]:
    """A few of the moments, evenly spaced, the last one among them."""
    count = min(MOMENTS, len(every))
    return [every[round(i * (len(every) - 1) / max(count - 1, 1))] for i in range(count)]


def figure(shown: Sequence[Moment], columns: int, square: float = NARROW, note: str = "") -> Figure:
    """The moments in that many columns, above the legend and a note. A square board is `square` inches wide."""
    rows, (wide, high) = math.ceil(len(shown) / columns), shape(shown[0].trace)
    width = square if wide == high else WIDE
    scale = max(1.0, min(1.4, width / NARROW))  # of the words above and below a board
    board = (width - 2 * MARGIN) * high / wide
    across, panel = max(width * columns, LEGEND_WIDTH / 2), board + scale * (TITLE + CAPTION)
    legend_columns = len(legend()) if across > LEGEND_WIDTH else (len(legend()) + 1) // 2
    lines = textwrap.wrap(note.replace(" = ", "\u00a0=\u00a0"), int(NOTE_WIDTH * across))
    foot = NOTE_LINE * len(lines)
    down = panel * rows + LEGEND_HEIGHT + foot
    picture = Figure((across, down), dpi=PIXELS, facecolor="white")
    named: list[Trace] = []
    for place, moment in enumerate(shown):
        row, column = divmod(place, columns)
        left = (across - width * columns) / 2 + width * column + MARGIN
        below = down - panel * row - scale * TITLE - board
        axes = picture.add_axes((left / across, below / down, (width - 2 * MARGIN) / across, board / down))
        draw(axes, moment, 72 * (width - 2 * MARGIN) / wide)
        caption = moment.caption if scale > 1 else moment.caption.replace(" processed", "")
        axes.set_xlabel(caption, fontsize=8 * scale, **moment.style)
        if all(moment.trace is not trace for trace in named):
            if scale > 1:
                axes.set_title(latents_of(moment.trace), loc="left", fontsize=9 * scale, weight="bold")
                axes.set_title(setting_of(moment.trace), loc="right", fontsize=9)
            else:
                axes.set_title(
                    f"{setting_of(moment.trace)}, {latents_of(moment.trace)}", loc="left", fontsize=9
                )
            named.append(moment.trace)
    style = {"fontsize": 8, "frameon": False, "handlelength": 1.2, "columnspacing": 1.2}
    picture.legend(
        handles=legend(), loc="lower center", bbox_to_anchor=(0.5, foot / down), ncols=legend_columns, **style
    )
    if lines:
        picture.text(
            0.5,
            0.3 * NOTE_LINE / down,
            "\n".join(lines),
            fontsize=8,
            ha="center",
            va="bottom",
            linespacing=1.3,
        )
    return picture


def shape(trace: Trace) -> tuple[int, int]:
    """(cells per line, lines) of a trace. Long lines are folded."""
    cells, columns = len(trace["start"]["tokens"]), min(trace["start"]["columns"], WIDEST)
    return columns, math.ceil(cells / columns)


def setting_of(trace: Trace) -> str:
    """The model and its candidate set size."""
    return f"{Path(trace['start']['model']).name}, k = {trace['start']['settings']['candidates']}"


def latents_of(trace: Trace) -> str:
    """The number of latent tokens, in words."""
    latents = trace["start"]["settings"]["latents"]
    return {0: "no latent tokens", 1: "1 latent token"}.get(latents, f"{latents} latent tokens")


def legend() -> list[Patch]:
    """The meaning of the colors."""
    return [
        Patch(facecolor=GIVEN_FILL, edgecolor=LINE, label="given"),
        Patch(facecolor="white", edgecolor=DECODED, label="decoded"),
        Patch(facecolor=NEW, edgecolor=LINE, label="decoded now"),
        Patch(facecolor=CANDIDATE, edgecolor="black", linewidth=1.5, label="candidate"),
        Patch(facecolor=LATENT, edgecolor=LINE, label="latent"),
        Patch(facecolor="white", edgecolor=HATCH, hatch="////", label="skipped"),
        Patch(facecolor=BROKEN_FILL, edgecolor=BROKEN, linewidth=2, label="conflict"),
    ]


def draw(axes: Axes, moment: Moment, points: float) -> None:
    """A board with cells that many points wide: clean tokens, and the most likely digit of each candidate and latent token."""
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
        text, colour, part, weight = token, DECODED, 0.55, "normal"
        if start["tokens"][cell] is not None:
            colour, weight, style["facecolor"] = GIVEN, "bold", GIVEN_FILL
        elif cell in chosen:
            text, colour, weight, style["facecolor"] = chosen[cell], "white", "bold", NEW
        elif cell in shown["candidates"] or cell in shown["latents"]:
            text, probability = frame["beliefs"][str(cell)][0]
            colour, part = GIVEN, 0.25 + 0.25 * probability
            style |= (
                {"facecolor": CANDIDATE, "edgecolor": "black", "linewidth": 1.2}
                if cell in shown["candidates"]
                else {"facecolor": LATENT}
            )
        elif token is None:
            style |= {"edgecolor": HATCH, "hatch": "////", "linewidth": 0.3}
        if cell in broken:
            style |= {"edgecolor": BROKEN, "facecolor": BROKEN_FILL, "linewidth": 2.2, "zorder": 3}
        inset = 0.06 if style["linewidth"] > 1 else 0
        axes.add_patch(Rectangle((x + inset, y + inset), 1 - 2 * inset, 1 - 2 * inset, **style))
        if text is not None:
            axes.text(
                x + 0.5,
                y + 0.53,
                start["signs"][text],
                fontsize=points * part,
                color=colour,
                weight=weight,
                ha="center",
                va="center",
                zorder=4,
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
