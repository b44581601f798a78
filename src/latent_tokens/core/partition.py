"""Several tokens per step: how many tokens each step decodes (appendix C, planned decoding schedules)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latent_tokens.checks import check_int
from latent_tokens.core.order import Noise, Order, given

Partition = Callable[[Bool[Tensor, "B L"], Noise], Int[Tensor, "B T"]]
"""(masked, noise) -> how many masked positions of a row each of T steps decodes. Steps of 0 are left out."""


def equal_parts(steps: int) -> Partition:
    """Return the partition into T = `steps` parts whose sizes differ by at most 1.

    Args:
        steps: the number of steps T.

    Raises:
        ValueError: `steps` is not a whole number from 1.

    Example:
        >>> equal_parts(2)(torch.ones(1, 5, dtype=torch.bool), torch.rand(1, 5)).tolist()
        [[2, 3]]
    """
    check_int("steps", steps, 1)

    def sizes(masked: Bool[Tensor, "B L"], noise: Noise) -> Int[Tensor, "B T"]:
        ends = masked.sum(1)[:, None] * torch.arange(steps + 1, device=masked.device) // steps
        return ends.diff(dim=1)

    return sizes


def reverse_process(steps: int) -> Partition:
    """Return the random partition of the reverse process with T = `steps`: each position has a uniform step.

    Args:
        steps: the number of steps T.

    Raises:
        ValueError: `steps` is not a whole number from 1.

    Example:
        >>> reverse_process(2)(torch.ones(1, 3, dtype=torch.bool), torch.tensor([[0.1, 0.6, 0.7]])).tolist()
        [[1, 2]]
    """
    check_int("steps", steps, 1)

    def sizes(masked: Bool[Tensor, "B L"], noise: Noise) -> Int[Tensor, "B T"]:
        drawn = (noise * steps).long()  # a 1 that pads the noise is `steps`, which has its own column
        counts = torch.zeros(len(noise), steps + 1, dtype=torch.int64, device=masked.device)
        return counts.scatter_add(1, drawn, torch.ones_like(drawn))[:, :steps]

    return sizes


def given_partition(sets: Sequence[Sequence[int]]) -> tuple[Order, Partition]:
    """Return `order` and `tokens_per_step` of a Decoding that decodes the positions of sets[t] at step t.

    Known positions are left out of their set. `candidates` stays at 1: a step with more candidates than its
    set has positions decodes the most confident, which may be of later sets.

    Args:
        sets: the positions that each step decodes.

    Raises:
        ValueError: the sets are not a partition of 0..L-1.

    Example:
        >>> order, sizes = given_partition([range(18, 36), range(18)])
        >>> known = torch.zeros(1, 36, dtype=torch.bool)
        >>> samples = generate(net, net.method, known.long(), known, order=order, tokens_per_step=sizes)
        >>> samples.forward_passes, samples.order[0, :3].tolist()
        (2, [18, 19, 20])
    """
    schedule = torch.tensor([position for part in sets for position in part])
    step_of = torch.repeat_interleave(torch.arange(len(sets)), torch.tensor([len(part) for part in sets]))

    def sizes(masked: Bool[Tensor, "B L"], noise: Noise) -> Int[Tensor, "B T"]:
        # (B, L): 1 at each masked entry of the schedule
        in_order = masked[:, schedule.to(masked.device)].long()
        counts = torch.zeros(len(masked), len(sets), dtype=torch.int64, device=masked.device)
        return counts.scatter_add(1, step_of.to(masked.device).expand_as(in_order), in_order)

    return given(schedule), sizes


def sizes_of_steps(
    tokens_per_step: int | Partition, masked: Bool[Tensor, "B L"], draw: Callable[[], Noise]
) -> Int[Tensor, "B T"]:
    """Return how many tokens each step of a row decodes, without steps of 0 tokens before others.

    Args:
        tokens_per_step: a number for every step, or a partition.
        masked: true at positions to decode.
        draw: returns the noise of a partition.

    Raises:
        ValueError: the steps of a row decode fewer tokens than are masked.
    """
    num_masked = masked.sum(1)
    if isinstance(tokens_per_step, int):
        steps = -(-max(num_masked.tolist(), default=0) // tokens_per_step)
        return torch.full((len(masked), steps), tokens_per_step, device=masked.device)
    sizes = tokens_per_step(masked, draw())
    if (sizes < 0).any() or (sizes.sum(1) < num_masked).any():
        raise ValueError(
            f"tokens_per_step gives steps of {sizes.tolist()} tokens: "
            "a row's steps must add up to its masked positions"
        )
    return sizes.gather(1, (sizes == 0).int().argsort(dim=1, stable=True))
