"""Training targets, loss weights and fewer steps on 6x6 boards, and learning rates on Countdown.

python research/training/training.py     # print table.md from the stored rows
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from tables import Cell, Claim, report, rows_of

DIFFUSION = (("mdm", None), ("scdm", 0), ("scdm", 4), ("scdm", "all"))
RATES = [Cell("mdm", "top_prob", None, rate, "countdown") for rate in (None, "lr 0.001", "lr 0.0005")]
SHARES = ("12.5 % of the steps", "25 % of the steps", "50 % of the steps", "plain")


def left(method, variant):
    """Return the setting of a model that decodes from left to right."""
    return Cell(method, "left_to_right", None, variant)


def main():
    """Print the table."""
    targets = [
        Cell(method, "top_prob", n, variant)
        for method, n in DIFFUSION
        for variant in ("plain", "target only")
    ]
    cells = [
        *targets,
        *(left("ar-mtp", variant) for variant in ("plain", "elbo")),
        *(left(method, share) for method in ("arm", "ar-mtp") for share in SHARES),
        *RATES,
    ]
    claims = [
        Claim(f"{every.method}, n={every.latents or 'all'}: all targets > target only", every, one)
        for every, one in (targets[0:2], targets[6:8])
    ]
    claims.append(Claim("ar-mtp: flat loss > elbo weight", left("ar-mtp", "plain"), left("ar-mtp", "elbo")))
    for share in SHARES:
        text = "all steps" if share == "plain" else share.replace(" %", "%")
        claims.append(Claim(f"{text}: ar-mtp > arm", left("ar-mtp", share), left("arm", share)))
    claims += [Claim(f"mdm on Countdown: lr 0.002 > {lower.variant}", RATES[0], lower) for lower in RATES[1:]]
    print(report(rows_of("training", "latent-choice", "candidates"), cells, claims), end="")


if __name__ == "__main__":
    main()
