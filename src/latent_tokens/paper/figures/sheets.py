"""Sheets: a figure's panels in rows of at most three, which are readable at the width of a page."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_COLUMNS = 3
MIN_WIDTH = 8  # inches, for the title and the caption
PANEL_WIDTH = 3.6  # inches


def sheet_of(num_panels: int, height: float) -> Figure:
    """Return a figure with empty panels, row by row.

    Args:
        num_panels: at least 1.
        height: of a row, in inches.
    """
    from matplotlib.figure import Figure

    num_rows = ceil(num_panels / MAX_COLUMNS)
    num_columns = ceil(num_panels / num_rows)
    size = (max(MIN_WIDTH, PANEL_WIDTH * num_columns), height * num_rows)
    sheet = Figure(figsize=size, layout="constrained")
    for index in range(num_panels):
        sheet.add_subplot(num_rows, num_columns, index + 1)
    return sheet
