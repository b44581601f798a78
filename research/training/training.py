"""Training targets, loss weights and steps, and learning rates on Countdown.

python research/training/training.py               # print table.md from the stored rows
python research/training/training.py --measure     # train AR-MTP of window 64 for more steps, if missing

The models of --measure are those of `latent-tokens reproduce figure-sudoku-large` but for their steps, in the
directory of --runs.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch
import tyro

from latent_tokens.evaluation.rows import append_result, read_results
from latent_tokens.paper.experiments import Cell as Trained
from latent_tokens.paper.recipes import in_folder, of_cells
from latent_tokens.paper.run import measure_recipe

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from tables import Cell, Claim, Line, compared, report, rows_of  # noqa: E402

DIFFUSION = (("mdm", None), ("scdm", 0), ("scdm", 4), ("scdm", "all"))
RATES = [Cell("mdm", "top_prob", None, rate, "countdown") for rate in (None, "lr 0.001", "lr 0.0005")]
SHARES = ("12.5 % of the steps", "25 % of the steps", "50 % of the steps", "plain")
LARGE = "sudoku-large"  # 9x9 boards of the fixed pattern, in the place of the paper's 36x36 boards
LONGER = "3 x the steps"


def left(method, variant):
    """Return the setting of a model that decodes from left to right."""
    return Cell(method, "left_to_right", None, variant)


def window(size, variant=None):
    """Return the setting of AR-MTP with a window on 9x9 boards of the fixed pattern."""
    return left(f"ar-mtp-window-{size}", variant)._replace(task=LARGE)


def measure_longer(runs):
    """Train the largest window of AR-MTP for three times the steps, and append a row for each seed."""
    torch.set_num_threads(1)
    path, longer = HERE / "rows.jsonl", window(64, LONGER)
    done = {row["train_seed"] for row in read_results(path) if row["cell"] == longer._asdict()}
    for recipe in of_cells([Trained(LARGE, longer.method, longer.order)], "cpu", runs):
        if recipe.training.seed not in done:
            training = replace(recipe.training, steps=3 * recipe.training.steps)
            row = measure_recipe(in_folder(replace(recipe, training=training), runs / "cpu"))
            append_result(path, {**row, "cell": longer._asdict()})


def by_soft_loss(line):
    """Return the line of a setting whose value is the soft loss."""
    return Line(line.cell, tuple({**row, "metric": "soft_loss"} for row in line.rows))


def main(measure: bool = False, runs: Path = HERE.parents[1] / "runs" / "paper") -> None:
    """Print the table, or measure first.

    Args:
        measure: train and measure what is missing of AR-MTP with more steps.
        runs: directory of data sets and models.
    """
    if measure:
        measure_longer(runs)
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
    lines = rows_of("training", "latent-choice", "candidates")
    windows = [*map(window, (1, 4, 16, 64)), window(64, LONGER)]
    lines |= {cell: by_soft_loss(lines[cell]) for cell in windows if cell in lines}
    longest = [
        Claim(f"window 64, {LONGER} < window {size}", window(64, LONGER), window(size)) for size in (64, 16)
    ]
    claims += compared(lines, longest)
    print(report(lines, [*cells, *windows], claims), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
