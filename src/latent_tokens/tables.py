"""Tables of every command, in one style: fitted to a terminal, and complete and plain in a file or a pipe."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

COLUMN_GAP = 2  # characters between two columns
SEPARATOR = "; "  # of the entries of a cell that is a list


@dataclass(frozen=True)
class Sheet:
    """A table of texts.

    A terminal shows the columns that fit it: those of `optional` are left out in their order, and
    then long cells are wrapped. A file or a pipe has no width, so it has every column on one line.

    Example:
        >>> print(Sheet({"k": ["1", "16"], "valid %": ["40.0", "8.5"]}))
         k  valid %
         1     40.0
        16      8.5
    """

    columns: Mapping[str, Sequence[str]]  # of equal lengths, by their headings
    title: str = ""
    optional: tuple[str, ...] = ()  # the least important one first
    texts: Collection[str] = ()  # the columns that are aligned at the left
    ends: Collection[int] = ()  # the lines before a gap

    def __str__(self) -> str:
        """Return the complete table without ornaments, as a file or a pipe has it."""
        cells = [self.padded(name) for name in self.columns]
        lines = ["  ".join(line).rstrip() for line in zip(*cells, strict=True)]
        return "\n".join([self.title, *lines] if self.title else lines)

    def padded(self, name: str) -> list[str]:
        """Return the heading and the cells of a column, all as wide as the widest."""
        cells = [name, *self.columns[name]]
        spaces = [" " * (self.width_of(name) - cell_len(cell)) for cell in cells]
        if name in self.texts:
            return [cell + space for cell, space in zip(cells, spaces, strict=True)]
        return [space + cell for cell, space in zip(cells, spaces, strict=True)]

    def width_of(self, name: str) -> int:
        """Return the width of a column."""
        return max(
            cell_len(line) for cell in (name, *self.columns[name]) for line in cell.split("\n")
        )

    def fitting(self, width: int) -> list[str]:
        """Return the columns of a terminal that is `width` characters wide."""
        names = list(self.columns)
        empty = [name for name in names if not any(self.columns[name])]
        for name in (*empty, *self.optional):
            if (
                sum(map(self.width_of, names)) + COLUMN_GAP * (len(names) - 1) > width
                and name in names
            ):
                names.remove(name)
        return names

    def print_to(self, console: Console) -> None:
        """Print the columns that fit a terminal, and the names of the others."""
        from rich.table import Table

        names = self.fitting(console.width)
        is_wide = sum(map(self.width_of, names)) + COLUMN_GAP * (len(names) - 1) > console.width
        ornaments = {"show_edge": False, "pad_edge": False, "padding": (0, 1, 0, 0)}
        drawn = Table(box=box.SIMPLE_HEAD, **ornaments)  # type: ignore[arg-type]
        for name in names:
            is_text = name in self.texts
            # A number is never cut or wrapped, and a text only if it must be.
            drawn.add_column(
                name,
                justify="left" if is_text else "right",
                no_wrap=not (is_text and is_wide),
                overflow="fold",
            )
        lines = zip(*(self.columns[name] for name in names), strict=True)
        for number, cells in enumerate(lines):
            drawn.add_row(*map(Text, cells), end_section=number in self.ends)
        if self.title:
            console.print(Text(self.title, "bold"))
        console.print(drawn)
        others = [name for name in self.columns if name not in names]
        if others:
            words = (
                f"Left out at this width: {', '.join(others)}. A wider terminal or a pipe has all."
            )
            console.print(Text(words, "dim"))


def blocks(lines: Sequence[str], optional: tuple[str, ...]) -> Iterator[Sheet | str]:
    """Yield the tables and the other lines of Markdown. Cells that are lists get a line for each entry."""
    for is_table, group in groupby(lines, lambda line: line.startswith("|")):
        if not is_table:
            yield from group
            continue
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in group]
        heads, _, *rows = rows
        if any(SEPARATOR in cell for row in rows for cell in row):
            yield listed(heads, rows)
            continue
        columns = dict(zip(heads, map(list, zip(*rows, strict=True)), strict=True))
        yield Sheet(columns, optional=optional, texts=heads)


def listed(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Sheet:
    """Return a table with one line for each entry of each cell, which is followed by its heading."""
    entries: list[tuple[str, str, str]] = []
    ends = []
    for first, *cells in rows:
        name = first
        for head, cell in zip(heads[1:], cells, strict=True):
            for entry in cell.split(SEPARATOR) if cell else ():
                entries.append((name, entry, head))
                name = ""
        ends.append(len(entries) - 1)
    names = (heads[0], "result", "verdict")
    columns = dict(zip(names, zip(*entries, strict=True), strict=True))
    return Sheet(columns, texts=names, ends=ends)
