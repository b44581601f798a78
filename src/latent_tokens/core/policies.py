"""Latent policies: which masked tokens of a step become its latent tokens, and in what order.

A policy takes the step, and may take `draw`, which returns fresh noise as for an order. `nearest`
follows the decoding order. `relevant` ranks by the influence of positions on each other, which
`influence` measures.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.checks import refuse
from latent_tokens.core.denoiser import Denoiser
from latent_tokens.core.layout import next_layout
from latent_tokens.core.method import Method
from latent_tokens.core.order import (
    Draw,
    Noise,
    checked,
    draw_uniform,
    first_order,
    is_random,
    shuffle,
)


class PolicyInput(NamedTuple):
    """A decoding step before its latent tokens are chosen, one line per row: the input of a latent policy.

    Example:
        >>> Decoding(latents=2, latent_policy=lambda step: step.order).latents
        2
    """

    # Clean positions, candidates, other masked ones, those past the length
    order: Int[Tensor, "B L"]
    num_clean: Int[Tensor, " B"]
    num_masked: Int[Tensor, " B"]
    candidates: Int[Tensor, " B"]  # the number of candidates
    latents: Int[Tensor, " B"]  # the number of latent tokens
    tokens: Int[Tensor, "B L"]  # by position; MASK where masked

    @property
    def start(self) -> Int[Tensor, " B"]:
        """The index in the order at which the latent tokens begin."""
        return self.num_clean + self.candidates


Worth = Callable[[PolicyInput], Float[Tensor, "A L"]]
"""The worth of each position as a latent token."""
LatentPolicy = Callable[..., Int[Tensor, "B L"]]
"""(PolicyInput[, draw]) -> its order, with the masked tokens after the candidates rearranged.

The next n of them are the latent tokens.
"""


def nearest(step: PolicyInput) -> Int[Tensor, "B L"]:
    """Return the order unchanged: the latent tokens are the next n (Algorithm 5, line 8).

    Args:
        step: the step, before its latent tokens are chosen.

    Example:
        >>> Decoding(latents=4, latent_policy=nearest).latents
        4
    """
    return step.order


def random(step: PolicyInput, noise: Noise | Draw) -> Int[Tensor, "B L"]:
    """Return the order with the masked tokens after the candidates shuffled (Z_t of Algorithm 3).

    Args:
        step: the step, before its latent tokens are chosen.
        noise: one number per position, or a function that draws them.

    Example:
        >>> Decoding(latents=4, latent_policy=random).latents
        4
    """
    drawn = noise() if callable(noise) else noise
    return shuffle(step.order, step.start, drawn)


def rank_by(worth: Worth, name: str) -> LatentPolicy:
    """Return the latent policy that chooses the positions of highest worth.

    The best is last, where it attends to all others. Results record the name.
    """

    def by_worth(step: PolicyInput) -> Int[Tensor, "A L"]:
        values = worth_by_entry(step, worth(step))
        ranked = step.order.gather(1, values.argsort(dim=1, descending=True, stable=True))
        start, n = step.start[:, None], step.latents[:, None]
        index = torch.arange(ranked.shape[1], device=ranked.device)
        is_latent = (index >= start) & (index < start + n)
        return ranked.gather(1, torch.where(is_latent, 2 * start + n - 1 - index, index))

    by_worth.__name__ = name
    return by_worth


def worth_by_entry(step: PolicyInput, worth: Float[Tensor, "A L"]) -> Float[Tensor, "A L"]:
    """Return the worth of each entry of the order: infinite before the latents, -infinite past the length."""
    index = torch.arange(worth.shape[1], device=worth.device)
    values = worth.gather(1, step.order).masked_fill(index < step.start[:, None], torch.inf)
    return values.masked_fill(index >= (step.num_clean + step.num_masked)[:, None], -torch.inf)


def choose_latents(policy: LatentPolicy, step: PolicyInput, draw: Draw) -> Int[Tensor, "B L"]:
    """Return the order of a step with its latent tokens right after the candidates (Algorithm 5, line 8).

    Raises:
        ValueError: the policy does not return a permutation, or moves clean tokens or candidates.
    """
    order = policy(step, draw) if is_random(policy) else policy(step)
    if order is step.order:
        return order
    moved = checked(policy, order, step.order) != step.order
    index = torch.arange(order.shape[-1], device=order.device)
    fixed = (index < step.start[:, None]) | (index >= (step.num_clean + step.num_masked)[:, None])
    if (moved & fixed).any():
        raise ValueError(
            "latent_policy: it moved clean tokens, candidates or positions past a row's length, and "
            "only masked tokens after these may move"
        )
    return order


# Influence is rounded to this many integers: their sums are exact, and the same in any batch.
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

    Row j and column i is the change at position j when position i becomes clean, in nats. It is the
    mean Kullback-Leibler divergence of the prediction with that token from the one without, over
    complete sequences, orders of the method and numbers of clean tokens. Pairs that never came up
    have 0.

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
        problem = "it predicts the next token only"
        refuse("influence with a shifted readout", problem, "another method")
    tokens = tokens.long()
    batch, length = tokens.shape
    lengths = torch.full((batch,), length, device=tokens.device) if lengths is None else lengths
    known = known & (torch.arange(length, device=tokens.device) < lengths[:, None])
    draw = partial(draw_uniform, generator, tokens.device, batch, length)
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
            # MASK is excluded from both, as minus infinity.
            change = (predicted - earlier[:, : predicted.shape[1]]).nan_to_num()
            divergence = (predicted.exp() * change).sum(-1)  # (B, S)
            from_end = (length - lengths)[:, None]
            last_decoded = order.gather(1, (num_clean[:, None] - 1).clamp(min=0))
            pairs = ((layout.positions + from_end) * length + last_decoded + from_end)[both]
            kl_sum.index_add_(0, pairs, divergence[both])
            count.index_add_(0, pairs, torch.ones_like(pairs, dtype=count.dtype))
        padded = F.pad(predicted, (0, 0, 0, length - predicted.shape[1]))
        before = padded, layout.num_shown
        num_clean = (num_clean + 1).minimum(lengths)
        report(1)
    mean: Tensor = kl_sum / count.clamp(min=1)
    return mean.reshape(length, length)


def relevant(relation: Tensor, name: str = "relevant") -> LatentPolicy:
    """Return the latent policy that selects the masked positions of highest relevance.

    Relevance is (influence of the clean tokens on the position + 1) x (its influence on the
    candidates). The 1 decides if no token is clean.

    Args:
        relation: Float[L, L], the influence of position i (column) on position j (row), 0 for none:
            from `influence`, or 1 for two cells that share a unit. Both are counted from the end.
        name: what results record as the policy.

    Raises:
        ValueError: the relation is not square, is negative, or is 0 everywhere.

    Example:
        >>> Decoding(latents=4, latent_policy=relevant(torch.ones(36, 36))).latents
        4
    """
    levels = quantize(relation)
    return rank_by(
        lambda step: support_of_candidates(levels, step) * (1 + support_from_clean(levels, step)),
        name,
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
