"""95% intervals: of a share, of a difference of two shares, of a mean and of a ratio of sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

NORMAL = 1.959964  # the 97.5% quantile of the normal distribution

STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""97.5% quantiles of Student's t for 1 to 30 degrees of freedom: NIST/SEMATECH e-Handbook of
Statistical Methods, section 1.3.6.7.2, "Critical Values of the Student's-t Distribution"."""


def wilson(share: float, count: int) -> tuple[float, float]:
    r"""Return Wilson's 95% interval of a share of `count` samples (D-20, confidence intervals).

    With the share p, N samples and z = 1.96, it is

        (p + z^2 / 2N +- z sqrt(p (1 - p) / N + z^2 / 4N^2)) / (1 + z^2 / N).

    Args:
        share: a share between 0 and 1.
        count: the number of independent samples.

    Example:
        >>> [round(bound, 3) for bound in wilson(0.5, 100)]
        [0.404, 0.596]
    """
    z = NORMAL
    scale = 1 + z**2 / count
    middle = (share + z**2 / (2 * count)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def wilson_difference(
    first: float, first_count: int, second: float, second_count: int
) -> tuple[float, float]:
    """Return the 95% interval of a difference of two independent shares, first - second.

    With the shares p1 and p2 and their Wilson intervals (l1, u1) and (l2, u2), it is

        p1 - p2 - sqrt((p1 - l1)^2 + (u2 - p2)^2) to p1 - p2 + sqrt((u1 - p1)^2 + (p2 - l2)^2).

    The source is Newcombe (1998), "Interval estimation for the difference between independent
    proportions", Statistics in Medicine 17, method 10.

    Example:
        >>> [round(bound, 4) for bound in wilson_difference(56 / 70, 70, 48 / 80, 80)]
        [0.0524, 0.3339]
    """
    first_low, first_high = wilson(first, first_count)
    second_low, second_high = wilson(second, second_count)
    below = math.hypot(first - first_low, second_high - second)
    above = math.hypot(first_high - first, second - second_low)
    return first - second - below, first - second + above


def half_interval(values: Sequence[float]) -> float:
    """Return half of the 95% interval of a mean of independent values: t s / sqrt(N).

    t is Student's t with N - 1 degrees of freedom, and s the standard deviation of the values.

    Args:
        values: two values or more.

    Example:
        >>> round(half_interval([1.0, 2.0, 3.0]), 3)
        2.484
    """
    return student(len(values)) * stdev(values) / math.sqrt(len(values))


def half_interval_of_ratio(sums: Sequence[float], counts: Sequence[float]) -> float:
    """Return half of the 95% interval of R = sum(sums) / sum(counts) over independent pairs.

    It is the interval of the mean of sums - R counts, divided by the mean count (delta method).

    Args:
        sums: two values or more.
        counts: as many values.

    Example:
        >>> round(half_interval_of_ratio([2.0, 6.0], [1.0, 2.0]), 3)
        5.647
    """
    ratio = sum(sums) / sum(counts)
    residuals = [total - ratio * count for total, count in zip(sums, counts, strict=True)]
    return half_interval(residuals) / fmean(counts)


def student(count: int) -> float:
    """Return the 97.5% quantile of Student's t for a mean of `count` values.

    It has count - 1 degrees of freedom. Above 30 it is the expansion of Abramowitz and Stegun
    (1964), 26.7.5, z + (z^3 + z) / 4v + (5 z^5 + 16 z^3 + 3 z) / 96v^2 with v degrees of freedom.

    Args:
        count: 2 or more.

    Example:
        >>> student(3)
        4.303
    """
    degrees = count - 1
    if degrees <= len(STUDENT):
        return STUDENT[degrees - 1]
    z = NORMAL
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
