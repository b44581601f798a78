"""Decoding orders.

An order is a permutation of the positions per row: clean ones first, as decoded, then the masked
ones. A function that makes one takes the given positions, and may take `draw`, which returns fresh
noise: uniform in [0, 1), one line per row. Shorter lines end with 1, which leaves an entry where it is.

Blocks of positions, position // b, are decoded from left to right by `blockwise`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.checks import check_int, function_name, refuse

Noise = Float[Tensor, "B N"]
Draw = Callable[[], Noise]
Order = Callable[..., Int[Tensor, "B L"]]
"""(known[, draw]) -> a permutation per row.

If its attribute `refreshable` is true, `Decoding.refresh` reshuffles the masked positions after
each step.
"""


def draw_uniform(
    generator: torch.Generator, device: torch.device, *shape: int
) -> Float[Tensor, "*N"]:
    """Draw numbers in [0, 1) in float64, on the generator's device, and move them to another."""
    noise = torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64)
    return noise.to(device)


def left_to_right(known: Bool[Tensor, "B L"]) -> Int[Tensor, "B L"]:
    """Return the known positions, then the others, both ascending.

    Args:
        known: true at given positions.

    Example:
        >>> left_to_right(torch.tensor([[False, True, False]]))
        tensor([[1, 0, 2]])
    """
    return (~known).int().argsort(dim=1, stable=True)


def any_order(known: Bool[Tensor, "B L"], noise: Noise | Draw) -> Int[Tensor, "B L"]:
    """Return the known positions, ascending, then the others as the noise shuffles them.

    Args:
        known: true at given positions.
        noise: one number per position, or a function that draws them.

    Example:
        >>> any_order(torch.tensor([[False, True, False]]), torch.tensor([[0.9, 0.5, 0.1]]))
        tensor([[1, 2, 0]])
    """
    drawn = noise() if callable(noise) else noise
    return shuffle(left_to_right(known), known.sum(1), drawn)


# A uniform permutation stays one when its masked part is reshuffled.
any_order.refreshable = True  # type: ignore[attr-defined]


def given(schedule: Sequence[int] | Tensor) -> Order:
    """Return the order that follows `schedule`: one permutation of 0..L-1 for all rows, or one per row.

    Known positions come first.

    Args:
        schedule: Int[L] or Int[B, L], the positions in decoding order.

    Raises:
        ValueError: `schedule` is not a permutation of whole numbers or, when it is followed, has
            another length.

    Example:
        >>> given([2, 0, 1])(torch.tensor([[False, True, False]]))
        tensor([[1, 2, 0]])
    """
    positions = torch.as_tensor(schedule)
    positions = positions[None] if positions.dim() == 1 else positions
    if positions.is_floating_point() or not is_permutation(positions):
        raise ValueError(
            f"schedule={schedule}: must name each position 0..{positions.shape[1] - 1} exactly once"
        )

    def follow_schedule(known: Bool[Tensor, "B L"]) -> Int[Tensor, "B L"]:
        if positions.shape[1] != known.shape[1] or len(positions) not in (1, len(known)):
            raise ValueError(
                f"schedule of shape {tuple(positions.shape)} for known of shape {tuple(known.shape)}: "
                "needs one line, or one per row, of its length"
            )
        order = positions.to(known.device).expand_as(known)
        return order.gather(1, left_to_right(known.gather(1, order)))

    return follow_schedule


def is_random(rule: Callable[..., Tensor]) -> bool:
    """Return whether an order or a latent policy takes `draw` as its second argument."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(rule).parameters.values()
    return sum(p.kind in positional and p.default is p.empty for p in parameters) > 1


def is_left_to_right(order: Order) -> bool:
    """Return whether an order decodes the first masked position next, as tested on 3 and 64 positions."""
    if is_random(order):
        return False
    few = torch.tensor(list(product((False, True), repeat=3)), device="cpu")
    many = torch.zeros(1, 64, dtype=torch.bool, device="cpu")
    try:
        return all(torch.equal(order(known), left_to_right(known)) for known in (few, many))
    # An order for sequences of another length. Other errors are those of the order.
    except (ValueError, IndexError, RuntimeError):
        return False


def is_refreshable(order: Order) -> bool:
    """Return whether the masked part of an order may be reshuffled after a step (D-14, schedule refresh)."""
    return bool(getattr(order, "refreshable", False))


def first_order(
    rule: Order, known: Bool[Tensor, "B L"], lengths: Int[Tensor, " B"], draw: Draw
) -> Int[Tensor, "B L"]:
    """Return the order before the first step: known positions, others by the rule, those past the length.

    Raises:
        ValueError: the rule does not return a permutation per row.
    """
    outside = torch.arange(known.shape[1], device=known.device) >= lengths[:, None]
    given_positions = known | outside
    order = rule(given_positions, draw) if is_random(rule) else rule(given_positions)
    order = checked(rule, order, known)
    group = 2 * outside.int() + (~known).int()  # (B, L): 0 known, 1 masked, 2 and 3 past the length
    return order.gather(1, group.gather(1, order).argsort(dim=1, stable=True))


def checked(rule: Callable[..., Tensor], order: Tensor, like: Tensor) -> Int[Tensor, "B L"]:
    """Return the order that a rule made. Raises ValueError if it is not a permutation per row."""
    is_of_positions = isinstance(order, Tensor) and not order.is_floating_point()
    if not is_of_positions or order.shape != like.shape or not is_permutation(order):
        last = like.shape[1] - 1
        raise ValueError(
            f"{function_name(rule)}: must give a permutation of 0..{last} for each row"
        )
    return order


def shuffle(
    order: Int[Tensor, "B L"], start: Int[Tensor, " B"], noise: Noise
) -> Int[Tensor, "B L"]:
    """Sort each row's entries from index `start` on by that row's noise."""
    index = torch.arange(order.shape[1], device=order.device) - start[:, None]
    drawn = noise_by_entry(noise, index)
    key = torch.where(index < 0, index.to(noise.dtype), drawn)
    return order.gather(1, key.argsort(dim=1, stable=True))


def noise_by_entry(noise: Noise, index: Int[Tensor, "B L"]) -> Float[Tensor, "B L"]:
    """Return the noise of each entry whose number, from 0, is `index`. After the last number it is 1."""
    padded = torch.cat([noise, noise.new_ones(len(noise), 1)], dim=1)
    return padded.gather(1, index.clamp(0, noise.shape[1]))


def promote(
    order: Int[Tensor, "B L"],
    num_clean: Int[Tensor, " B"],
    chosen: Int[Tensor, "B T"],
    count: Int[Tensor, " B"],
) -> Int[Tensor, "B L"]:
    """Move chosen entries to index num_clean and shift those passed over to the right (Algorithm 4, line 10).

    Args:
        order: a permutation per row.
        num_clean: the number of clean tokens.
        chosen: indices into the order. The first count[b] of row b are moved.
        count: how many entries of each row are moved.
    """
    length = order.shape[1]
    index = torch.arange(length + 1, device=order.device).expand(len(order), -1)
    rank = torch.arange(chosen.shape[1], device=order.device).expand_as(chosen)
    key = torch.where(index < num_clean[:, None], index, 2 * length + index)
    # Chosen entries beyond the count go to the extra column `length`, which is cut off.
    key = key.scatter(1, torch.where(rank < count[:, None], chosen, length), length + rank)
    return order.gather(1, key[:, :length].argsort(dim=1))


def demote(
    order: Int[Tensor, "B L"], num_clean: Int[Tensor, " B"], chosen: Bool[Tensor, "B L"]
) -> Int[Tensor, "B L"]:
    """Move chosen clean entries behind the other clean ones, before the masked ones.

    It is the inverse of `promote`.

    Args:
        order: a permutation per row.
        num_clean: the number of clean tokens.
        chosen: entries of the order. Those that are not clean do not move.

    Example:
        >>> chosen = torch.tensor([[True, False, False, False]])
        >>> demote(torch.tensor([[3, 0, 2, 1]]), torch.tensor([3]), chosen)
        tensor([[0, 2, 3, 1]])
    """
    index = torch.arange(order.shape[1], device=order.device)
    group = torch.where(index < num_clean[:, None], chosen.int(), 2)
    return order.gather(1, group.argsort(dim=1, stable=True))


def restore(
    order: Int[Tensor, "B L"], num_clean: Int[Tensor, " B"], rank: Int[Tensor, "B L"]
) -> Int[Tensor, "B L"]:
    """Sort the entries of each row from index `num_clean` on by the rank of their positions.

    Args:
        order: a permutation per row.
        num_clean: the number of clean tokens.
        rank: the rank of each position. Entries of equal rank keep their order.

    Example:
        >>> first = torch.tensor([[0, 2, 1, 3]])
        >>> restore(torch.tensor([[0, 3, 1, 2]]), torch.tensor([1]), first.argsort(1))
        tensor([[0, 2, 1, 3]])
    """
    index = torch.arange(order.shape[1], device=order.device)
    key = torch.where(index < num_clean[:, None], -1, rank.gather(1, order))
    return order.gather(1, key.argsort(dim=1, stable=True))


def is_permutation(order: Tensor) -> bool:
    """Return whether each row of `order` names each of 0..L-1 exactly once."""
    index = torch.arange(order.shape[1], device=order.device)
    return bool((order.sort(dim=1).values == index).all())


@dataclass(frozen=True)
class Blockwise:
    """The order that `blockwise` returns."""

    block: int

    @property
    def __name__(self) -> str:
        return f"blockwise({self.block})"

    def __call__(self, known: Bool[Tensor, "B L"], noise: Noise | Draw) -> Int[Tensor, "B L"]:
        """Return the known positions, then the others by block, each block as the noise shuffles it."""
        order = any_order(known, noise)
        is_known = known.gather(1, order)
        block = (order // self.block).masked_fill(is_known, -1)  # (B, L): of each entry
        return order.gather(1, block.argsort(dim=1, stable=True))


def blockwise(block: int) -> Blockwise:
    """Return the order of blocks of positions from left to right, in any order within a block.

    Candidates are then of one block, and so are the tokens that a step decodes. With `mdm` this is
    the semi-autoregressive sampling of LLaDA.

    Args:
        block: the number of positions of a block.

    Example:
        >>> noise = torch.rand(1, 6)
        >>> blockwise(3)(torch.zeros(1, 6, dtype=torch.bool), noise).tolist()[0][3:] != [0, 1, 2]
        True
    """
    check_int("block", block, 1)
    return Blockwise(block)


def block_of(function: object) -> int | None:
    """Return the size of the blocks that an order or a rule has, its attribute `block`, or None."""
    return getattr(function, "block", None)


def block_ends(order: Int[Tensor, "B L"], block: int) -> Int[Tensor, "B L"]:
    """Return for each entry of an order the index after the last entry of its block.

    The masked entries are by block.
    """
    length = order.shape[1]
    blocks = order // block
    is_last = torch.ones_like(order, dtype=torch.bool)
    is_last[:, :-1] = blocks[:, 1:] != blocks[:, :-1]
    after = torch.arange(1, length + 1, device=order.device)
    return torch.where(is_last, after, length).flip(1).cummin(1).values.flip(1)


def rest_of_block(
    order: Int[Tensor, "B L"], num_clean: Int[Tensor, " B"], block: int
) -> Int[Tensor, " B"]:
    """Return how many entries of the order from `num_clean` on are of the block of the first of them."""
    first = num_clean.clamp(max=order.shape[1] - 1)[:, None]
    return block_ends(order, block).gather(1, first)[:, 0] - num_clean


def check_blocks(
    order: Int[Tensor, "B L"], num_clean: Int[Tensor, " B"], lengths: Int[Tensor, " B"], block: int
) -> None:
    """Raise ValueError if the masked entries of an order are not by block, from left to right."""
    index = torch.arange(order.shape[1], device=order.device)[:-1]
    is_pair = (index >= num_clean[:, None]) & (index + 1 < lengths[:, None])
    blocks = order // block
    if (is_pair & (blocks[:, 1:] < blocks[:, :-1])).any():
        fix = f"order=blockwise({block}), or a mdm or scdm model"
        refuse("order", f"this method decodes blocks of {block} from left to right", fix)
