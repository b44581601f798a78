"""Write the tables of docs/results.md on claims, training seeds and missing results, from results/cpu.

python scripts/results_page.py
"""

from __future__ import annotations

from pathlib import Path

from page_tables import write_tables

from latent_tokens.evaluation.report import as_markdown
from latent_tokens.paper.running.runs import measured
from latent_tokens.paper.tables.claims import decided, overview
from latent_tokens.paper.tables.lines import ENOUGH
from latent_tokens.paper.tables.missing import missing_table
from latent_tokens.paper.tables.seed_variance import seed_variance

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
ROWS = ROOT / "results" / "cpu" / "rows.jsonl"
RUNS = Path("runs/paper")


def tables() -> dict[str, str]:
    """Return the tables by their name on the page."""
    results = measured(ROWS)
    of_claims = overview(decided("cpu", RUNS, results, None, ROWS))
    return {
        "claims": as_markdown(of_claims),
        "seed-variance": as_markdown(seed_variance("cpu", RUNS, results)),
        "missing": as_markdown(missing_table("cpu", RUNS, results, seeds=ENOUGH)),
    }


if __name__ == "__main__":
    write_tables(PAGE, tables())
