"""Relevance of latent tokens: the influence of positions on each other, and a latent policy that ranks by it.

Positions are counted from the end of a row, so that the cells of an answer are the same ones however long its
prompt is.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.core.layout import next_layout
from latent_tokens.core.methods import Denoiser, Method
from latent_tokens.core.order import first_order
from latent_tokens.core.policies import LatentPolicy, PolicyInput, rank_by

# Influence is rounded to this many integers. Their sums are exact, so a row does not depend on its batch.
LEVELS = 1 << 16


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
    """Measure how much the prediction at one position changes when the token at another becomes clean.

    Row j and column i is the change at position j when position i becomes clean, in nats. It is the mean
    Kullback-Leibler divergence of the prediction with that token from the one without, over complete
    sequences, orders of the method and numbers of clean tokens. Pairs that never came up have 0.

    Args:
        net: the network.
        method: how it was trained.
        tokens: complete sequences.
        known: true at given positions.
        generator: draws the orders.
        lengths: the length of each row.
        report: called after every forward pass with 1. There are at most L passes of B rows.

    Returns:
        Nats by position, counted from the end: entry L - 1 is a row's last position.

    Raises:
        ValueError: the readout is shifted, so that no slot predicts a masked token.

    Example:
        >>> tokens, known, _ = as_tensors(task.generate(2, seed=0))
        >>> influence(net, net.method, tokens, known, torch.Generator().manual_seed(0)).shape
        torch.Size([36, 36])
    """
    if method.readout == "shifted":
        raise ValueError(
            "influence with a shifted readout: it predicts the next token only, so it has no latent tokens. "
            "Use another method."
        )
    tokens = tokens.long()
    batch, length = tokens.shape
    lengths = torch.full((batch,), length, device=tokens.device) if lengths is None else lengths
    known = known & (torch.arange(length, device=tokens.device) < lengths[:, None])

    def draw() -> Float[Tensor, "B L"]:
        noise = torch.rand(batch, length, generator=generator, device=generator.device, dtype=torch.float64)
        return noise.to(tokens.device)

    order = first_order(method.order, known, lengths, draw)
    num_clean = known.sum(1)
    kl_sum = torch.zeros(length * length, dtype=torch.float64, device=tokens.device)
    count = torch.zeros_like(kl_sum)
    before = None
    while (num_clean < lengths).any():
        num_masked = method.num_visible(order, num_clean, lengths)
        layout = next_layout(order, num_clean, num_masked, torch.zeros_like(num_clean))
        # Slot s holds entry s of the order, so predictions of two steps are compared slot by slot.
        predicted = method.logits(net, tokens, layout).double().log_softmax(-1)  # (B, S, V)
        if before is not None:
            earlier, num_shown = before
            both = layout.shown & ~layout.clean & (layout.slots < num_shown[:, None])
            change = (predicted - earlier[:, : predicted.shape[1]]).nan_to_num()  # MASK is excluded from both
            divergence = (predicted.exp() * change).sum(-1)  # (B, S)
            from_end = (length - lengths)[:, None]
            last_decoded = order.gather(1, (num_clean[:, None] - 1).clamp(min=0))
            pairs = ((layout.positions + from_end) * length + last_decoded + from_end)[both]
            kl_sum.index_add_(0, pairs, divergence[both])
            count.index_add_(0, pairs, torch.ones_like(pairs, dtype=count.dtype))
        before = pad_slots(predicted, length), layout.num_shown
        num_clean = (num_clean + 1).minimum(lengths)
        report(1)
    mean: Tensor = kl_sum / count.clamp(min=1)
    return mean.reshape(length, length)


def pad_slots(values: Float[Tensor, "B S V"], length: int) -> Float[Tensor, "B L V"]:
    """Pad the slots with 0 up to a length."""
    return torch.nn.functional.pad(values, (0, 0, 0, length - values.shape[1]))


def relevant(relation: Tensor, name: str = "relevant") -> LatentPolicy:
    """Return the latent policy that selects the masked positions of highest relevance.

    Relevance is (influence of the clean tokens on the position + 1) x (its influence on the candidates). The
    1 decides if no token is clean.

    Args:
        relation: Float[L, L], the influence of position i (column) on position j (row), 0 for none: from
            `influence`, or 1 for two cells that share a unit. Both are counted from the end.
        name: what results record as the policy.

    Raises:
        ValueError: the relation is not square, is negative, or is 0 everywhere.

    Example:
        >>> Decoding(latents=4, latent_policy=relevant(torch.ones(36, 36))).latents
        4
    """
    levels = quantize(relation)
    return rank_by(
        lambda step: support_of_candidates(levels, step) * (1 + support_from_clean(levels, step)), name
    )


def quantize(relation: Tensor) -> Float[Tensor, "L L"]:
    """Round a relation to integers up to LEVELS - 1. Raises ValueError if it is not a relation."""
    square = relation.dim() == 2 and len(relation) == relation.shape[1] > 0
    if not square or not (relation >= 0).all() or not 0 < float(relation.max()) < torch.inf:
        shape = tuple(relation.shape)
        raise ValueError(
            f"relation of shape {shape}: must be square, finite, 0 or more, and more than 0 somewhere"
        )
    return (relation.double() / relation.max() * (LEVELS - 1)).round()


def support_from_clean(relation: Tensor, step: PolicyInput) -> Float[Tensor, "A L"]:
    """Return the influence of all clean positions together on each position."""
    return summed(relation.T, step, torch.zeros_like(step.num_clean), step.num_clean)


def support_of_candidates(relation: Tensor, step: PolicyInput) -> Float[Tensor, "A L"]:
    """Return the influence of each position on all candidates together."""
    return summed(relation, step, step.num_clean, step.start)


def summed(
    relation: Tensor, step: PolicyInput, start: Int[Tensor, " A"], stop: Int[Tensor, " A"]
) -> Float[Tensor, "A L"]:
    """Sum each position's column over the rows of the positions at start..stop-1 of the order.

    Past a row's length it is 0.

    Raises:
        ValueError: the relation has another length.
    """
    order = step.order
    length = order.shape[1]
    if len(relation) != length:
        raise ValueError(
            f"relation of {len(relation)} positions for sequences of {length}: must be one of these"
        )
    index = torch.arange(length, device=order.device)
    from_end = length - (step.num_clean + step.num_masked)[:, None]
    within = (index >= start[:, None]) & (index < stop[:, None])
    marked = torch.zeros_like(order, dtype=relation.dtype)
    marked = marked.scatter(1, (order + from_end) % length, within.to(relation.dtype))
    sums = marked @ relation.to(order.device)  # (A, L), counted from the end
    inside = index < length - from_end
    return sums.gather(1, (index + from_end).clamp(max=length - 1)).masked_fill(~inside, 0)
