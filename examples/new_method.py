"""Bring your own method: an attention rule between SIDM's and SCDM's. A masked token sees the clean ones and the two masked ones before it.

A method is one record, an attention rule one function; loss, generate and evaluate take both as they are. Half of a 4x4 Sudoku is given.
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

REACH = 2  # masked tokens before it that a masked token sees
STEPS = 300


def near(q, k, c):
    """Slot q sees slot k: the clean ones, itself, and the nearest masked ones before it. On whole numbers or on tensors that broadcast."""
    return (k < c) | ((k <= q) & (k >= q - REACH))


NEAR = replace(METHODS["scdm"], attention=near)
TASK = TASKS["sudoku-4"]


def half_given(count: int, seed: int) -> Examples:
    """Boards of which any eight cells are given."""
    boards = TASK.generate(count, seed)
    random = np.random.default_rng(seed)
    return boards._replace(known=np.array([random.permutation(16) < 8 for _ in range(count)]))


def learned(method: Method, examples: Examples, seed: int = 0) -> Transformer:
    """A small network trained on the examples. `fit` does more, and saves; it writes down methods whose rule is one of the package's."""
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
    """Trains, saves the weights, then prints the share of valid boards at three numbers of latent tokens, and that of guesses."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    net = learned(NEAR, half_given(4_000, seed=0))
    folder.mkdir(parents=True, exist_ok=True)
    save_model(net, str(folder / "model.safetensors"))

    problems = half_given(500, seed=1)
    tokens, known, _ = as_tensors(problems)
    for latents in (0, 2, "all"):
        made = generate(net, NEAR, tokens, known, Decoding(candidates=1, latents=latents), seed=0)
        valid = TASK.score(as_numpy(made.tokens))["valid"].mean()
        print(
            f"n = {latents}: {100 * valid:.1f} % valid, {made.processed.double().mean():.0f} tokens a board"
        )

    guesses = np.where(
        problems.known, problems.tokens, np.random.default_rng(0).integers(4, size=problems.tokens.shape)
    )
    print(f"random digits: {100 * TASK.score(guesses)['valid'].mean():.1f} % valid")


if __name__ == "__main__":
    main()
