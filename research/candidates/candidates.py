"""How many candidates: top-prob order at fixed and adaptive k, on 6x6 boards, puzzles and Countdown.

python research/candidates/candidates.py     # print table.md from the stored rows
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from tables import Cell, Claim, report, rows_of

MODELS = (("scdm", 0), ("scdm", "all"), ("sidm", None), ("mdm", None))
NUMBERS = (1, 2, 4, 8, 16, "all", "growing")


def boards(method, n, k):
    """Return the setting of a model of boards with k candidates. k = all leaves no latent tokens."""
    return Cell(method, "top_prob", "all" if k == "all" and n == 0 else n, f"k={k}")


def on_other_tasks():
    """Return the settings with the default k and with adaptive candidates on puzzles, Zebra and Countdown."""
    return [
        Cell(method, "top_prob", n, variant, task)
        for task in ("sudoku-puzzle", "zebra", "countdown")
        for method, n in MODELS[1:]
        for variant in ("plain", "k=growing")
    ]


def claims():
    """Return the claims on the number of candidates, and on sidm and scdm at each number."""
    listed = []
    for method, n in MODELS:
        name = method if n is None else f"{method} n={n}"
        pairs = [("growing", 8)] if n == 0 else [("growing", 8), (8, 1), (8, 4), (8, "all")]
        listed += [
            Claim(f"{name}: k={more} > k={other}", boards(method, n, more), boards(method, n, other))
            for more, other in (pairs if method != "sidm" else pairs[:1])
        ]
    for k in (4, 8, 16, "all", "growing"):
        sidm = boards("sidm", None, k)
        if k != "all":
            listed.append(Claim(f"k={k}: sidm > scdm n=0", sidm, boards("scdm", 0, k)))
        listed.append(Claim(f"k={k}: scdm n=all > sidm", boards("scdm", "all", k), sidm))
    adaptive, fixed = (Cell("mdm", "top_prob", None, name, "countdown") for name in ("k=growing", "plain"))
    return [*listed, Claim("Countdown, mdm: k=growing > k=8", adaptive, fixed)]


def main():
    """Print the table."""
    cells = [boards(method, n, k) for method, n in MODELS for k in NUMBERS]
    print(report(rows_of("candidates", "latent-choice"), [*cells, *on_other_tasks()], claims()), end="")


if __name__ == "__main__":
    main()
