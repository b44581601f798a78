"""Print the loss curves of every method over 200 steps on sudoku-4: means over seeds and standard deviations.

    python scripts/golden_curves.py > tests/data/golden_curves.json

The tolerance of a point is four standard deviations over seeds. Another order of random draws stays within
it. A method that learns something else does not. tests/test_fingerprints.py compares.
"""

import json
import statistics
import tempfile
from pathlib import Path

from latent_tokens import METHODS, TrainConfig, fit

SEEDS = range(5)
TRAINED = [name.replace("-16", "-4") for name in METHODS]  # windows of 4: sudoku-4 has 16 cells


def curve(method, seed, folder):
    """Return {"loss at step 50": mean of 50 steps, "validation_loss at step 50": ...} over 200 steps."""
    config = TrainConfig(
        "sudoku-4", method, folder / f"{method}-{seed}", size="pico", steps=200, batch_size=32, lr=1e-2,
        warmup=20, ema=0.9,
        num_train=160, num_validation=16, evaluate_every=50, save_every=200, precision="fp32", seed=seed,
    )  # fmt: skip
    rows = [json.loads(line) for line in (fit(config) / "metrics.jsonl").read_text().splitlines()]
    return {
        f"{key} at step {row['step']}": row[key]
        for row in rows
        for key in ("loss", "validation_loss")
        if key in row
    }


def mean_and_tolerance(curves):
    """Point by point: [mean of the curves, four standard deviations]."""
    points = {point: [each[point] for each in curves] for point in curves[0]}
    return {
        point: [round(statistics.mean(values), 4), round(4 * statistics.stdev(values), 4)]
        for point, values in points.items()
    }


def main():
    with tempfile.TemporaryDirectory() as folder:
        golden = {
            method: mean_and_tolerance([curve(method, seed, Path(folder)) for seed in SEEDS])
            for method in TRAINED
        }
    print(json.dumps(golden, indent=1))


if __name__ == "__main__":
    main()
