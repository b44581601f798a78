"""Latent policies: which masked tokens of a step become its latent tokens, and in what order.

A policy takes the step, and may take `draw`, which returns fresh noise as for an order. `nearest` follows the
decoding order. `adjacent`, `distant` and `decaying` go by the positions in the sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latent_tokens.core.order import Draw, Noise, checked, noise_by_entry, shuffle


class PolicyInput(NamedTuple):
    """A decoding step before its latent tokens are chosen, one line per row: the input of a latent policy.

    Example:
        >>> Decoding(latents=2, latent_policy=lambda step: step.order).latents
        2
    """

    order: Int[Tensor, "B L"]  # clean positions, candidates, other masked ones, those past the row's length
    num_clean: Int[Tensor, " B"]
    num_masked: Int[Tensor, " B"]
    candidates: Int[Tensor, " B"]  # the number of candidates
    latents: Int[Tensor, " B"]  # the number of latent tokens
    tokens: Int[Tensor, "B L"]  # by position; MASK where masked

    @property
    def start(self) -> Int[Tensor, " B"]:
        """The index in the order at which the latent tokens begin."""
        return self.num_clean + self.candidates


Showing = PolicyInput  # the name in version 0.1

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


def adjacent(step: PolicyInput) -> Int[Tensor, "B L"]:
    """Return the order with those n masked tokens first whose positions are closest to a candidate's.

    Of two at the same distance it takes the one that is next in the order.

    Args:
        step: the step, before its latent tokens are chosen.

    Example:
        >>> Decoding(latents=4, latent_policy=adjacent).latents
        4
    """
    return take(step, -distance(step).double())


def distant(step: PolicyInput) -> Int[Tensor, "B L"]:
    """Return the order with those n masked tokens first whose positions are farthest from the candidates'.

    Of two at the same distance it takes the one that is next in the order.

    Args:
        step: the step, before its latent tokens are chosen.

    Example:
        >>> Decoding(latents=4, latent_policy=distant).latents
        4
    """
    return take(step, distance(step).double())


def decaying(step: PolicyInput, noise: Noise | Draw) -> Int[Tensor, "B L"]:
    """Return the order with n masked tokens first that are drawn by their distance to a candidate.

    They are drawn without replacement, at distance d with a probability proportional to exp(-(d / n)^2 / 2).
    So n is both the number of latent tokens and the width of the bell curve, whose shape is that of DPad
    (Chen et al., 2025, arXiv:2508.14148).

    Args:
        step: the step, before its latent tokens are chosen.
        noise: one number per masked token that is not a candidate, or a function that draws them.

    Example:
        >>> Decoding(latents=4, latent_policy=decaying).latents
        4
    """
    drawn = noise() if callable(noise) else noise
    index = torch.arange(step.order.shape[1], device=drawn.device) - step.start[:, None]
    # The n largest log-probabilities with Gumbel noise are a draw without replacement.
    by_entry = -(-noise_by_entry(drawn, index).log()).log()
    by_position = torch.zeros_like(by_entry).scatter(1, step.order, by_entry)
    width = step.latents.clamp(min=1)[:, None]
    return take(step, by_position - (distance(step) / width) ** 2 / 2)


def distance(step: PolicyInput) -> Int[Tensor, "A L"]:
    """Return the number of positions from each position to the closest candidate."""
    length = step.order.shape[1]
    most = int(step.candidates.max())
    # A row with fewer candidates repeats its last.
    rank = torch.arange(most, device=step.order.device).minimum(step.candidates[:, None] - 1)
    candidates = step.order.gather(1, step.num_clean[:, None] + rank)  # (A, K)
    positions = torch.arange(length, device=step.order.device)
    return (positions[:, None] - candidates[:, None, :]).abs().amin(-1)


def take(step: PolicyInput, worth: Float[Tensor, "A L"]) -> Int[Tensor, "B L"]:
    """Return the order with the n positions of highest worth as latent tokens, which keep their order."""
    by_worth = worth_by_entry(step, worth).argsort(dim=1, descending=True, stable=True)
    index = torch.arange(worth.shape[1], device=worth.device).expand_as(by_worth)
    rank = torch.zeros_like(by_worth).scatter(1, by_worth, index)
    is_not_chosen = rank >= (step.start + step.latents)[:, None]
    return step.order.gather(1, is_not_chosen.int().argsort(dim=1, stable=True))


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


def choose_latents(policy: LatentPolicy, step: PolicyInput, draw: Draw | None) -> Int[Tensor, "B L"]:
    """Return the order of a step with its latent tokens right after the candidates (Algorithm 5, line 8).

    Args:
        policy: which masked tokens become latent tokens.
        step: the step.
        draw: the second argument of the policy. None: it takes one.

    Raises:
        ValueError: the policy does not return a permutation, or moves clean tokens or candidates.
    """
    order = policy(step) if draw is None else policy(step, draw)
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
