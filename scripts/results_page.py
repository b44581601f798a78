"""Write the table of docs/results.md on claims, from results/cpu: python scripts/results_page.py.

It is between the comments <!-- table claims --> and <!-- end -->.
"""

from __future__ import annotations

import re
from pathlib import Path

from latent_tokens.evaluation.report import as_markdown
from latent_tokens.paper.claims import decided, overview
from latent_tokens.paper.run import rows_by_recipe
from latent_tokens.storage import write_atomic

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
ROWS = ROOT / "results" / "cpu" / "rows.jsonl"
TABLE = re.compile(r"(<!-- table claims -->\n).*?(<!-- end -->)", re.S)


def filled(page: str) -> str:
    """Return the page with the table of the stored rows."""
    table = as_markdown(overview(decided("cpu", Path("runs/paper"), rows_by_recipe(ROWS), None, ROWS)))
    return TABLE.sub(lambda match: f"{match[1]}{table}{match[2]}", page)


if __name__ == "__main__":
    write_atomic({PAGE: filled(PAGE.read_text(encoding="utf-8")).encode()})
