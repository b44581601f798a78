"""Exact nats of held-out 6x6 boards, by latent tokens, policy and timing.

python research/nats/nats.py             # print table.md from the stored rows
python research/nats/nats.py RUN         # score 64 boards with a model
python research/nats/nats.py --entropy   # estimate the entropy of the solver's boards again
"""

import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

import latent_tokens as lt
from latent_tokens.core.order import any_order, first_order
from latent_tokens.core.state import Streams
from latent_tokens.evaluation.report import ORDER_NAMES
from latent_tokens.tasks.base import hash_rows

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from tables import Cell, Claim, report, rows_of
from teacher_forcing import teacher_forced_order

ORDERS = ("uniform", "top_prob")
NUMBERS = (0, 2, 4, 8, 16, "all")
CHOSEN = (4, 8)


def entropy_per_cell(task: Any, count: int, seed: int) -> float:
    """Return the estimated entropy of the boards that a task generates, in nats per cell.

    The first row is random, so that a board with its digits renamed is as likely. The estimate is ln(side!)
    and the entropy of boards with the first row 0, 1, 2, ..., with the correction of Miller and Madow.
    """
    boards = task.generate(count, seed).tokens.astype(np.int64)
    new_digit = boards[:, : task.side].argsort(1)
    renamed = np.take_along_axis(new_digit, boards, 1).astype(np.uint8)
    counts = np.unique(hash_rows(renamed), return_counts=True)[1]
    shares = counts / count
    entropy = float(-(shares * np.log(shares)).sum()) + (len(counts) - 1) / (2 * count)
    return float((math.lgamma(task.side + 1) + entropy) / task.num_cells)


def orders_of(net: lt.Denoiser, tokens: Any, known: Any, lengths: Any) -> dict[str, Any]:
    """Return a random order per board, and the order in which the model decodes it at n = all."""
    rows = torch.arange(len(tokens))
    draw = partial(Streams(0, rows).uniform, rows, lengths)
    is_free = net.method.latent_control == "free"
    decoding = lt.Decoding(candidates=4, latents="all" if is_free else None)
    forced = teacher_forced_order(net, net.method, tokens, known, decoding, 0, lengths=lengths)
    return {"uniform": first_order(any_order, known, lengths, draw), "top_prob": forced}


def measure(run: str, num_boards: int = 64) -> None:
    """Print the nats per cell of new boards for each order and n, with random latent tokens."""
    model = lt.load(run)
    tokens, known, lengths = lt.as_tensors(model.task.generate(num_boards, 1))
    numbers = NUMBERS if model.method.latent_control == "free" else (None,)
    for name, order in orders_of(model.net, tokens, known, lengths).items():
        for n in numbers:
            scores = lt.log_likelihood(
                model.net,
                model.method,
                tokens,
                order,
                known.sum(1),
                lengths,
                n,
                latent_policy=lt.random,
                seed=1,
            )
            print(f"{name}, n={n}: {-scores.sum().item() / int(lengths.sum()):.4f} nats per cell")


def scdm(order: str, n: Any, name: str) -> Cell:
    """Return the setting of scdm with a policy or a timing."""
    return Cell("scdm", order, n, f"{name}, nats")


def settings() -> list[Cell]:
    """Return every n, policy and timing, and the two models without a choice of n."""
    listed = []
    for order in ORDERS:
        listed += [scdm(order, n, "random") for n in NUMBERS]
        policies = ("nearest", "relevant", "constrained of a unit")
        listed += [scdm(order, n, name) for name in policies for n in CHOSEN]
        listed += [scdm(order, None, name) for name in ("constant", "a share", "early", "late")]
        listed += [Cell(method, order, None, "nearest, nats") for method in ("sidm", "mdm")]
    return listed


def claims() -> list[Claim]:
    """Return the claims on policies and timing. A < B: A is better."""
    listed = []
    for order in ORDERS:
        none, every = (scdm(order, n, "random") for n in (0, "all"))
        late, constant = (scdm(order, None, name) for name in ("late", "constant"))
        pairs = {"n=all < n=0": (every, none), "same total, late < constant n": (late, constant)}
        pairs |= {"late < n=all": (late, every)}
        for n in CHOSEN:
            relevant, other = scdm(order, n, "relevant"), scdm(order, n, "random")
            pairs |= {
                f"{n} relevant < {n} random": (relevant, other),
                f"{n} relevant < n=all": (relevant, every),
            }
            if order == "top_prob":
                pairs[f"{n} nearest < {n} random"] = scdm(order, n, "nearest"), other
        of_rules = scdm(order, 4, "constrained of a unit")
        pairs["4 constrained shared-unit < 4 random"] = of_rules, scdm(order, 4, "random")
        pairs["scdm n=all < sidm"] = every, Cell("sidm", order, None, "nearest, nats")
        listed += [Claim(f"{ORDER_NAMES[order]}: {text}", *pair) for text, pair in pairs.items()]
    return listed


def main(run: str | None = None, /, entropy: bool = False) -> None:
    """Print the table, measure a model, or estimate the entropy."""
    if entropy:
        print(f"{entropy_per_cell(lt.TASKS['sudoku-6'], 2_000_000, 5):.4f} nats per cell")
    elif run is not None:
        measure(run)
    else:
        print(report(rows_of("nats"), settings(), claims()), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
