"""Define a task: color the ten points of the Petersen graph with four colors.

Two joined points must differ in color.

A sequence has one color per point. Three are given and the model predicts the others.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from latent_tokens import (
    Decoding,
    EvalConfig,
    Examples,
    TaskBase,
    TrainConfig,
    as_numpy,
    as_tensors,
    evaluate,
    fit,
    from_pretrained,
    generate,
)

LINES = [
    line for i in range(5) for line in ((i, (i + 1) % 5), (i, i + 5), (i + 5, (i + 2) % 5 + 5))
]  # of a ring, spokes and a star
NEIGHBORS = [
    [b for line in LINES if a in line for b in line if b != a] for a in range(10)
]  # three for each point
COLORS = "RGBY"  # token 0 is R


class PetersenColoring(TaskBase):
    """A task of four members: length, vocab, generate and verify. The others have a default."""

    length = 10
    vocab = COLORS
    num_train = 4_000  # of the 12,960 colorings that there are

    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Color point after point at random, unlike its neighbors. Each example has its own random stream."""
        tokens = np.full((count, 10), len(COLORS), np.uint8)
        known = np.zeros((count, 10), np.bool_)
        for row in range(count):
            random = np.random.default_rng((seed, first + row, 1))  # not that of sampling: (seed, row)
            for point in range(10):
                taken = tokens[row, NEIGHBORS[point]].tolist()
                tokens[row, point] = next(
                    color for color in random.permutation(len(COLORS)) if color not in taken
                )
            known[row, random.permutation(10)[:3]] = True
        return Examples.of(tokens, known)

    def verify(self, tokens: np.ndarray) -> list[str]:
        """Return the points without color, and the lines that join two of one."""
        wrong = [f"point {point} has no color" for point in np.flatnonzero(tokens >= len(COLORS))]
        return wrong + [
            f"points {a} and {b} are joined and alike" for a, b in LINES if tokens[a] == tokens[b]
        ]


def main() -> None:
    """Train in a new directory. Print the share of valid answers at three n and that of random guesses."""
    task = PetersenColoring()
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    settings = {"steps": 300, "evaluate_every": 150, "num_validation": 200}
    fit(TrainConfig(task.name, "scdm", out=folder, **settings), task=task)
    net = from_pretrained(folder)
    for row in evaluate(net, task, EvalConfig(latents=(0, 2, "all"), candidates=1, num_samples=500)):
        print(f"n = {row['latents']}: {row['valid']}% valid, {row['relative_cost']:.2f}x of the tokens")

    problems = task.generate(2_000, seed=1)
    guesses = np.where(
        problems.known, problems.tokens, np.random.default_rng(0).integers(4, size=(2_000, 10))
    )
    print(f"random colors: {100 * task.score(guesses)['valid'].mean():.1f}% valid")

    tokens, known, lengths = as_tensors(task.encode("R.G.. ...Y."))
    answer = as_numpy(
        generate(net, net.method, tokens, known, Decoding(candidates=1), seed=0, lengths=lengths).tokens
    )[0]
    print("R.G.. ...Y. ->", task.decode(answer), *task.verify(answer) or ["valid"])


if __name__ == "__main__":
    main()
