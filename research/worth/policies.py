"""Latent policies by the distance in the sequence to the closest candidate."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latent_tokens import PolicyInput
from latent_tokens.core.order import Draw, Noise, noise_by_entry
from latent_tokens.core.policies import worth_by_entry


def adjacent(step: PolicyInput) -> Int[Tensor, "B L"]:
    """Return the order with those n masked tokens first whose positions are closest to a candidate's.

    Of two at the same distance it takes the one that is next in the order.
    """
    return take(step, -distance(step).double())


def distant(step: PolicyInput) -> Int[Tensor, "B L"]:
    """Return the order with those n masked tokens first whose positions are farthest from the candidates'.

    Of two at the same distance it takes the one that is next in the order.
    """
    return take(step, distance(step).double())


def decaying(step: PolicyInput, noise: Noise | Draw) -> Int[Tensor, "B L"]:
    """Return the order with n masked tokens first that are drawn by their distance to a candidate.

    They are drawn without replacement, at distance d with a probability proportional to exp(-(d / n)^2 / 2).
    So n is both the number of latent tokens and the width of the bell curve, whose shape is that of DPad
    (Chen et al., 2025, arXiv:2508.14148).
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
