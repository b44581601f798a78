"""Batches that fit into memory: rows of similar length, as many as an estimate allows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import nn

from latent_tokens.core.denoiser import unwrap
from latent_tokens.network.transformer import Transformer
from latent_tokens.sizes import Dimensions

MAX_RATIO = 1.125  # a row joins a bucket if it is at most this many times as long as its shortest
# A bucket of fewer slots takes rows of any length: a pass over these is not worth splitting.
MIN_SLOTS = 1_024


def bucket_by_length(lengths: Sequence[int], max_rows: Callable[[int], int]) -> list[list[int]]:
    """Split rows into buckets of similar length.

    Args:
        lengths: the number of slots of each row.
        max_rows: from the number of slots of a row to the largest number of such rows in one
            bucket.

    Returns:
        Row numbers, one list per bucket, from the shortest rows to the longest.

    Example:
        >>> bucket_by_length([1000, 10, 990], max_rows=lambda length: 2)
        [[1, 2], [0]]
    """
    buckets: list[list[int]] = []
    shortest = 0
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[row]
        bucket = buckets[-1] if buckets else []
        too_long = length > MAX_RATIO * shortest and len(bucket) * length > MIN_SLOTS
        if not bucket or too_long or len(bucket) >= max_rows(length):
            bucket = []
            buckets.append(bucket)
            shortest = length
        bucket.append(row)
    return buckets


DECODING_BYTES = 1 << 28  # on a CPU, where more does not make it faster
TRAINING_BYTES = 1 << 32  # on a CPU
DEVICE_SHARE = 0.5  # of an accelerator's memory


def decoding_rows(net: Transformer, candidates: int, length: int) -> int:
    """Return how many rows of `length` slots to decode at once, at least 1.

    A row takes hidden states, a mask, a cache, and the candidates' logits in float64.
    """
    width = net.size.width
    element_size = net.embedding.weight.element_size()
    hidden = 16 * width * element_size
    cache = 2 * net.size.layers * width * element_size
    mask = 5 * length
    logits = 40 * candidates * net.num_logits
    row = length * (hidden + cache + mask) + logits
    return max(1, memory_budget(net, DECODING_BYTES) // max(1, row))


def training_rows(net: nn.Module, slots: int) -> int:
    """Return how many rows of `slots` slots to train on at once, at least 1.

    The memory of a network without `dimensions` is not known, so it gets all rows.
    """
    inner = cast(nn.Module, unwrap(net))
    dimensions = getattr(inner, "dimensions", None)
    if not isinstance(dimensions, Dimensions):
        return sys.maxsize
    row = training_row_bytes(dimensions, slots)
    return max(1, memory_budget(inner, TRAINING_BYTES) // max(1, row))


def training_row_bytes(net: Dimensions, slots: int) -> int:
    """Return the bytes of one row: what layers keep for gradients in float32, and logits."""
    layer = 20 * 4 * net.width + 4 * net.heads * slots
    return slots * (net.layers * layer + 16 * net.columns)


def memory_budget(net: nn.Module, on_cpu: int) -> int:
    """Return the bytes that one part of a batch may take.

    They depend on the device only and not on what else runs there, so that a batch is always split
    in the same way.
    """
    device = next(net.parameters()).device
    if device.type != "cuda":
        return on_cpu
    return int(DEVICE_SHARE * torch.cuda.get_device_properties(device).total_memory)
