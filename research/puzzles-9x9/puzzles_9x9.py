"""Puzzles of others, infilled by the bundled models of 9x9 boards.

python research/puzzles-9x9/puzzles_9x9.py     # print table.md from the stored rows
"""

from pathlib import Path

from latent_tokens.evaluation.report import as_markdown
from latent_tokens.evaluation.rows import Row, read_results

ROWS = Path(__file__).with_name("rows.jsonl")
PUZZLES = {
    "ye2025_sudoku_test_first500": "Ye et al. (2025), the first 500 of their test",
    "norvig_easy50": "Norvig's easy 50 (Project Euler 96)",
    "top95": "magictour's top 95",
    "norvig_hardest11": "Norvig's hardest 11",
    "magictour_top1465": "the first 1,000 of magictour's top 1,465",
}
COLUMNS = {
    "scdm, k = 8, n = 0": ("scdm", "top_prob", 8, 0),
    "scdm, k = 8, n = all": ("scdm", "top_prob", 8, "all"),
    "scdm, k = all": ("scdm", "top_prob", "all", 0),
    "mdm, k = 8": ("mdm", "top_prob", 8, "all"),
    "mdm, k = all": ("mdm", "top_prob", "all", "all"),
    "mdm, k = all, entropy": ("mdm", "entropy", "all", "all"),
}


def main() -> None:
    """Print the share of solved puzzles of each collection and setting, in percent."""
    rows = read_results(ROWS)
    table = [("puzzles", "number", *COLUMNS)]
    for problems, name in PUZZLES.items():
        of_name = [row for row in rows if row["problems"] == problems]
        by_setting = {(r["method"], r["order"], r["candidates"], r["latents"]): solved(r) for r in of_name}
        cells = (f"{by_setting[s]:.1f}" if s in by_setting else "" for s in COLUMNS.values())
        table.append((name, f"{of_name[0]['num_samples']:,}", *cells))
    print(as_markdown(table), end="")


def solved(row: Row) -> float:
    """Return the solved puzzles in percent. Rows without units have fractions."""
    return row["exact"] if "units" in row else 100 * row["exact"]


if __name__ == "__main__":
    main()
