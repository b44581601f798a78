"""Which latents matter: how much positions tell the model of each other, and the latent policy that goes by it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.layout import next_layout
from latent_tokens.methods import Denoiser, Method
from latent_tokens.order import LatentPolicy, first_order

Worth = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(order, num_clean, candidates, tokens), a line a row -> what each position would be worth as a latent, Float[A, L]."""

LEVELS = 1 << 16  # a relation is rounded to so many whole numbers: their sums are exact, so that a row does not depend on its batch


@torch.no_grad()
def influence(
    net: Denoiser,
    method: Method,
    tokens: Int[Tensor, "B L"],
    known: Bool[Tensor, "B L"],
    generator: torch.Generator,
    *,
    lengths: Int[Tensor, " B"] | None = None,
    report: Callable[[int], None] = lambda passes: None,
) -> Float[Tensor, "L L"]:
    """What the model's prediction at position j (row) gains when the token at position i (column) becomes clean, in nats.

    The mean Kullback-Leibler divergence of the prediction with that token from the one without, over whole sequences, orders of the
    method and numbers of clean tokens; 0 for a pair that never came up. L forward passes of B rows. The same idea as the
    pairwise mutual information of the data, but as the model sees it, and so to be had for any task.
    """
    tokens, (batch, length) = tokens.long(), tokens.shape
    lengths = torch.full((batch,), length, device=tokens.device) if lengths is None else lengths
    draw = partial(torch.rand, batch, length, generator=generator, device=generator.device, dtype=torch.float64)
    order = first_order(method.order, known, lengths, lambda: draw().to(tokens.device))
    gained, seen = torch.zeros(2, length * length, dtype=torch.float64, device=tokens.device)
    clean, before = known.sum(1), None
    while (clean < lengths).any():
        layout = next_layout(order, clean, lengths - clean, torch.zeros_like(clean))
        now = method.logits(net, tokens, layout).double().log_softmax(-1)  # (B, S, V); slot s stands for entry s of the order
        if before is not None:
            divergence = (now.exp() * (now - before).nan_to_num()).sum(-1)  # (B, S); MASK is ruled out in both
            masked = layout.shown & ~layout.clean
            pairs = (layout.positions * length + order.gather(1, clean[:, None] - 1))[masked]
            gained.index_add_(0, pairs, divergence[masked])
            seen.index_add_(0, pairs, torch.ones_like(pairs, dtype=seen.dtype))
        before, clean = now, (clean + 1).minimum(lengths)
        report(1)
    mean: Tensor = gained / seen.clamp(min=1)
    return mean.reshape(length, length)


def by_worth(worth: Worth, name: str) -> LatentPolicy:
    """The latent policy that shows those of most worth, the best of them last: next to the candidates, where it sees the others."""

    def most_worthy(
        order: Int[Tensor, "A L"], num_clean: Int[Tensor, " A"], candidates: Int[Tensor, " A"], latents: Int[Tensor, " A"], tokens: Tensor
    ) -> Int[Tensor, "A L"]:
        index, start, n = torch.arange(order.shape[1], device=order.device), (num_clean + candidates)[:, None], latents[:, None]
        values = worth(order, num_clean, candidates, tokens).gather(1, order).masked_fill(index < start, torch.inf)
        ranked = order.gather(1, values.argsort(dim=1, descending=True, stable=True))
        return ranked.gather(1, torch.where((index >= start) & (index < start + n), 2 * start + n - 1 - index, index))

    most_worthy.__name__ = name  # as rows of results say it
    return most_worthy


def relevant(relation: Tensor) -> LatentPolicy:
    """The latent policy that shows those of which the clean tokens tell most and that themselves tell most of the candidates.

    relation, Float[L, L]: what position i (column) tells of position j (row), 0 for nothing: `influence`, or 1 where two cells
    share a unit. A latent is worth the product of what it is told and what it tells. Raises ValueError for a relation that is
    not square, negative, or nothing but 0.
    """
    told = in_levels(relation)

    def product(order: Int[Tensor, "A L"], num_clean: Int[Tensor, " A"], candidates: Int[Tensor, " A"], tokens: Tensor) -> Float[Tensor, "A L"]:
        return tells_candidates(told, order, num_clean, candidates) * (1 + told_by_clean(told, order, num_clean))

    return by_worth(product, "relevant")


def in_levels(relation: Tensor) -> Float[Tensor, "L L"]:
    """A relation in whole numbers. Raises ValueError where it is none."""
    if relation.dim() != 2 or len(relation) != relation.shape[1] or not (relation >= 0).all() or not 0 < float(relation.max()) < torch.inf:
        raise ValueError(f"relation of shape {tuple(relation.shape)}: must be square, finite, 0 or more, and more than 0 somewhere")
    return (relation.double() / relation.max() * (LEVELS - 1)).round()


def told_by_clean(relation: Tensor, order: Int[Tensor, "A L"], num_clean: Int[Tensor, " A"]) -> Float[Tensor, "A L"]:
    """How much the clean positions together tell of each position."""
    return marked(relation, order, torch.zeros_like(num_clean), num_clean) @ relation.T.to(order.device)


def tells_candidates(
    relation: Tensor, order: Int[Tensor, "A L"], num_clean: Int[Tensor, " A"], candidates: Int[Tensor, " A"]
) -> Float[Tensor, "A L"]:
    """How much each position tells of the candidates together."""
    return marked(relation, order, num_clean, num_clean + candidates) @ relation.to(order.device)


def marked(relation: Tensor, order: Int[Tensor, "A L"], start: Int[Tensor, " A"], stop: Int[Tensor, " A"]) -> Float[Tensor, "A L"]:
    """1 at the positions that stand at start..stop-1 of the order, else 0. Raises ValueError where the relation is of another length."""
    if len(relation) != order.shape[1]:
        raise ValueError(f"relation of {len(relation)} positions for sequences of {order.shape[1]}: must be one of these")
    index = torch.arange(order.shape[1], device=order.device)
    within = (index >= start[:, None]) & (index < stop[:, None])
    return torch.zeros_like(order, dtype=relation.dtype).scatter(1, order, within.to(relation.dtype))
