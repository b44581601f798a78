"""Algorithm 5: the schedule reshuffled after every step, or drawn once as printed.

python research/refresh/refresh.py     # print table.md from the stored rows
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from tables import Cell, Claim, report, rows_of

VARIANTS = ("plain", "as printed")


def main():
    """Print the table."""
    cells = [Cell("scdm", "top_prob", n, variant) for n in (4, 8, "all") for variant in VARIANTS]
    pairs = zip(cells[::2], cells[1::2], strict=True)
    claims = [Claim(f"n={new.latents}: reshuffled > as printed", new, old) for new, old in pairs]
    print(report(rows_of("refresh", "latent-choice", "candidates"), cells, claims), end="")


if __name__ == "__main__":
    main()
