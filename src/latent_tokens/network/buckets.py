"""Batches of rows of similar length, so that little of a forward pass is padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence

# A row joins a bucket if it is at most this many times as long as the bucket's shortest row.
MAX_RATIO = 1.125
# A bucket of fewer slots takes rows of any length: a pass over these is not worth splitting.
MIN_SLOTS = 1_024


def bucket_by_length(lengths: Sequence[int], max_rows: Callable[[int], int]) -> list[list[int]]:
    """Split rows into buckets of similar length.

    Args:
        lengths: the number of slots of each row.
        max_rows: from the number of slots of a row to the largest number of such rows in one bucket.

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
