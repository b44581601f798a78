"""Traces as images: a few steps of a decode in one PNG, and all of its steps as an animated GIF."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.figure import Figure
from PIL import Image, ImageColor

from latent_tokens.trace.drawing import (
    BROKEN,
    BROKEN_FILL,
    CANDIDATE,
    DECODED,
    LATENT,
    LATENT_EDGE,
    RIGHT,
    Moment,
    figure,
    grid_shape,
)
from latent_tokens.trace.events import Trace

MOMENTS = 6  # of a trace in a PNG
MOVING = 3.64  # inches: the width of a square board of an animation; two are 800 pixels wide
NUM_COLORS = 32  # of an animation
SWATCH = 20  # pixels: the height of a swatch
FRAME_MS = 250  # milliseconds per frame of an animation
LAST_MS = 5_000  # of the last frame


def moments(trace: Trace) -> list[Moment]:
    """Return every step of a trace, and its end."""
    tokens = list(trace["start"]["tokens"])
    steps = []
    for number, frame in enumerate(trace["frames"]):
        steps.append(Moment(trace, number, tuple(tokens), frame))
        for cell, token in frame["chosen"]:
            tokens[cell] = token
    return [*steps, Moment(trace, len(steps), tuple(tokens), None)]


def strip(traces: Sequence[Trace]) -> bytes:
    """Return a PNG of a few steps and the end: a line per trace, or a column if boards are wide."""
    rows = [spread(moments(trace)) for trace in traces]
    width, height = grid_shape(traces[0])
    if width > 2 * height:
        return png(figure([moment for column in aligned(rows) for moment in column], len(rows)))
    return png(figure([moment for row in rows for moment in row], len(rows[0])))


def animation(traces: Sequence[Trace], note: str = "") -> bytes:
    """Return a GIF of every step with the traces side by side.

    A trace that ends before the others stays at its end.

    All frames share one palette, and the last frame has a duration of its own. matplotlib's PillowWriter has
    one frame rate.
    """
    # Draw the frames.
    columns = aligned([moments(trace) for trace in traces])
    files = [png(figure(column, len(traces), MOVING, note)) for column in columns]
    images = [Image.open(io.BytesIO(file)).convert("RGB") for file in files]

    # Reduce them to one palette, which has few colors and all of those that have a meaning.
    palette = with_swatches(images[len(images) // 2]).quantize(NUM_COLORS)
    images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]

    buffer = io.BytesIO()
    durations = [FRAME_MS] * (len(images) - 1) + [LAST_MS]
    images[0].save(
        buffer, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=True
    )
    return buffer.getvalue()


def aligned(rows: Sequence[Sequence[Moment]]) -> list[list[Moment]]:
    """Return the moments of several traces by step. A shorter trace repeats its end."""
    num_steps = max(len(row) for row in rows)
    return [[row[min(step, len(row) - 1)] for row in rows] for step in range(num_steps)]


def with_swatches(image: Image.Image) -> Image.Image:
    """Return an image above bars of the colors that an animation must keep, even if few cells have them."""
    colors = ("white", "black", DECODED, LATENT, LATENT_EDGE, CANDIDATE, BROKEN, BROKEN_FILL, RIGHT)
    extended = Image.new("RGB", (image.width, image.height + SWATCH * len(colors)))
    extended.paste(image, (0, 0))
    for number, color in enumerate(colors):
        top = image.height + SWATCH * number
        extended.paste(ImageColor.getrgb(color), (0, top, image.width, top + SWATCH))
    return extended


def spread(steps: list[Moment]) -> list[Moment]:
    """Return a few of the moments, evenly spaced, with the first and the last."""
    count = min(MOMENTS, len(steps))
    return [steps[round(i * (len(steps) - 1) / max(count - 1, 1))] for i in range(count)]


def png(drawing: Figure) -> bytes:
    """Return a figure as a PNG file."""
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png")
    return buffer.getvalue()
