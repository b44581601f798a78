"""Who sees whom: the four attention rules of the paper, and the dense mask they give for a layout.

A rule is a function (query slot, key slot, number of clean slots) -> bool, on integers or on tensors that broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from latent_tokens.layout import Layout

Rule = Callable[[Any, Any, Any], Any]


def bidirectional(q: Any, k: Any, c: Any) -> Any:
    """Every slot sees every slot: MDM and AR-MTP."""
    return (q >= 0) & (k >= 0)


def independent(q: Any, k: Any, c: Any) -> Any:
    """Clean slots see the clean ones; a masked slot sees them and itself: SIDM (equation 1)."""
    return (k < c) | (k == q)


def semi_causal(q: Any, k: Any, c: Any) -> Any:
    """Clean slots see the clean ones; a masked slot sees them, itself and the masked ones before it: SCDM (equation 2)."""
    return (k < c) | (k <= q)


def causal(q: Any, k: Any, c: Any) -> Any:
    """Every slot sees itself and what stands before it, clean or not: Eso-LM (B) and ARM."""
    return k <= q


def sees_later(rule: Rule) -> bool:
    """Whether a masked slot sees a masked one after it: then no masked token can be left out without changing the model."""
    return bool(rule(0, 1, 0))


def sees_earlier(rule: Rule) -> bool:
    """Whether a masked slot sees a masked one before it: then latent tokens that stand before it take part."""
    return bool(rule(1, 0, 0))


def sees(rule: Rule, q: Tensor, k: Tensor, num_clean: Tensor, num_shown: Tensor) -> Tensor:
    """Whether slot q sees slot k of a row: as the rule says, but nobody sees padding, which sees itself alone."""
    visible: Tensor = rule(q, k, num_clean)
    return (visible & (q < num_shown) & (k < num_shown)) | (q == k)


def dense_mask(rule: Rule, layout: Layout, queries: Int[Tensor, "B Q"] | None = None) -> Bool[Tensor, "B Q S"]:
    """mask[b, i, j] is true where slot queries[b, i], by default slot i, sees slot j. A padding slot sees itself alone and is seen by none."""
    q = (layout.slots if queries is None else queries)[..., :, None]
    return sees(rule, q, layout.slots, layout.num_clean[:, None, None], layout.num_shown[:, None, None])


def block_mask(rule: Rule, layout: Layout) -> BlockMask:
    """The dense mask of a layout as FlexAttention takes it: blocks of slots that nobody sees are never attended to."""

    def seen(row: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return sees(rule, q, k, layout.num_clean[row], layout.num_shown[row])

    slots = layout.positions.shape[1]
    return create_block_mask(seen, len(layout.positions), None, slots, slots, device=str(layout.positions.device))
