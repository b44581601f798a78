"""In which order positions are decoded. An order is a permutation a row: what is clean first, as decoded, then what is masked.

Noise is uniform in [0, 1), one line a row; a 1 stands where a line has ended, and leaves its entry where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Order = Callable[..., Int[Tensor, "B L"]]
Noise = Float[Tensor, "B N"]


def left_to_right(known: Bool[Tensor, "B L"]) -> Int[Tensor, "B L"]:
    """Known positions first, then the others, both ascending."""
    return (~known).int().argsort(dim=1, stable=True)


def any_order(known: Bool[Tensor, "B L"], noise: Noise) -> Int[Tensor, "B L"]:
    """Known positions first and ascending, then the others as the noise shuffles them."""
    return shuffle(left_to_right(known), known.sum(1), noise)


def given(schedule: Sequence[int] | Tensor) -> Order:
    """The order that follows `schedule`: one permutation of 0..L-1 for all rows, or one a row. Known positions move to its front.

    Raises ValueError where it is no permutation or, when it is followed, of another length.
    """
    wanted = torch.as_tensor(schedule)
    wanted = wanted[None] if wanted.dim() == 1 else wanted
    if not is_permutation(wanted):
        raise ValueError(f"schedule={schedule}: must name each position 0..{wanted.shape[1] - 1} exactly once")

    def follow_schedule(known: Bool[Tensor, "B L"]) -> Int[Tensor, "B L"]:
        if wanted.shape[1] != known.shape[1] or len(wanted) not in (1, len(known)):
            raise ValueError(
                f"schedule of shape {tuple(wanted.shape)} for known of shape {tuple(known.shape)}: needs one line, or one a row, of its length"
            )
        order = wanted.to(known.device).expand_as(known)
        return order.gather(1, left_to_right(known.gather(1, order)))

    return follow_schedule


class Showing(NamedTuple):
    """What a latent policy is asked about, a line a row: a decoding step before its latents are chosen."""

    order: Int[Tensor, "B L"]  # clean positions, candidates, the other masked ones, then those past the row's length
    num_clean: Int[Tensor, " B"]
    num_masked: Int[Tensor, " B"]
    candidates: Int[Tensor, " B"]  # how many of the masked are decoded from in this step
    latents: Int[Tensor, " B"]  # how many of the others are shown
    tokens: Int[Tensor, "B L"]  # by position; MASK where undecoded

    @property
    def start(self) -> Int[Tensor, " B"]:
        """Where in the order the latents begin."""
        return self.num_clean + self.candidates


LatentPolicy = Callable[..., Int[Tensor, "B L"]]
"""Showing -> its order, rearranged among the masked that are no candidates: the next n are shown, in this order."""


def nearest(showing: Showing) -> Int[Tensor, "B L"]:
    """The latent policy that shows the next n of the order after the candidates (Algorithm 5, line 8)."""
    return showing.order


def random(showing: Showing, noise: Noise) -> Int[Tensor, "B L"]:
    """The latent policy that shows any n of those after the candidates, afresh at each step (Z_t of Algorithm 3)."""
    return shuffle(showing.order, showing.start, noise)


def follow(rule: Order, known: Bool[Tensor, "B L"], draw: Callable[[], Noise]) -> Int[Tensor, "B L"]:
    """The order that a rule makes of what is known. `any_order` is handed noise; every other rule is a function of `known`.

    Raises ValueError where a rule gives no permutation.
    """
    return rule(known, draw()) if rule is any_order else checked(rule, rule(known), known)


def arrange(policy: LatentPolicy, showing: Showing, draw: Callable[[], Noise]) -> Int[Tensor, "B L"]:
    """The order that a latent policy makes of a step. `random` is handed fresh noise; every other policy is a function of the step.

    Raises ValueError where a policy gives no permutation, or moves more than masked tokens that are no candidates.
    """
    if policy is random:
        return random(showing, draw())
    found = policy(showing)
    if found is showing.order:
        return found
    index, moved = torch.arange(found.shape[-1], device=found.device), checked(policy, found, showing.order) != showing.order
    fixed = (index < showing.start[:, None]) | (index >= (showing.num_clean + showing.num_masked)[:, None])
    if (moved & fixed).any():
        raise ValueError("latent_policy moved clean tokens, candidates or what is past a row's length: only masked tokens after these may move")
    return found


def checked(rule: Callable[..., Tensor], order: Tensor, like: Tensor) -> Int[Tensor, "B L"]:
    """What a rule gave. Raises ValueError where it is no permutation for each row."""
    if order.shape != like.shape or not is_permutation(order):
        raise ValueError(f"{getattr(rule, '__name__', rule)}: must give a permutation of 0..{like.shape[1] - 1} for each row")
    return order


def first_order(rule: Order, known: Bool[Tensor, "B L"], lengths: Int[Tensor, " B"], draw: Callable[[], Noise]) -> Int[Tensor, "B L"]:
    """The schedule to begin with: known positions, then the others as the rule has them, then those past a row's length."""
    outside = torch.arange(known.shape[1], device=known.device) >= lengths[:, None]
    order = follow(rule, known | outside, draw)
    part = 2 * outside.int() + (~known).int()
    return order.gather(1, part.gather(1, order).argsort(dim=1, stable=True))


def shuffle(order: Int[Tensor, "B L"], start: Int[Tensor, " B"], noise: Noise) -> Int[Tensor, "B L"]:
    """`order` with its entries from `start` on sorted by that row's noise."""
    index = torch.arange(order.shape[1], device=order.device) - start[:, None]
    padded = torch.cat([noise, noise.new_ones(len(noise), 1)], dim=1)
    drawn = padded.gather(1, index.clamp(0, noise.shape[1]))
    # what stands before `start` keeps its negative index as its key, so it stays in front and in order
    return order.gather(1, torch.where(index < 0, index.to(noise.dtype), drawn).argsort(dim=1, stable=True))


def promote(order: Int[Tensor, "B L"], num_clean: Int[Tensor, " B"], chosen: Int[Tensor, "B T"], count: Int[Tensor, " B"]) -> Int[Tensor, "B L"]:
    """`order` with its entries `chosen` moved to index num_clean; those passed over shift right (Algorithm 4, line 10).

    chosen: indices into the order, of which the first count[b] of row b hold.
    """
    length = order.shape[1]
    index = torch.arange(length + 1, device=order.device).expand(len(order), -1)
    rank = torch.arange(chosen.shape[1], device=order.device).expand_as(chosen)
    key = torch.where(index < num_clean[:, None], index, 2 * length + index)
    # a chosen entry that does not hold goes to the extra column `length`, which is cut off
    key = key.scatter(1, torch.where(rank < count[:, None], chosen, length), length + rank)
    return order.gather(1, key[:, :length].argsort(dim=1))


def is_permutation(order: Tensor) -> bool:
    """Whether each row of `order` names each of 0..L-1 exactly once."""
    return bool((order.sort(dim=1).values == torch.arange(order.shape[1], device=order.device)).all())
