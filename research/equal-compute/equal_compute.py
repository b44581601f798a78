"""The orderings of the methods after three times the steps on 6x6 boards, and a longer mdm of 9x9 boards.

python research/equal-compute/equal_compute.py     # print table.md from the stored rows
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from tables import Cell, Claim, report, rows_of

MORE = "300 % of the steps"
LONG = "16,000 steps of 1,000,000 boards"
MODELS = (
    *(("scdm", "top_prob", 0), ("scdm", "top_prob", "all"), ("sidm", "top_prob", None)),
    *(("mdm", "top_prob", None), ("ar-mtp", "left_to_right", None), ("arm", "left_to_right", None)),
)


def of_9x9(order, variant):
    """Return the setting of mdm on 9x9 boards."""
    return Cell("mdm", order, None, variant, "sudoku-gen-9x9")


def claims():
    """Return the orderings after three times the steps, and what each model gains."""
    none, every, sidm, mdm, ar_mtp, arm = (Cell(*model, MORE) for model in MODELS)
    pairs = {
        "mdm > sidm": (mdm, sidm),
        "scdm n=all > n=0": (every, none),
        "scdm n=all > sidm": (every, sidm),
        "mdm > scdm n=all": (mdm, every),
        "ar-mtp > arm": (ar_mtp, arm),
        "ar-mtp > mdm": (ar_mtp, mdm),
    }
    listed = [Claim(f"3x steps: {text}", *pair) for text, pair in pairs.items()]
    for method, order, n in MODELS:
        name = method if n is None else f"{method} n={n}"
        more, once = (Cell(method, order, n, variant) for variant in (MORE, "plain"))
        listed.append(Claim(f"{name}: 3x steps > 1x", more, once))
    for k in (8, "growing"):
        every, sidm, mdm = (Cell(*model, f"{MORE}, k={k}") for model in MODELS[1:4])
        listed += [
            Claim(f"3x steps, k={k}: sidm > scdm n=all", sidm, every),
            Claim(f"3x steps, k={k}: mdm > scdm n=all", mdm, every),
        ]
    listed.append(Claim("9x9, mdm: 16,000 steps > 4,000", of_9x9("top_prob", LONG), of_9x9("top_prob", None)))
    return listed


def main():
    """Print the table."""
    cells = [Cell(*model, variant) for model in MODELS for variant in ("plain", MORE)]
    cells += [Cell(*model, f"{MORE}, k={k}") for model in MODELS[1:4] for k in (8, "growing")]
    growing = ("k=growing", f"{LONG}, k=growing")
    cells += [of_9x9("top_prob", variant) for variant in (None, LONG, *growing)]
    cells += [of_9x9("uniform", variant) for variant in (None, LONG)]
    results = rows_of("equal-compute", "training", "candidates", "latent-choice")
    print(report(results, cells, claims()), end="")


if __name__ == "__main__":
    main()
