"""The type of an attention rule: (query slot, key slot, number of clean slots) -> bool."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Slot = int | Tensor
"""The number of a slot or of a block, or a tensor of such numbers."""
Verdict = bool | Tensor
Rule = Callable[..., Verdict]
"""A rule with the attribute `block` also takes the block of the query and that of the key."""
