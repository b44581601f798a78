"""The same total number of latent tokens at different steps, on 6x6 boards.

python research/timing/timing.py                # print table.md from the stored rows
python research/timing/timing.py RUN            # decode with each schedule: a model directory or a name
"""

import sys
from collections.abc import Callable
from pathlib import Path

import tyro

import latent_tokens as lt

sys.path.append(str(Path(__file__).parents[1]))

from tables import Cell, Claim, report, rows_of

ORDERS = ("uniform", "top_prob")


def constant(length: int, size: int) -> int:
    """Return the same n for every step."""
    return size


def a_share(length: int, size: int) -> Callable[[int], int]:
    """Return the n of each step as a share of the masked tokens."""
    return lambda num_masked: num_masked * size // length


def early(length: int, size: int) -> Callable[[int], int]:
    """Return n = all in the first steps, then 0."""
    return lambda num_masked: num_masked if num_masked > length - size else 0


def late(length: int, size: int) -> Callable[[int], int]:
    """Return n = 0 at first, then n = all in the last steps."""
    return lambda num_masked: num_masked if num_masked <= size else 0


SCHEDULES = {"constant": constant, "a share": a_share, "early": early, "late": late}


def total(latents: int | Callable[[int], int], length: int, k: int) -> int:
    """Return the latent tokens of all steps of a sample, which decode one token each."""
    numbers = ((n, latents(n) if callable(latents) else latents) for n in range(1, length + 1))
    return sum(min(number, max(0, num_masked - k)) for num_masked, number in numbers)


def scheduled(name: str, length: int, k: int) -> int | Callable[[int], int]:
    """Return the n of a schedule with about as many latent tokens in all as n = L / 4."""
    goal = total(length // 4, length, k)
    sizes = (SCHEDULES[name](length, size) for size in range(1, length + 1))
    return min(sizes, key=lambda latents: abs(total(latents, length, k) - goal))


def measure(run: str, num_samples: int = 1_334) -> None:
    """Print the valid samples of a model for each order and schedule."""
    model = lt.load(run)
    for order in ORDERS:
        k = 4 if order == "top_prob" else 1
        settings = {"order": order, "candidates": k, "num_samples": num_samples}
        for name in SCHEDULES:
            latents = scheduled(name, model.task.length, k)
            (row,) = lt.evaluate(model.net, model.task, latents=latents, **settings)
            print(f"{order}, {name}: {row[row['metric']]:.1f}% at {row['relative_cost']:.2f}x")


def main(run: str | None = None, /) -> None:
    """Print the table, or measure a model."""
    if run is not None:
        measure(run)
        return
    cells = [Cell("scdm", order, None, name) for order in ORDERS for name in SCHEDULES]
    late_ones, constant_ones = (
        [Cell("scdm", order, None, name) for order in ORDERS] for name in ("late", "constant")
    )
    claims = [
        Claim(f"{first.order}: late > constant n", first, second)
        for first, second in zip(late_ones, constant_ones, strict=True)
    ]
    claims.append(Claim("uniform: late > n=all", late_ones[0], Cell("scdm", "uniform", "all", "plain")))
    print(report(rows_of("timing", "latent-choice"), cells, claims), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
