"""The tables of a page of docs/, each between the comments <!-- table NAME --> and <!-- end -->."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from latent_tokens.storage import write_atomic

TABLE = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.S)


def names_of(page: str) -> list[str]:
    """Return the names of a page's tables."""
    return [match[2] for match in TABLE.finditer(page)]


def filled(page: str, tables: Mapping[str, str]) -> str:
    """Return a page with these tables. Its other tables stay.

    Raises:
        ValueError: the page has no place for one of them.
    """
    missing = tables.keys() - names_of(page)
    if missing:
        raise ValueError(f"the page has no <!-- table {min(missing)} -->, followed by <!-- end -->")

    def table(match: re.Match[str]) -> str:
        return f"{match[1]}{tables[match[2]]}{match[3]}" if match[2] in tables else match[0]

    return TABLE.sub(table, page)


def write_tables(path: Path, tables: Mapping[str, str]) -> None:
    """Write these tables into the page at `path`."""
    write_atomic({path: filled(path.read_text(encoding="utf-8"), tables).encode()})
