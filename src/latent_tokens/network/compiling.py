"""torch.compile for the parts of a block around its attention, as an option. Not measured on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch
from torch import nn

R = TypeVar("R")
MOST_COMPILATIONS = 64  # of one function in a process: each width, precision and gradient mode takes one


@cache
def compiled(function: Callable[..., R], device: str) -> Callable[..., R]:
    """Return a function compiled as one graph for any number of rows, on CUDA with CUDA graphs.

    It is the same compiled function for every block.
    """
    limits: Any = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, MOST_COMPILATIONS)
    mode = "reduce-overhead" if device == "cuda" else None
    return torch.compile(function, dynamic=True, fullgraph=True, mode=mode)


def compile_blocks(net: nn.Module) -> None:
    """Let the blocks of a network run compiled, in training and decoding.

    Attention runs as before. The results differ by rounding. The first call takes seconds, and on a CPU a
    C++ compiler.

    Raises:
        ValueError: the network has no blocks of ours.

    Example:
        >>> compile_blocks(net)
    """
    blocks: list[Any] = [module for module in net.modules() if hasattr(module, "compiled")]
    if not blocks:
        raise ValueError(f"net={type(net).__name__}: has no blocks to compile. Use a Transformer.")
    for block in blocks:
        block.compiled = True


def begin_pass(block: nn.Module, device: torch.device) -> None:
    """Start the forward pass of a network. CUDA graphs keep its results until the next one starts."""
    if device.type == "cuda" and getattr(block, "compiled", False):
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
