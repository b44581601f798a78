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

from latent_tokens.checks import printable
from latent_tokens.evaluation.rows import labeled
from latent_tokens.palette import PAGE
from latent_tokens.trace.record import Frame, Start, TraceRecord, verdict_of

PIXELS = 110  # per inch
MOMENTS = 6  # of a trace in a PNG
MAX_CHARACTERS = {True: 8, False: 16}  # of a masked token's prediction, and of a clean token
CHARACTER = 0.602  # width of a monospaced character, relative to its font size
FONT_SIZE = 10  # of tokens in boxes, in points

# Inches.
BOARD = 1.92  # least width of a board of squares
SIDE = 0.27  # least side of a square, whose digits then have 10 points
TEXT_WIDTHS = (4.8, 9.0)  # least and most width of boxes in lines
BOX_HEIGHT = 0.24
BOX_GAP = 0.05  # between boxes
MOST_WIDTH = 20.0  # of a picture with one line per trace
LEGEND_WIDTH = 8.4  # of a legend in one line
LEGEND_HEIGHT = 0.55
MARGIN = 0.14  # to the left and the right of a board
TITLE = 0.3  # above a board
CAPTION = 0.34  # below a board
CLUE_WIDTH = 4.0  # of a column of clues
CLUE_HEIGHT = 0.19

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

TEXT_COLORS = {
    "given": PAGE["ink"],
    "decoded": PAGE["blue"],
    "decoded now": "white",
    "candidate": PAGE["ink"],
    "latent": PAGE["ink"],
    "skipped": PAGE["ink"],
}


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

    def kind_of(self, cell: int) -> str:
        """Return the kind of a cell, a name of STYLES."""
        if self.trace["start"]["tokens"][cell] is not None:
            return "given"
        if self.tokens[cell] is not None:
            return "decoded"
        if self.frame is None:
            return "skipped"
        if any(chosen == cell for chosen, _ in self.frame["chosen"]):
            return "decoded now"
        if cell in self.frame["candidates"]:
            return "candidate"
        return "latent" if cell in self.frame["latents"] else "skipped"

    def token_of(self, cell: int) -> tuple[int | None, float]:
        """Return the token that is drawn in a cell and its probability: the most likely one if masked."""
        token = self.tokens[cell]
        if token is not None or self.frame is None:
            return token, 1.0
        for chosen, decoded in self.frame["chosen"]:
            if chosen == cell:
                return decoded, 1.0
        beliefs = self.frame["beliefs"].get(str(cell), [])  # empty if all round to 0
        return (int(beliefs[0][0]), beliefs[0][1]) if beliefs else (None, 0.0)

    def text_of(self, cell: int) -> str:
        """Return the characters in a cell. Those without ink are signs, as in the page."""
        token, _ = self.token_of(cell)
        if token is None:
            return ""
        text = self.trace["start"]["signs"][token] or "\N{OPEN BOX}"
        text = printable(text.replace("\n", "\N{RETURN SYMBOL}"))
        most = MAX_CHARACTERS[self.kind_of(cell) in ("candidate", "latent")]
        return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True)
class CellBoxes:
    """The places of a board's cells, in inches from its upper left corner."""

    boxes: tuple[tuple[float, float, float, float], ...]  # x, y, width and height
    width: float
    height: float


def cell_boxes(moments: Sequence[Moment]) -> CellBoxes:
    """Return the cells of all moments: squares of a board or a table, or boxes of words in lines."""
    start = moments[0].trace["start"]
    count = len(start["tokens"])
    if start["kind"] not in ("sudoku", "zebra"):
        return flowing(moments, count)
    columns = start["columns"]
    side = max(SIDE, BOARD / columns)
    places = (divmod(cell, columns) for cell in range(count))
    boxes = tuple((side * column, side * row, side, side) for row, column in places)
    return CellBoxes(boxes, side * columns, side * math.ceil(count / columns))


def flowing(moments: Sequence[Moment], count: int) -> CellBoxes:
    """Return boxes in lines. Each is as wide as its longest text, so that it does not move."""
    lengths = [max(len(moment.text_of(cell)) for moment in moments) for cell in range(count)]
    character = CHARACTER * FONT_SIZE / 72
    widths = [character * (max(length, 1) + 1) for length in lengths]
    least, most = TEXT_WIDTHS
    area = sum(width + BOX_GAP for width in widths) * (BOX_HEIGHT + BOX_GAP)
    line_width = min(most, max(least, math.sqrt(1.5 * area)))
    boxes = []
    x = y = 0.0
    for width in widths:
        if x > 0 and x + width > line_width:
            x = 0.0
            y += BOX_HEIGHT + BOX_GAP
        boxes.append((x, y, width, BOX_HEIGHT))
        x += width + BOX_GAP
    return CellBoxes(tuple(boxes), line_width, y + BOX_HEIGHT)


def figure(moments: Sequence[Moment], columns: int) -> Figure:
    """Return the problem, the moments row by row in that many columns, and the legend."""
    # Sizes in inches.
    cells = cell_boxes(moments)
    start = moments[0].trace["start"]
    width = cells.width + 2 * MARGIN + (MARGIN if start["heads"] else 0)
    panel_height = cells.height + TITLE + CAPTION
    total_width = max(width * columns, LEGEND_WIDTH / 2)
    clues = clue_columns(start, max(1, int(total_width / CLUE_WIDTH)))
    top = CLUE_HEIGHT * max((len(column) + 1 for column in clues), default=0)
    total_height = top + panel_height * math.ceil(len(moments) / columns) + LEGEND_HEIGHT
    drawing = Figure((total_width, total_height), dpi=PIXELS, facecolor="white")

    # The problem.
    for index, lines in enumerate(clues):
        x = MARGIN / total_width + index / len(clues)
        y = 1 - 0.5 * CLUE_HEIGHT / total_height
        words = drawing.text(x, y, "\n".join(lines), va="top", fontsize=9, parse_math=False)
        words.set(color=PAGE["ink"], linespacing=1.3)
        words.set_fontfamily("monospace" if start["kind"] == "sudoku" else "sans-serif")

    # One board per moment. The first board of each trace has its title.
    titled: list[TraceRecord] = []
    for number, moment in enumerate(moments):
        row, column = divmod(number, columns)
        x = (total_width + width * (2 * column + 1 - columns) - cells.width) / 2
        y = total_height - top - panel_height * row - TITLE - cells.height
        size = (cells.width / total_width, cells.height / total_height)
        axes = drawing.add_axes((x / total_width, y / total_height, *size))
        draw_board(axes, moment, cells)
        caption = moment.caption if width > 3 else moment.caption.replace(" processed", "")
        weight = "normal" if moment.frame else "bold"
        axes.set_xlabel(caption, fontsize=9, color=moment.caption_color, weight=weight)
        if all(moment.trace is not trace for trace in titled):
            set_title(axes, moment.trace)
            titled.append(moment.trace)

    # The legend.
    entries = [Patch(**style, label=kind) for kind, style in STYLES.items()]
    drawing.legend(
        handles=entries,
        loc="lower center",
        bbox_to_anchor=(0.5, 0),
        ncols=len(entries) if total_width > LEGEND_WIDTH else (len(entries) + 1) // 2,
        fontsize=9,
        frameon=False,
        handlelength=1.2,
        columnspacing=1.2,
    )
    return drawing


def clue_columns(start: Start, most: int) -> list[list[str]]:
    """Return the lines above the boards, in at most so many columns: what is given besides the cells."""
    words = start["words"]
    if not words:
        return []
    if start["kind"] == "countdown":
        return [[f"Numbers {', '.join(words[:-1])}. Target {words[-1]}."]]
    if start["kind"] == "sudoku":  # the rows of a puzzle
        return [["Puzzle", *words]]
    num_rows = math.ceil(len(words) / most)
    return [words[first : first + num_rows] for first in range(0, len(words), num_rows)]


def set_title(axes: Axes, trace: TraceRecord) -> None:
    """Write the model, its candidates and its latent tokens above a board."""
    start = trace["start"]
    count = start["settings"]["latents"]
    words = {"0": "no latent tokens", "1": "1 latent token"}.get(
        str(count), f"{count} latent tokens"
    )
    latents = labeled(words, start["settings"].get("off_distribution", False))
    setting = f"{Path(start['model']).name}, k = {start['settings']['candidates']}, {latents}"
    axes.set_title(setting, loc="left", fontsize=10, color=PAGE["ink"])


def draw_board(axes: Axes, moment: Moment, cells: CellBoxes) -> None:
    """Draw clean tokens, and the most likely token of each candidate and latent cell."""
    heads = moment.trace["start"]["heads"]
    edge = 0.02  # for the outer lines
    axes.set(xlim=(-edge, cells.width + edge), ylim=(cells.height + edge, -edge), xticks=[])
    side = cells.height / max(len(heads), 1)
    axes.set_yticks([(line + 0.5) * side for line in range(len(heads))], heads, fontsize=9)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    broken = set() if moment.frame else set(moment.trace["end"]["broken"])
    for cell, box in enumerate(cells.boxes):
        draw_cell(axes, moment, cell, cell in broken, box)
    for xs, ys in grid_lines(moment.trace["start"], cells):
        axes.plot(xs, ys, color="black", linewidth=1.4, solid_capstyle="projecting", zorder=2)


def draw_cell(
    axes: Axes, moment: Moment, cell: int, is_broken: bool, box: tuple[float, float, float, float]
) -> None:
    """Draw the rectangle of a cell and its token. In a square, a likely token is large."""
    x, y, width, height = box
    kind = moment.kind_of(cell)
    style = STYLES["conflict" if is_broken else kind]

    # Within the thin lines of the grid if its own line is thick.
    inset = 0.06 * height if style["linewidth"] > 1 else 0
    corner = (x + inset, y + inset)
    axes.add_patch(Rectangle(corner, width - 2 * inset, height - 2 * inset, **style))
    text = moment.text_of(cell)
    if not text:
        return
    is_square = moment.trace["start"]["kind"] in ("sudoku", "zebra")
    _, probability = moment.token_of(cell)
    share = 0.55 if kind not in ("candidate", "latent") else 0.35 + 0.15 * probability
    drawn = axes.text(x + width / 2, y + 0.53 * height, text, ha="center", va="center", zorder=4)
    drawn.set(
        fontsize=72 * height * share if is_square else FONT_SIZE,
        family="sans-serif" if is_square else "monospace",
        color=TEXT_COLORS[kind],
        weight="bold" if kind in ("given", "decoded now") else "normal",
        parse_math=False,
    )


def grid_lines(start: Start, cells: CellBoxes) -> Iterator[tuple[tuple[float, float], ...]]:
    """Yield the x and y of the lines around a Sudoku's boxes, or around a table. Boxes of words have none."""
    if start["kind"] not in ("sudoku", "zebra"):
        return
    columns = start["columns"]
    rows = len(start["tokens"]) // columns
    box_rows, box_columns = start.get("box") or (rows, columns)
    side = cells.width / columns
    for row in range(0, rows + 1, box_rows):
        yield (0, cells.width), (row * side, row * side)
    for column in range(0, columns + 1, box_columns):
        yield (column * side, column * side), (0, cells.height)


def moments(trace: TraceRecord) -> list[Moment]:
    """Return every step of a trace, and its end."""
    tokens = list(trace["start"]["tokens"])
    steps = []
    for number, frame in enumerate(trace["frames"]):
        for cell in frame.get("again", ()):
            tokens[cell] = None
        steps.append(Moment(trace, number, tuple(tokens), frame))
        for cell, token in frame["chosen"]:
            tokens[cell] = token
    return [*steps, Moment(trace, len(steps), tuple(tokens), None)]


def strip(traces: Sequence[TraceRecord]) -> bytes:
    """Return a PNG of a few steps and the end: a line per trace, or a column if boards are wide."""
    rows = [spread(moments(trace)) for trace in traces]
    num_steps = max(map(len, rows))  # a shorter trace repeats its end
    rows = [[row[min(step, len(row) - 1)] for step in range(num_steps)] for row in rows]
    cells = cell_boxes([moment for row in rows for moment in row])
    if cells.width > 2 * cells.height:  # each step of all traces is a row
        rows = [list(moments) for moments in zip(*rows, strict=True)]
    columns = len(rows[0])
    if columns * cells.width > MOST_WIDTH:
        columns = math.ceil(columns / 2)
    buffer = io.BytesIO()
    picture = figure([moment for row in rows for moment in row], columns)
    picture.savefig(buffer, format="png")
    return buffer.getvalue()


def spread(steps: list[Moment]) -> list[Moment]:
    """Return a few of the moments, evenly spaced, with the first and the last."""
    count = min(MOMENTS, len(steps))
    return [steps[round(i * (len(steps) - 1) / max(count - 1, 1))] for i in range(count)]
