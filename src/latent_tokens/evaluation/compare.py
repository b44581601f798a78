"""The comparison of two models, or of two settings of one, on the same problems."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from latent_tokens.checks import refuse
from latent_tokens.evaluation.intervals import NORMAL, half_interval
from latent_tokens.evaluation.report import decoding_in_words
from latent_tokens.evaluation.rows import Row, labeled, metric_of

SAME = ("task", "metric", "num_samples", "seed", "problems_sha256")
"""What two rows of the same problems share."""
# Settings by which rows of one method, order, n and k can differ
APART = (
    "task", "run", "size", "train_steps", "num_samples", "seed", "precision", "temperature", "top_p",
    "latent_policy", "problems", "device",
)  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """The difference of two settings in percentage points, first - second.

    Example:
        >>> Difference("valid", ("a", "b"), (0,), 3.0, (1.0, 5.0), p_value=0.004).is_decided
        True
    """

    metric: str
    settings: tuple[str, str]
    seeds: tuple[int, ...]  # training seeds that both have
    difference: float
    interval: tuple[float, float]  # 95%
    p_value: float | None = None  # of McNemar's exact test; None for several seeds
    only_one: tuple[int, int] = (0, 0)  # problems that only the first, and only the second solves

    @property
    def is_decided(self) -> bool:
        """Whether the interval excludes 0."""
        return self.interval[0] > 0 or self.interval[1] < 0


def compare(first: Iterable[Row], second: Iterable[Row]) -> Difference:
    """Compare result rows of two settings, one row per training seed each.

    With one seed the problems are paired: the interval is that of a mean of differences, and the
    p-value that of McNemar's exact test. With several, the differences of equal seeds are values
    of which the interval uses Student's t.

    Args:
        first: the rows of one setting.
        second: those of the other.

    Returns:
        The difference, first - second.

    Raises:
        ValueError: a setting has two rows of a seed, they share no seed, or the rows are not of the
            same problems and of the same evaluator.

    Example:
        >>> rows = [{"task": "sudoku-6", "method": name, "metric": "valid", "valid": share, "num_samples": 4,
        ...          "order": "uniform", "latents": 0, "candidates": 1, "seed": 0, "train_seed": seed}
        ...         for seed in (0, 1) for name, share in (("mdm", 70.0 + seed), ("sidm", 50.0))]
        >>> compare(rows[::2], rows[1::2]).difference
        20.5
    """
    sides = tuple(map(by_train_seed, (first, second)))
    shared = tuple(sorted(sides[0].keys() & sides[1].keys()))
    if not shared:
        seeds = " and ".join(str(sorted(side)) for side in sides)
        refuse(f"training seeds {seeds}", "no seed is on both sides", "models of equal seeds")
    pairs = [(sides[0][seed], sides[1][seed]) for seed in shared]
    for pair in pairs:
        for name in SAME:
            values = [row.get(name) for row in pair]
            if values[0] != values[1]:
                setting = f"{name} {values[0]} and {values[1]}"
                refuse(setting, "only answers to the same problems are compared", f"equal {name}")
        judges = [row.get("judge") for row in pair]
        if judges[0] != judges[1]:
            setting = f"evaluator {judges[0]} and {judges[1]}"
            refuse(setting, "only scores of one evaluator are compared", "equal evaluators")
    settings = (setting_in_words(pairs[0][0]), setting_in_words(pairs[0][1]))
    differences = [metric_of(a) - metric_of(b) for a, b in pairs]
    metric = pairs[0][0]["metric"]
    if len(pairs) > 1:
        middle, half = fmean(differences), half_interval(differences)
        return Difference(metric, settings, shared, middle, (middle - half, middle + half))
    return paired(metric, settings, shared, *(outcomes_of(row) for row in pairs[0]))


def common_settings(first: Sequence[Row], second: Sequence[Row]) -> list[Difference]:
    """Compare two sets of rows in each setting of decoding that both have, or in their only one.

    Raises:
        ValueError: no setting is on both sides, or as `compare`.
    """
    sides = [groups_of(rows) for rows in (first, second)]
    shared = [name for name in sides[0] if name in sides[1]]
    if shared:
        return [compare(sides[0][name], sides[1][name]) for name in shared]
    if len(sides[0]) != 1 or len(sides[1]) != 1:
        names = " and ".join("; ".join(side) or "no rows" for side in sides)
        refuse(names, "no setting of decoding is on both sides", "equal order, n and k")
    return [compare(*(next(iter(side.values())) for side in sides))]


def groups_of(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return rows by their task, order, n and k."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(f"{row['task']}, {decoded_in_words(row)}", []).append(row)
    return groups


def by_train_seed(rows: Iterable[Row]) -> dict[int, Row]:
    """Return rows by their training seed. Raise ValueError if two have the same."""
    by_seed: dict[int, Row] = {}
    for row in rows:
        seed = row.get("train_seed", 0)
        other = by_seed.setdefault(seed, row)
        if other is not row:
            both = f"{setting_in_words(other)} and {setting_in_words(row)}"
            differing = (name for name in APART if other.get(name) != row.get(name))
            if (name := next(differing, None)) is not None:
                both += f", {name} {other.get(name)} and {row.get(name)}"
            refuse(
                both, f"two rows of training seed {seed} on one side", "one row per seed and side"
            )
    return by_seed


def setting_in_words(row: Row) -> str:
    """Return the method of a row, its order, n and k."""
    return f"{row['method']}, {decoded_in_words(row)}"


def decoded_in_words(row: Row) -> str:
    """Return the order of a row, n and k."""
    n = labeled(str(row["latents"]), bool(row.get("off_distribution")))
    return f"{decoding_in_words(row)}, n = {n}, k = {row['candidates']}"


def paired(
    metric: str,
    settings: tuple[str, str],
    seeds: tuple[int, ...],
    first: Sequence[bool],
    second: Sequence[bool],
) -> Difference:
    """Return the comparison of two models on the same problems, of one training seed."""
    count = len(first)
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    mean = (only_first - only_second) / count
    half = NORMAL * math.sqrt(((only_first + only_second) / count - mean**2) / count)
    interval = (100 * (mean - half), 100 * (mean + half))
    only_one = (only_first, only_second)
    return Difference(metric, settings, seeds, 100 * mean, interval, mcnemar(*only_one), only_one)


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the two-sided p-value of McNemar's exact test: of so uneven a split of unlike outcomes.

    Example:
        >>> mcnemar(0, 5)  # 2 / 2^5
        0.0625
    """
    unlike = only_first + only_second
    below = sum(math.comb(unlike, k) for k in range(min(only_first, only_second) + 1))
    return float(min(1, 2 * below / 2**unlike))


def packed_outcomes(outcomes: np.ndarray) -> str:
    """Return which problems are solved as text: one bit each, in base64.

    Example:
        >>> packed_outcomes(np.array([True, False, True]))
        'oA=='
    """
    return base64.b64encode(np.packbits(outcomes).tobytes()).decode()


def outcomes_of(row: Row) -> list[bool]:
    """Return which problems a row solves. Raise ValueError if it does not say."""
    if "outcomes" not in row:
        problem = "the row has no outcome per problem: its score is no yes or no, or it is old"
        refuse(setting_in_words(row), problem, "several training seeds, or a new evaluation")
    bits = np.unpackbits(np.frombuffer(base64.b64decode(row["outcomes"]), np.uint8))
    return [bool(bit) for bit in bits[: row["num_samples"]]]
