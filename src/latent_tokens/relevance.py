"""Which latents matter: how much positions tell the model of each other, and the latent policy that goes by it.

Positions are counted from the end of a row, so that an answer's cells are the same ones however long its prompt is.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.layout import next_layout
from latent_tokens.methods import Denoiser, Method
from latent_tokens.order import LatentPolicy, Showing, first_order

Worth = Callable[[Showing], Float[Tensor, "A L"]]
"""What each position would be worth as a latent."""

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
    method and numbers of clean tokens; 0 for a pair that never came up. Entry L - 1 is a row's last position. At most L forward
    passes of B rows; `report` hears of each. Raises ValueError for a shifted readout, whose slots are no predictions of masked tokens.
    """
    if method.readout == "shifted":
        raise ValueError("influence with a shifted readout: it predicts the next token alone, and has no latents; use another method")
    tokens, (batch, length) = tokens.long(), tokens.shape
    lengths = torch.full((batch,), length, device=tokens.device) if lengths is None else lengths
    known = known & (torch.arange(length, device=tokens.device) < lengths[:, None])

    def draw() -> Float[Tensor, "B L"]:
        return torch.rand(batch, length, generator=generator, device=generator.device, dtype=torch.float64).to(tokens.device)

    order, clean, before = first_order(method.order, known, lengths, draw), known.sum(1), None
    gained, seen = torch.zeros(2, length * length, dtype=torch.float64, device=tokens.device)
    while (clean < lengths).any():
        layout = next_layout(order, clean, method.room(lengths - clean), torch.zeros_like(clean))
        now = method.logits(net, tokens, layout).double().log_softmax(-1)  # (B, S, V); slot s stands for entry s of the order
        if before is not None:
            told, shown = before
            both = layout.shown & ~layout.clean & (layout.slots < shown[:, None])
            divergence = (now.exp() * (now - told[:, : now.shape[1]]).nan_to_num()).sum(-1)  # (B, S); MASK is ruled out in both
            from_end = (length - lengths)[:, None]
            pairs = ((layout.positions + from_end) * length + order.gather(1, (clean[:, None] - 1).clamp(min=0)) + from_end)[both]
            gained.index_add_(0, pairs, divergence[both])
            seen.index_add_(0, pairs, torch.ones_like(pairs, dtype=seen.dtype))
        before, clean = (padded(now, length), layout.num_shown), (clean + 1).minimum(lengths)
        report(1)
    mean: Tensor = gained / seen.clamp(min=1)
    return mean.reshape(length, length)


def padded(values: Float[Tensor, "B S V"], length: int) -> Float[Tensor, "B L V"]:
    """The values with slots of 0 up to a length."""
    return torch.nn.functional.pad(values, (0, 0, 0, length - values.shape[1]))


def by_worth(worth: Worth, name: str) -> LatentPolicy:
    """The latent policy that shows those of most worth, the best of them last: next to the candidates, where it sees the others."""

    def most_worthy(showing: Showing) -> Int[Tensor, "A L"]:
        order, start, n = showing.order, showing.start[:, None], showing.latents[:, None]
        index, end = torch.arange(order.shape[1], device=order.device), (showing.num_clean + showing.num_masked)[:, None]
        values = worth(showing).gather(1, order).masked_fill(index < start, torch.inf).masked_fill(index >= end, -torch.inf)
        ranked = order.gather(1, values.argsort(dim=1, descending=True, stable=True))
        return ranked.gather(1, torch.where((index >= start) & (index < start + n), 2 * start + n - 1 - index, index))

    most_worthy.__name__ = name  # as rows of results say it
    return most_worthy


def relevant(relation: Tensor, name: str = "relevant") -> LatentPolicy:
    """The latent policy that shows those of which the clean tokens tell most and that themselves tell most of the candidates.

    relation R, Float[L, L]: what position i (column) tells of position j (row), 0 for nothing: `influence`, or 1 where two cells
    share a unit; both counted from the end. The worth of z is (sum of R[c, z] over candidates c) (1 + sum of R[z, i] over clean i),
    with R in whole numbers up to 2^16: the 1 decides where nothing is clean. Raises ValueError for a relation that is not square,
    negative, or nothing but 0.
    """
    told = in_levels(relation)
    return by_worth(lambda showing: tells_candidates(told, showing) * (1 + told_by_clean(told, showing)), name)


def in_levels(relation: Tensor) -> Float[Tensor, "L L"]:
    """A relation in whole numbers. Raises ValueError where it is none."""
    square = relation.dim() == 2 and len(relation) == relation.shape[1] > 0
    if not square or not (relation >= 0).all() or not 0 < float(relation.max()) < torch.inf:
        raise ValueError(f"relation of shape {tuple(relation.shape)}: must be square, finite, 0 or more, and more than 0 somewhere")
    return (relation.double() / relation.max() * (LEVELS - 1)).round()


def told_by_clean(relation: Tensor, showing: Showing) -> Float[Tensor, "A L"]:
    """How much the clean positions together tell of each position."""
    return summed(relation.T, showing, torch.zeros_like(showing.num_clean), showing.num_clean)


def tells_candidates(relation: Tensor, showing: Showing) -> Float[Tensor, "A L"]:
    """How much each position tells of the candidates together."""
    return summed(relation, showing, showing.num_clean, showing.start)


def summed(relation: Tensor, showing: Showing, start: Int[Tensor, " A"], stop: Int[Tensor, " A"]) -> Float[Tensor, "A L"]:
    """For each position the sum of its column over the rows of those that stand at start..stop-1 of the order; 0 past a row's length.

    Raises ValueError where the relation is of another length.
    """
    order, length = showing.order, showing.order.shape[1]
    if len(relation) != length:
        raise ValueError(f"relation of {len(relation)} positions for sequences of {length}: must be one of these")
    index, from_end = torch.arange(length, device=order.device), length - (showing.num_clean + showing.num_masked)[:, None]
    within = (index >= start[:, None]) & (index < stop[:, None])
    marked = torch.zeros_like(order, dtype=relation.dtype).scatter(1, (order + from_end) % length, within.to(relation.dtype))
    sums = marked @ relation.to(order.device)  # (A, L), counted from the end
    inside = index < length - from_end
    return sums.gather(1, (index + from_end).clamp(max=length - 1)).masked_fill(~inside, 0)
