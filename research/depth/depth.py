"""Models trained for a smaller input, and an mdm whose masked tokens are left out, on 6x6 boards.

python research/depth/depth.py     # print table.md from the stored rows
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from tables import Cell, Claim, report, rows_of

FREE = ("scdm", "scdm-depth", "mdm-depth")  # their number of latent tokens is set at inference
NUMBERS = (0, 2, 4, 8, 16, "all")
WAYS = (("top_prob", "k=4, fp32"), ("top_prob", "k=8, fp32"), ("uniform", "fp32"))
OFF_DISTRIBUTION = "k=8, off-distribution"
MARGIN = 3.0  # points of accuracy that a model whose n can be set may lose to sidm


def settings():
    """Return every n with k = 8, and both ends with k = 4 and in uniform order."""
    fixed = [("sidm", None), ("mdm", None)]
    every = [*fixed, *((method, n) for method in FREE for n in NUMBERS)]
    ends = [*fixed, *((method, n) for method in FREE for n in (0, "all"))]
    return [
        *(Cell(method, "top_prob", n, "k=8, fp32") for method, n in every),
        *(Cell("mdm", "top_prob", n, OFF_DISTRIBUTION) for n in NUMBERS[:-1]),
        *(Cell(method, "top_prob", n, "k=4, fp32") for method, n in ends),
        *(Cell(method, "uniform", n, "fp32") for method, n in ends),
    ]


def claims():
    """Return the claims on both ends of n, in three ways of decoding."""
    listed = []
    for order, variant in WAYS:
        name = "uniform" if order == "uniform" else f"top-prob, {variant.removesuffix(', fp32')}"
        sidm = Cell("sidm", order, None, variant)
        none, every = (Cell("scdm", order, n, variant) for n in (0, "all"))
        for method in FREE[1:]:
            first, last = (Cell(method, order, n, variant) for n in (0, "all"))
            listed += [
                Claim(f"{name}: {method} n=0 > sidm - {MARGIN:g} points", first, sidm, MARGIN),
                Claim(f"{name}: {method} n=0 > scdm n=0", first, none),
                Claim(f"{name}: {method} n=all > scdm n=all", last, every),
            ]
    trained = Cell("mdm-depth", "top_prob", 0, "k=8, fp32")
    left_out = Cell("mdm", "top_prob", 0, OFF_DISTRIBUTION)
    return [*listed, Claim("top-prob, k=8: mdm-depth n=0 > mdm n=0, off-distribution", trained, left_out)]


def main():
    """Print the table."""
    print(report(rows_of("depth"), settings(), claims()), end="")


if __name__ == "__main__":
    main()
