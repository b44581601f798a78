"""How many candidates to infill puzzles with a model that was trained on complete boards.

python research/infilling/infilling.py     # print table.md from the stored rows
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from tables import Cell, Claim, report, rows_of

MODELS = (("scdm", 0), ("scdm", "all"), ("sidm", None), ("mdm", None))


def infilled(method, n, k):
    """Return the setting of a model of boards that infills puzzles. k = all leaves no latent tokens."""
    n = "all" if k == "all" and n == 0 else n
    return Cell(method, "top_prob", n, f"k={k}", problems="sudoku-puzzle")


def claims():
    """Return the claims on k = all, and on scdm and sidm."""
    listed = [
        Claim(f"{method}: k=all > k={k}", infilled(method, n, "all"), infilled(method, n, k))
        for method, n in (("scdm", "all"), ("mdm", None))
        for k in (4, "growing")
    ]
    return listed + [
        Claim(f"k={k}: scdm n=all > sidm", infilled("scdm", "all", k), infilled("sidm", None, k))
        for k in (4, 8, "growing", "all")
    ]


def main():
    """Print the table."""
    cells = [infilled(method, n, k) for method, n in MODELS for k in (4, 8, "growing", "all")]
    print(report(rows_of("infilling"), cells, claims()), end="")


if __name__ == "__main__":
    main()
