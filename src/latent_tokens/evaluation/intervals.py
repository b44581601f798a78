"""95 % intervals: of a share, of a mean, of a ratio of sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

NORMAL = 1.959964
STUDENT = (
    math.inf,
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
)  # 97.5 % of t, by degrees of freedom


def wilson(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of `count` samples (D-20, confidence intervals)."""
    z = NORMAL
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def half_interval(values: Sequence[float]) -> float:
    """Half of the 95 % interval of a mean of two or more independent values (Student's t)."""
    return student(len(values)) * stdev(values) / math.sqrt(len(values))


def half_interval_of_ratio(sums: Sequence[float], counts: Sequence[float]) -> float:
    """Half of the 95 % interval of sum(sums) / sum(counts) over two or more independent pairs (delta method)."""
    ratio = sum(sums) / sum(counts)
    return half_interval([one - ratio * count for one, count in zip(sums, counts, strict=True)]) / fmean(
        counts
    )


def student(count: int) -> float:
    """The 97.5 % quantile of Student's t for a mean of so many values."""
    return STUDENT[count - 1] if count <= len(STUDENT) else NORMAL + 2.4 / (count - 1)
