"""What an ablation changes: how a model is trained, or how it is decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latent_tokens.configs import Names
from latent_tokens.decoding import Decoding, top_prob
from latent_tokens.layout import next_layout
from latent_tokens.model import Transformer
from latent_tokens.relevance import by_worth, in_levels, relevant, tells_candidates, told_by_clean
from latent_tokens.tasks import Sudoku, Task

Adjust = Callable[[Transformer, Task, Decoding], Decoding]


@dataclass(frozen=True)
class Variant:
    """Settings of the training and of the evaluation that differ, a share of its steps, a last word on decoding, and whether latents are watched."""

    training: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    adjust: Adjust | None = None
    watched: bool = False


def sharing(task: Task) -> Tensor:
    """1 where two cells of a Sudoku share a row, column or box, Float[L, L]. Raises ValueError for a task without units."""
    if not isinstance(task, Sudoku):
        raise ValueError(f"{task.name}: its positions share no units; use relevant latents, which go by the model's own influence")
    units = torch.full((task.length, 3), -1)
    units[task.boards(np.arange(task.length)[None])[0]] = torch.from_numpy(task.grid.unit_of)
    return ((units[:, None] == units).any(-1) & (units >= 0).all(-1) & ~torch.eye(task.length, dtype=torch.bool)).double()


def of_a_unit(net: Transformer, task: Task, decoding: Decoding) -> Decoding:
    """Latents that share the most units with the candidates."""
    relation = in_levels(sharing(task))
    return with_worth(decoding, lambda order, clean, candidates, tokens: tells_candidates(relation, order, clean, candidates))


def constrained(net: Transformer, task: Task, decoding: Decoding) -> Decoding:
    """Latents that share units with the most clean cells."""
    relation = in_levels(sharing(task))
    return with_worth(decoding, lambda order, clean, candidates, tokens: told_by_clean(relation, order, clean))


def constrained_of_a_unit(net: Transformer, task: Task, decoding: Decoding) -> Decoding:
    """Latents by the product of the two: relevant, where the relation is that of the rules."""
    return replace(decoding, latent_policy=relevant(sharing(task)))


def certain(sign: int, net: Transformer, task: Task, decoding: Decoding) -> Decoding:
    """Latents that the model itself is most (1) or least (-1) certain of, by a look at all masked tokens that is not counted as a cost."""

    def certainty(order: Int[Tensor, "A L"], clean: Int[Tensor, " A"], candidates: Int[Tensor, " A"], tokens: Tensor) -> Float[Tensor, "A L"]:
        layout = next_layout(order, clean, order.shape[1] - clean, torch.zeros_like(clean))
        found = sign * top_prob(net.method.logits(net, tokens, layout).double())  # (A, L), by entry of the order
        return torch.zeros_like(found).scatter(1, order, found)

    return with_worth(decoding, certainty)


def with_worth(decoding: Decoding, worth: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> Decoding:
    """A decoding whose latents are those of most worth."""
    return replace(decoding, latent_policy=by_worth(worth, "by worth"))


def scheduled(shape: Callable[[int, int], Callable[[int], int]], net: Transformer, task: Task, decoding: Decoding) -> Decoding:
    """As many latents in all as n = L / 4 shows, at other times: of a shape (L, size) -> (masked -> n), the size that comes closest."""
    length, k = task.length, decoding.candidates
    if not isinstance(k, int):
        raise ValueError("candidates=all: leaves no latents to schedule; use a number")

    def total(latents: Callable[[int], int]) -> int:
        return sum(min(latents(left), max(0, left - k)) for left in range(1, length + 1))

    wanted = total(lambda left: length // 4)
    best = min(range(1, length + 1), key=lambda size: abs(total(shape(length, size)) - wanted))
    return replace(decoding, latents=shape(length, best))


def constant(length: int, size: int) -> Callable[[int], int]:
    """The same n throughout."""
    return lambda left: size


def a_share(length: int, size: int) -> Callable[[int], int]:
    """A share of what is masked."""
    return lambda left: left * size // length


def early(length: int, size: int) -> Callable[[int], int]:
    """All in the first steps, then none."""
    return lambda left: left if left > length - size else 0


def late(length: int, size: int) -> Callable[[int], int]:
    """None at first, all in the last steps."""
    return lambda left: left if left <= size else 0


VARIANTS: Names[Variant] = Names(
    "variant",
    {
        "plain": Variant(),
        "as printed": Variant(evaluation={"refresh": False}),
        **{f"{share:.0%} of the steps": Variant(share=share) for share in (0.125, 0.25, 0.5)},
        "elbo": Variant(training={"weight": "elbo"}),
        "target only": Variant(training={"targets": "next"}),
        **{f"k={k}": Variant(evaluation={"candidates": k}) for k in (1, 2, 4, 8, 16, "all")},
        "constant": Variant(adjust=partial(scheduled, constant)),
        "a share": Variant(adjust=partial(scheduled, a_share)),
        "early": Variant(adjust=partial(scheduled, early)),
        "late": Variant(adjust=partial(scheduled, late)),
        "random": Variant(evaluation={"latent_policy": "random"}),
        "of a unit": Variant(adjust=of_a_unit),
        "constrained": Variant(adjust=constrained),
        "constrained of a unit": Variant(adjust=constrained_of_a_unit),
        "most certain": Variant(adjust=partial(certain, 1)),
        "least certain": Variant(adjust=partial(certain, -1)),
        "relevant": Variant(evaluation={"latent_policy": "relevant"}),
        "watched": Variant(watched=True),
    },
)
