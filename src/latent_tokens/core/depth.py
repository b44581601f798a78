"""The depth of training: the number of masked tokens that a scored token attends to, drawn per row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

import torch
from jaxtyping import Bool, Int
from torch import Tensor

DepthKind = Literal["all", "none", "uniform"]
KINDS = ("none", "uniform")

Uniform = Callable[..., Tensor]
"""Sizes -> uniform random numbers in [0, 1)."""


def read_depth(depth: str) -> tuple[DepthKind, float]:
    """Return the word of a depth, and its share of the rows (D-38, depth of training).

    Raises:
        ValueError: it is neither all, nor none or uniform with a share above 0 and at most 1.

    Example:
        >>> read_depth("uniform:0.5")
        ('uniform', 0.5)
    """
    if depth == "all":
        return "all", 0.0
    kind, _, text = depth.partition(":") if isinstance(depth, str) else ("", "", "")
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if kind not in KINDS or not 0 < share <= 1:
        raise ValueError(
            f"depth={depth}: must be all, none:SHARE or uniform:SHARE, "
            "with a share of the rows above 0 and at most 1, such as uniform:0.5"
        )
    return cast(DepthKind, kind), share


def check_depth(depth: str, attends_to_masked: bool, targets: Literal["all", "next"]) -> None:
    """Raise ValueError if a depth cannot be read, or if the method that it is for has none to draw.

    Args:
        depth: the depth, as `read_depth` takes it.
        attends_to_masked: whether a masked token of the method attends to another one.
        targets: the masked tokens that the method scores.
    """
    if read_depth(depth)[0] == "all":
        return
    if not attends_to_masked:
        raise ValueError(
            f"depth={depth}: a masked token of this method attends to no other one, "
            "so there is no depth to draw. Use depth=all, or mdm or scdm."
        )
    if targets == "next":
        raise ValueError(
            f"depth={depth} with targets=next: the scored token comes last and attends to all, "
            "so its depth is the number of latents. Use targets=all, or a method without depth, such as mdm."
        )


def draw_rows(share: float, batch: int, uniform: Uniform) -> Bool[Tensor, " B"]:
    """Draw a share of the rows of a batch. Each row has the same probability.

    If the share is no whole number of rows, the number is the one below or above, at random.
    """
    rank = uniform(batch).argsort().argsort()
    return (rank + uniform(1)) < share * batch


def draw_visible(
    num_masked: Int[Tensor, " B"], rows: Bool[Tensor, " B"], uniform: Uniform
) -> Int[Tensor, " B"]:
    """Draw the number of masked tokens in the input of some rows, uniform on 1 to all. Others keep all."""
    drawn = 1 + (uniform(len(num_masked)) * num_masked).long().minimum(num_masked - 1)
    return torch.where(rows, drawn, num_masked)
