"""Define a task: color the ten points of the Petersen graph with four colors.

Two joined points must differ in color.

A sequence has one color per point. Three are given and the model predicts the others.
The class implements all that the package needs.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from latent_tokens import (
    Decoding,
    EvalConfig,
    TrainConfig,
    as_numpy,
    as_tensors,
    evaluate,
    fit,
    from_pretrained,
    generate,
)
from latent_tokens.tasks import Examples, Keys, Scores, Tokens, hash_rows, split_by_key

LINES = [
    line for i in range(5) for line in ((i, (i + 1) % 5), (i, i + 5), (i + 5, (i + 2) % 5 + 5))
]  # of a ring, spokes and a star
NEIGHBOURS = [
    [b for line in LINES if a in line for b in line if b != a] for a in range(10)
]  # three for each point
COLORS = "RGBY"  # token 0 is R


@dataclass(frozen=True)
class PetersenColouring:
    """Meets latent_tokens.Task, whose docstrings say what each method owes."""

    name: str = "petersen-colouring"
    length: int = 10
    vocab_size: int = len(COLORS)
    metric: str = "valid"
    num_train: int = 4_000  # of the 12,960 colourings that there are

    def generate(self, count: int, seed: int, first: int = 0) -> Examples:
        """Color point after point at random, unlike its neighbors. Each example has its own random stream."""
        tokens, known = np.full((count, 10), len(COLORS), np.uint8), np.zeros((count, 10), np.bool_)
        for row in range(count):
            random = np.random.default_rng((seed, first + row))
            for point in range(10):
                taken = tokens[row, NEIGHBOURS[point]].tolist()
                tokens[row, point] = next(
                    colour for colour in random.permutation(len(COLORS)) if colour not in taken
                )
            known[row, random.permutation(10)[:3]] = True
        return Examples.of(tokens, known)

    def keys(self, examples: Examples) -> Keys:
        """By colouring, whichever points of it are given."""
        return np.asarray(hash_rows(examples.tokens))

    def splits(self, examples: Examples) -> np.ndarray:
        """By key, so that no colouring is in two splits."""
        return split_by_key(self.keys(examples))

    def encode(self, text: str) -> Examples:
        """A problem like R.G.. ...Y.: the ring, then the star, a dot for the model to fill in."""
        letters = "".join(text.split())
        if len(letters) != 10 or set(letters) - set(COLORS + "."):
            raise ValueError(f"{text!r}: must be 10 of {COLORS} or dots")
        tokens = np.array([[COLORS.find(letter) for letter in letters]])
        return Examples.of(tokens.clip(0).astype(np.uint8), known=tokens >= 0)

    def decode(self, tokens: Tokens) -> str:
        """Ten letters as `encode` takes them."""
        letters = "".join(COLORS[token] if token < len(COLORS) else "." for token in tokens)
        return f"{letters[:5]} {letters[5:]}"

    def verify(self, tokens: Tokens) -> list[str]:
        """The points without colour, and the lines that join two of one."""
        wrong = [f"point {point} has no colour" for point in np.flatnonzero(tokens >= len(COLORS))]
        return wrong + [
            f"points {a} and {b} are joined and alike" for a, b in LINES if tokens[a] == tokens[b]
        ]

    def score(self, tokens: Tokens, truth: Examples | None = None) -> Scores:
        """valid: nothing is wrong. The stored answer does not matter, as most problems have several."""
        return {"valid": np.array([not self.verify(row) for row in tokens], np.float64)}


def main() -> None:
    """Train in a new directory. Print the share of valid answers at three n and that of random guesses."""
    task = PetersenColouring()
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    fit(
        TrainConfig(task.name, "scdm", out=folder, steps=500, num_train=task.num_train, evaluate_every=250),
        task=task,
    )
    net = from_pretrained(folder)
    for row in evaluate(net, task, EvalConfig(latents=(0, 2, "all"), candidates=1, num_samples=500)):
        print(f"n = {row['latents']}: {row['valid']} % valid, {row['relative_cost']} of the tokens")

    problems = task.generate(2_000, seed=1)
    guesses = np.where(
        problems.known, problems.tokens, np.random.default_rng(0).integers(4, size=(2_000, 10))
    )
    print(f"random colours: {100 * task.score(guesses)['valid'].mean():.1f} % valid")

    tokens, known, lengths = as_tensors(task.encode("R.G.. ...Y."))
    answer = as_numpy(
        generate(net, net.method, tokens, known, Decoding(candidates=1), seed=0, lengths=lengths).tokens
    )[0]
    print("R.G.. ...Y. ->", task.decode(answer), *task.verify(answer) or ["valid"])


if __name__ == "__main__":
    main()
