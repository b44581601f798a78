"""Several tokens a step: how many each step decodes (appendix C, planned decoding schedules)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latent_tokens.core.order import Noise, Order, given

Partition = Callable[[Bool[Tensor, "B L"], Noise], Int[Tensor, "B T"]]
"""(open, noise) -> how many of a row's open positions each of T steps decodes; empty steps are left out."""


def equal_parts(steps: int) -> Partition:
    """T = `steps` parts whose sizes differ by one at most. Raises ValueError for fewer than one step."""
    check_steps(steps)

    def sizes(open: Bool[Tensor, "B L"], noise: Noise) -> Int[Tensor, "B T"]:
        ends = open.sum(1)[:, None] * torch.arange(steps + 1, device=open.device) // steps
        return ends.diff(dim=1)

    return sizes


def reverse_process(steps: int) -> Partition:
    """The random partition that the reverse process with T = `steps` induces: each position is unmasked at a uniform step."""
    check_steps(steps)

    def sizes(open: Bool[Tensor, "B L"], noise: Noise) -> Int[Tensor, "B T"]:
        drawn = (noise * steps).long()  # the noise's closing ones become `steps`, a column of their own
        counts = torch.zeros(len(noise), steps + 1, dtype=torch.int64, device=open.device)
        return counts.scatter_add(1, drawn, torch.ones_like(drawn))[:, :steps]

    return sizes


def given_partition(sets: Sequence[Sequence[int]]) -> tuple[Order, Partition]:
    """The `order` and the `tokens_per_step` of a Decoding that decodes exactly the positions of sets[t] at step t.

    Known positions drop out of their set. Raises ValueError where the sets are no partition of 0..L-1.
    """
    schedule = torch.tensor([position for part in sets for position in part])
    step_of = torch.repeat_interleave(torch.arange(len(sets)), torch.tensor([len(part) for part in sets]))

    def sizes(open: Bool[Tensor, "B L"], noise: Noise) -> Int[Tensor, "B T"]:
        still_open = open[:, schedule.to(open.device)].long()
        counts = torch.zeros(len(open), len(sets), dtype=torch.int64, device=open.device)
        return counts.scatter_add(1, step_of.to(open.device).expand_as(still_open), still_open)

    return given(schedule), sizes


def sizes_of_steps(
    tokens_per_step: int | Partition, open: Bool[Tensor, "B L"], draw: Callable[[], Noise]
) -> Int[Tensor, "B T"]:
    """How many tokens each step of a row decodes, its empty steps left out. Raises ValueError where some positions are never decoded."""
    if isinstance(tokens_per_step, int):
        steps = -(-max(open.sum(1).tolist(), default=0) // tokens_per_step)
        return torch.full((len(open), steps), tokens_per_step, device=open.device)
    sizes = tokens_per_step(open, draw())
    if (sizes < 0).any() or (sizes.sum(1) < open.sum(1)).any():
        raise ValueError(
            f"tokens_per_step gives steps of {sizes.tolist()} tokens: a row's steps must add up to its open positions"
        )
    return sizes.gather(1, (sizes == 0).int().argsort(dim=1, stable=True))


def check_steps(steps: int) -> None:
    """Raises ValueError for fewer than one step."""
    if steps < 1:
        raise ValueError(f"steps={steps}: decoding takes at least 1 step")
