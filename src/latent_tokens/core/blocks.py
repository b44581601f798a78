"""Blocks of positions, position // b, decoded from left to right: an order and an attention rule."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latent_tokens.checks import check_int
from latent_tokens.core.order import Draw, Noise, Order, any_order
from latent_tokens.core.rule import Rule, Slot, Verdict


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
        block = (order // self.block).masked_fill(is_known, -1)  # (B, L): that of each entry of the order
        return order.gather(1, block.argsort(dim=1, stable=True))


@dataclass(frozen=True)
class BlockCausal:
    """The rule that `block_causal` returns."""

    block: int

    @property
    def __name__(self) -> str:
        return f"block_causal({self.block})"

    def __call__(self, q: Slot, k: Slot, c: Slot, query_block: Slot, key_block: Slot) -> Verdict:
        """Return true for keys of earlier blocks and of the query's own."""
        return key_block <= query_block


def blockwise(block: int) -> Blockwise:
    """Return the order of blocks of positions from left to right, in any order within a block.

    Candidates are then of one block, and so are the tokens that a step decodes. With `mdm` this is the
    semi-autoregressive sampling of LLaDA.

    Args:
        block: the number of positions of a block.

    Example:
        >>> noise = torch.rand(1, 6)
        >>> blockwise(3)(torch.zeros(1, 6, dtype=torch.bool), noise).tolist()[0][3:] != [0, 1, 2]
        True
    """
    check_int("block", block, 1)
    return Blockwise(block)


def block_causal(block: int) -> BlockCausal:
    """Return the rule by which a slot attends to all slots of earlier blocks and of its own (BD3-LM, SDAR).

    No slot attends to later blocks, so leaving these out is exact.

    Args:
        block: the number of positions of a block.

    Example:
        >>> block_causal(3)(0, 1, 0, query_block=0, key_block=1)
        False
    """
    check_int("block", block, 1)
    return BlockCausal(block)


def block_of(function: object) -> int | None:
    """Return the size of the blocks that an order or a rule has, its attribute `block`, or None."""
    return getattr(function, "block", None)


def with_name(name: str) -> Blockwise | BlockCausal | None:
    """Return the order or the rule with a name such as "block_causal(8)", or None for another name."""
    match = re.fullmatch(r"(blockwise|block_causal)\(([1-9][0-9]*)\)", name)
    if match is None:
        return None
    return Blockwise(int(match[2])) if match[1] == "blockwise" else BlockCausal(int(match[2]))


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


def rest_of_block(order: Int[Tensor, "B L"], num_clean: Int[Tensor, " B"], block: int) -> Int[Tensor, " B"]:
    """Return how many entries of the order from `num_clean` on are of the block of the first of them."""
    first = num_clean.clamp(max=order.shape[1] - 1)[:, None]
    return block_ends(order, block).gather(1, first)[:, 0] - num_clean


def check_rule(attention: Rule, order: Order, is_left_to_right: bool) -> None:
    """Raise ValueError if a rule has blocks, and an order does not decode these from left to right."""
    block = block_of(attention)
    if block is not None and block_of(order) != block and not is_left_to_right:
        name = getattr(attention, "__name__", "custom")
        raise ValueError(
            f"attention={name}: its blocks are decoded from left to right. "
            f"Use order=blockwise({block}), or left_to_right."
        )


def check_blocks(
    order: Int[Tensor, "B L"], num_clean: Int[Tensor, " B"], lengths: Int[Tensor, " B"], block: int
) -> None:
    """Raise ValueError if the masked entries of an order are not by block, from left to right."""
    index = torch.arange(order.shape[1] - 1, device=order.device)
    is_pair = (index >= num_clean[:, None]) & (index + 1 < lengths[:, None])
    blocks = order // block
    if (is_pair & (blocks[:, 1:] < blocks[:, :-1])).any():
        raise ValueError(
            f"order: this method decodes blocks of {block} positions from left to right. "
            f"Use order=blockwise({block}), or a mdm or scdm model."
        )
