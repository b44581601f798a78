"""Define a network: one block that is applied in a loop. The number of loops is set when you sample.

A network is any callable of (ids, positions, mask). This one is a Transformer with a forward pass of its own,
which fit trains and evaluate decodes. Loops help MDM, whose masked tokens attend to each other, so that each
loop can use what the last one predicted. They hardly help SIDM, whose masked tokens see clean ones only.
"""

import sys
import tempfile
from pathlib import Path

import torch

from latent_tokens import TASKS, Size, Transformer, evaluate, fit, from_pretrained

STEPS = 400
MOST_LOOPS = 4
TASK = TASKS["sudoku-4"]


class Looped(Transformer):
    """Applies its blocks `loops` times, and adds the embeddings again before each time.

    Each training step draws its number of loops, so that the network has learned to predict after any.
    """

    loops = MOST_LOOPS

    def forward(self, ids, positions, mask):
        embedded, rotation = self.embed(ids, positions), self.rotation(positions)
        loops = int(torch.randint(1, MOST_LOOPS + 1, ())) if self.training else self.loops
        x = torch.zeros_like(embedded)
        for _ in range(loops):
            x = x + embedded
            for block in self.blocks:
                x = block(x, rotation, mask[:, None])
        return self.logits(x)


def learned(method: str, folder: Path) -> Looped:
    """Train a network of one block, and open it from its run directory."""
    torch.manual_seed(0)
    net = Looped(Size(width=64, heads=2, layers=1), TASK.vocab_size, TASK.length)
    settings = {"steps": STEPS, "lr": 3e-3, "num_train": 200, "num_validation": 16, "precision": "fp32"}
    run = fit(TASK.name, method, net=net, out=folder / method, **settings)
    return from_pretrained(run, net=net)


def main() -> None:
    """Train both methods, and print the share of valid boards by the number of loops, in uniform order."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    for method in ("mdm", "sidm"):
        net = learned(method, folder)
        for net.loops in (1, 2, MOST_LOOPS):
            (row,) = evaluate(net, TASK, order="uniform", num_samples=200)
            print(f"{method}, loops = {net.loops}: {row['valid']:.1f}% valid")


if __name__ == "__main__":
    main()
