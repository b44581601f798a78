"""Which masked tokens are latent tokens, at equal n, on 6x6 boards, puzzles and Countdown.

python research/latent-choice/latent_choice.py           # print table.md from the stored rows
python research/latent-choice/latent_choice.py RUN       # decode boards with each choice
"""

import sys
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
import tyro
from torch import Tensor

import latent_tokens as lt
from latent_tokens.core.policies import (
    LatentPolicy,
    quantize,
    rank_by,
    support_from_clean,
    support_of_candidates,
)

sys.path.append(str(Path(__file__).parents[1]))

from tables import Cell, Claim, report, rows_of

ORDERS = ("uniform", "top_prob")
CHOICES = (
    *("plain", "random", "of a unit", "constrained", "constrained of a unit"),
    *("most certain", "least certain", "relevant"),
)
NUMBERS = (4, 8)


def sharing(task: lt.Task) -> Tensor:
    """Return 1 for two cells of a Sudoku that share a row, column or box, (L, L)."""
    units = torch.full((task.length, 3), -1)
    units[task.boards(np.arange(task.length)[None])[0]] = torch.from_numpy(task.grid.unit_of)
    is_shared = (units[:, None] == units).any(-1) & (units >= 0).all(-1)
    return (is_shared & ~torch.eye(task.length, dtype=torch.bool)).double()


def of_a_unit(net: lt.Denoiser, task: lt.Task) -> LatentPolicy:
    """Choose latent tokens that share the most units with the candidates."""
    relation = quantize(sharing(task))
    return rank_by(lambda step: support_of_candidates(relation, step), "of a unit")


def constrained(net: lt.Denoiser, task: lt.Task) -> LatentPolicy:
    """Choose latent tokens that share units with the most clean cells."""
    relation = quantize(sharing(task))
    return rank_by(lambda step: support_from_clean(relation, step), "constrained")


def constrained_of_a_unit(net: lt.Denoiser, task: lt.Task) -> LatentPolicy:
    """Choose latent tokens by the product of the two: the policy relevant, with the relation of the rules."""
    return lt.relevant(sharing(task), "constrained of a unit")


def certain(sign: int, net: lt.Denoiser, task: lt.Task) -> LatentPolicy:
    """Choose latent tokens that the model is most (1) or least (-1) certain of.

    Its forward pass on all masked tokens is not counted as a cost.
    """

    def certainty(step: lt.PolicyInput) -> Tensor:
        layout = lt.next_layout(step.order, step.num_clean, step.num_masked, torch.zeros_like(step.num_clean))
        logits = net.method.logits(net, step.tokens, layout).double()
        certainties = sign * logits.softmax(-1).amax(-1)  # (A, S), by entry of the order
        by_position = torch.zeros_like(step.order, dtype=certainties.dtype)
        return by_position.scatter(1, step.order[:, : certainties.shape[1]], certainties)

    return rank_by(certainty, "most certain" if sign > 0 else "least certain")


OF_RULES = {
    "of a unit": of_a_unit,
    "constrained": constrained,
    "constrained of a unit": constrained_of_a_unit,
    "most certain": partial(certain, 1),
    "least certain": partial(certain, -1),
}


def measure(run: str, num_samples: int = 1_334) -> None:
    """Print the valid boards of a model for each order, choice and n."""
    model = lt.load(run)
    for order, choice, n in product(ORDERS, CHOICES, NUMBERS):
        settings = {"order": order, "candidates": 4 if order == "top_prob" else None, "latents": (n,)}
        if choice in ("random", "relevant"):
            settings["latent_policy"] = choice
        if choice in OF_RULES:
            settings["latent_policy"] = OF_RULES[choice](model.net, model.task)
        (row,) = lt.evaluate(model.net, model.task, num_samples=num_samples, **settings)
        print(f"{order}, {choice}, n={n}: {row[row['metric']]:.1f}% at {row['relative_cost']:.2f}x")


def settings() -> list[Cell]:
    """Return every choice on boards, and relevant latent tokens on puzzles and Countdown."""
    ends = [Cell("scdm", order, n, "plain") for order in ORDERS for n in (0, "all")]
    on_boards = [Cell("scdm", *each) for each in product(ORDERS, NUMBERS, CHOICES)]
    which = ((0, "plain"), (4, "plain"), (4, "relevant"), ("all", "plain"))
    others = [
        Cell("scdm", order, *each, task)
        for task in ("sudoku-puzzle", "countdown")
        for order in ORDERS
        for each in which
    ]
    return [*ends, *on_boards, *others]


def claims() -> list[Claim]:
    """Return the claims on four latent tokens of each choice with three seeds."""
    listed = []
    for order in ORDERS:
        nearest, every = (Cell("scdm", order, n, "plain") for n in (4, "all"))
        for choice in ("random", "constrained of a unit", "relevant"):
            listed.append(Claim(f"{order}, n=4: {choice} > nearest", Cell("scdm", order, 4, choice), nearest))
        listed.append(Claim(f"{order}: 4 relevant > n=all", Cell("scdm", order, 4, "relevant"), every))
    none, nearest, every = (Cell("scdm", "uniform", n, "plain", "countdown") for n in (0, 4, "all"))
    relevant = Cell("scdm", "uniform", 4, "relevant", "countdown")
    return [
        *listed,
        Claim("Countdown, uniform, n=4: relevant > nearest", relevant, nearest),
        Claim("Countdown, uniform: n=all > n=0", every, none),
    ]


def main(run: str | None = None, /) -> None:
    """Print the table, or measure a model."""
    if run is not None:
        measure(run)
        return
    print(report(rows_of("latent-choice", "candidates"), settings(), claims()), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
