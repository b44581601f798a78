"""Define a method: a masked token attends to the clean tokens and the two masked tokens before it.

This lies between SIDM and SCDM.

A method is one record and an attention rule one function. loss, generate and evaluate accept both unchanged.
Half of the cells of a 4x4 Sudoku are given.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_model

from latent_tokens import (
    METHODS,
    TASKS,
    Decoding,
    Method,
    Size,
    Transformer,
    as_numpy,
    as_tensors,
    generate,
    loss,
)
from latent_tokens.tasks import Examples

REACH = 2  # the number of earlier masked tokens that a masked token attends to
STEPS = 300


def near(q, k, c):
    """Return whether slot q attends to slot k: clean slots, itself, and the nearest masked slots before it.

    The arguments are integers or tensors that broadcast.
    """
    return (k < c) | ((k <= q) & (k >= q - REACH))


NEAR = replace(METHODS["scdm"], attention=near)
TASK = TASKS["sudoku-4"]


def half_given(count: int, seed: int) -> Examples:
    """Boards of which any eight cells are given."""
    boards = TASK.generate(count, seed)
    random = np.random.default_rng(seed)
    return boards._replace(known=np.array([random.permutation(16) < 8 for _ in range(count)]))


def learned(method: Method, examples: Examples, seed: int = 0) -> Transformer:
    """Train a small network. `fit` also saves it, but needs a rule of `load_method`."""
    torch.manual_seed(seed)
    net = Transformer(Size(64, 4, 3), TASK.vocab_size, TASK.length, positions="learned", gelu="exact")
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=STEPS)
    tokens, known, _ = as_tensors(examples)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        rows = torch.randint(len(tokens), (64,), generator=generator)
        optimizer.zero_grad()
        loss(net, method, tokens[rows], known[rows], generator).backward()
        optimizer.step()
        schedule.step()
    return net.eval()


def main() -> None:
    """Train, save the weights, and print the share of valid boards at three n and that of random guesses."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    net = learned(NEAR, half_given(4_000, seed=0))
    folder.mkdir(parents=True, exist_ok=True)
    save_model(net, str(folder / "model.safetensors"))

    problems = half_given(500, seed=1)
    tokens, known, _ = as_tensors(problems)
    for latents in (0, 2, "all"):
        made = generate(net, NEAR, tokens, known, Decoding(candidates=1, latents=latents), seed=0)
        valid = TASK.score(as_numpy(made.tokens))["valid"].mean()
        cost = made.tokens_processed.double().mean()
        print(f"n = {latents}: {100 * valid:.1f}% valid, {cost:.0f} tokens per board")

    guesses = np.where(
        problems.known, problems.tokens, np.random.default_rng(0).integers(4, size=problems.tokens.shape)
    )
    print(f"random digits: {100 * TASK.score(guesses)['valid'].mean():.1f}% valid")


if __name__ == "__main__":
    main()
