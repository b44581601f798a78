"""Latent policies: which masked tokens of a step become its latent tokens, and in what order.

A policy takes the step, and may take `draw`, which returns fresh noise as for an order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from latent_tokens.core.order import Draw, Noise, checked, shuffle


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
