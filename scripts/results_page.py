"""Write the table of docs/results.md on claims, from results/cpu.

python scripts/results_page.py
"""

from __future__ import annotations

from pathlib import Path

from page_tables import write_tables

from latent_tokens.evaluation.report import as_markdown
from latent_tokens.paper.claims import decided, overview
from latent_tokens.paper.run import measured

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
ROWS = ROOT / "results" / "cpu" / "rows.jsonl"


def tables() -> dict[str, str]:
    """Return the table by its name on the page."""
    listed = decided("cpu", Path("runs/paper"), measured(ROWS), None, ROWS)
    return {"claims": as_markdown(overview(listed))}


if __name__ == "__main__":
    write_tables(PAGE, tables())
