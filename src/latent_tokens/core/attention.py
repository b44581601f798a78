"""Attention rules, the four of the paper and blocks, and the masks they give for a layout.

A rule is a predicate (query slot, key slot, number of clean slots) -> bool, on integers or on
tensors that broadcast. A rule with the attribute `block`, a number of positions, also receives the
block of the query and that of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from latent_tokens.checks import check_int
from latent_tokens.core.layout import Layout
from latent_tokens.core.order import block_of

Slot = int | Tensor
"""The number of a slot or of a block, or a tensor of such numbers."""
Verdict = bool | Tensor
Rule = Callable[..., Verdict]
"""A rule with the attribute `block` also takes the block of the query and that of the key."""


PROBED_SLOTS = 16  # on which a rule is tested with each number of clean ones


def bidirectional(q: Slot, k: Slot, c: Slot) -> Verdict:
    """Return true: every slot attends to every slot (MDM and AR-MTP)."""
    return (q >= 0) & (k >= 0)  # true, in the shape of q and k together


def independent(q: Slot, k: Slot, c: Slot) -> Verdict:
    """Return true for clean keys and for the slot itself (SIDM, equation 1)."""
    return (k < c) | (k == q)


def semi_causal(q: Slot, k: Slot, c: Slot) -> Verdict:
    """Return true for clean keys and for keys up to the slot itself (SCDM, equation 2)."""
    return (k < c) | (k <= q)


def causal(q: Slot, k: Slot, c: Slot) -> Verdict:
    """Return true for keys up to the slot itself, clean or not (Eso-LM (B) and ARM)."""
    return k <= q


def allows(
    rule: Rule, q: Slot, k: Slot, c: Slot, query_block: Slot = 0, key_block: Slot = 0
) -> Verdict:
    """Return what a rule returns, called with the blocks if it has any. By default, both are the first."""
    return rule(q, k, c) if block_of(rule) is None else rule(q, k, c, query_block, key_block)


def attends_later(rule: Rule) -> bool:
    """Return whether a masked slot attends to a masked one after it.

    If so, leaving one out changes the model.
    """
    allowed, is_masked = probe(rule)
    return bool((allowed & is_masked[:, :, None]).triu(1).any())


def attends_earlier(rule: Rule) -> bool:
    """Return whether a masked slot attends to a masked one before it.

    If so, latent tokens influence what follows them.
    """
    allowed, is_masked = probe(rule)
    return bool((allowed & is_masked[:, None, :]).tril(-1).any())


def clean_attends_to_masked(rule: Rule) -> bool:
    """Return whether a clean slot attends to masked ones."""
    allowed, is_masked = probe(rule)
    return bool((allowed & ~is_masked[:, :, None] & is_masked[:, None, :]).any())


def clean_attends_to_clean(rule: Rule) -> bool:
    """Return whether every clean slot attends to every clean one."""
    allowed, is_masked = probe(rule)
    either = is_masked[:, :, None] | is_masked[:, None, :]
    return block_of(rule) is None and bool((allowed | either).all())


def is_cacheable(rule: Rule, num_slots: int) -> bool:
    """Return whether no slot attends to a later one, and what a clean one attends to stays as it is.

    If so, keys and values of clean slots never change. This is tested: with any number of clean
    slots on 16 slots, and with five numbers on all. A rule with blocks is not tested.

    Args:
        rule: the rule, which may depend on the distance of two slots.
        num_slots: the number of slots that it is tested on, those of the longest input.

    Example:
        >>> is_cacheable(causal, num_slots=36), is_cacheable(semi_causal, num_slots=36)
        (True, False)
    """
    if block_of(rule) is not None:
        return False
    quarters = [num_slots * part // 4 for part in range(5)]
    for arguments in ((), (num_slots, quarters)):  # most rules fail on few slots
        allowed, is_masked = probe(rule, *arguments)
        last = allowed[-1]  # (Q, K): all slots are clean
        is_fixed = bool(((allowed == last) | is_masked[:, :, None]).all())
        if not is_fixed or bool(allowed.triu(1).any()):
            return False
    return True


def probe(
    rule: Rule, num_slots: int = PROBED_SLOTS, counts: Sequence[int] = range(PROBED_SLOTS + 1)
) -> tuple[Bool[Tensor, "C Q K"], Bool[Tensor, "C K"]]:
    """Return what a rule allows with each of C numbers of clean slots, and which slots are masked."""
    slots = torch.arange(num_slots, device="cpu")
    num_clean = torch.tensor(counts, device="cpu")[:, None, None]
    verdict = torch.as_tensor(allows(rule, slots[:, None], slots, num_clean), device="cpu")
    return verdict.expand(len(counts), num_slots, num_slots), slots >= num_clean[:, 0]


def agree(rule: Rule, other: Rule, slots: int) -> bool:
    """Return whether two rules give equal masks of a number of slots: none, half and all of them clean.

    One with blocks agrees only with one of equal blocks: its masks also depend on positions.

    Example:
        >>> agree(causal, lambda q, k, c: q >= k, slots=4)
        True
    """
    counts = (0, slots // 2, slots)
    allowed, others = (probe(each, slots, counts)[0] for each in (rule, other))
    return block_of(rule) == block_of(other) and torch.equal(allowed, others)


def visible(
    rule: Rule,
    q: Tensor,
    k: Tensor,
    num_clean: Tensor,
    num_shown: Tensor,
    is_independent: Tensor | None = None,
    query_block: Tensor | int = 0,
    key_block: Tensor | int = 0,
) -> Tensor:
    """Return whether slot q attends to slot k. In the input the rule decides. Padding attends to itself.

    In independent rows a slot attends to clean slots and itself only, as far as the rule allows.
    """
    inside = allows(rule, q, k, num_clean, query_block, key_block)
    if is_independent is not None:
        inside = inside & (independent(q, k, num_clean) | ~is_independent)
    return (inside & (q < num_shown) & (k < num_shown)) | (q == k)


def dense_mask(
    rule: Rule, layout: Layout, queries: Int[Tensor, "B Q"] | None = None
) -> Bool[Tensor, "B Q S"]:
    """Return the attention mask of a layout.

    Args:
        rule: the attention rule.
        layout: the input of the pass.
        queries: the query slots, by default all.

    Returns:
        mask[b, i, j], true if slot queries[b, i] attends to slot j. A padding slot attends to
        itself only.

    Example:
        >>> one = torch.tensor([1])
        >>> layout = next_layout(torch.arange(3)[None], one, candidates=one, latents=one)
        >>> dense_mask(semi_causal, layout)[0].int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
    """
    q = (layout.slots if queries is None else queries)[..., :, None]
    rows = layout.is_independent
    blocks = layout.positions // (block_of(rule) or 1)  # (B, S)
    query_blocks = blocks if queries is None else blocks.gather(1, queries)
    return visible(
        rule,
        q,
        layout.slots,
        layout.num_clean[:, None, None],
        layout.num_shown[:, None, None],
        None if rows is None else rows[:, None, None],
        query_blocks[:, :, None],
        blocks[:, None, :],
    )


def block_mask(rule: Rule, layout: Layout) -> BlockMask:
    """Return the dense mask of a layout in FlexAttention's form, which skips blocks that are all false."""
    rows = layout.is_independent
    blocks = layout.positions // (block_of(rule) or 1)  # (B, S)

    def mask(row: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        is_independent = None if rows is None else rows[row]
        counts = (layout.num_clean[row], layout.num_shown[row])
        return visible(rule, q, k, *counts, is_independent, blocks[row, q], blocks[row, k])

    slots = layout.positions.shape[1]
    return create_block_mask(
        mask, len(layout.positions), None, slots, slots, device=str(layout.positions.device)
    )


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
