"""The seconds that each model of the results took to train."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median

from latent_tokens.configs import ScaleName
from latent_tokens.evaluation.rows import Row
from latent_tokens.paper.design.recipes import every_recipe
from latent_tokens.paper.tables.missing import HOUR, change_of

HEADINGS = (
    "task",
    "method",
    "steps",
    "examples per step",
    "precision",
    "seconds by seed",
    "tokens per second",
)
NOTE = (
    "Each is one training on one thread, also of a seed that was trained again on other hardware. A number of"
    " seconds contains the time that a training was paused or had no core of its own."
)


def training_times(scale: ScaleName, root: Path, results: Mapping[str, Row]) -> list[tuple[str, ...]]:
    """Return a line for each kind of model with results, and the seconds of each training of it.

    Args:
        scale: the scale of the results.
        root: directory of data sets and models, which are part of no hash.
        results: rows by the hash of their recipe.
    """
    seconds: dict[tuple[str, ...], dict[tuple[int, str], float]] = {}  # line -> seed and weights -> seconds
    tokens: dict[tuple[str, ...], int] = {}
    for recipe in every_recipe(scale, root):
        row = results.get(recipe.hash)
        if row is None or not recipe.is_trained_here or not row["train_seconds"]:
            continue
        training = recipe.training
        line: tuple[str, ...] = (
            training.task,
            f"{training.method}{change_of(recipe)}",
            f"{training.steps:,}",
            str(training.batch_size),
            training.precision,
        )
        key = training.seed, row["weights_sha256"]
        seconds.setdefault(line, {})[key] = row["train_seconds"]
        tokens[line] = recipe.trained_tokens
    table: list[tuple[str, ...]] = [HEADINGS]
    for line, of_line in seconds.items():
        by_seed = ", ".join(f"{seed}: {took:,.0f}" for (seed, _), took in sorted(of_line.items()))
        table.append((*line, by_seed, f"{tokens[line] / median(of_line.values()):,.0f}"))
    every = [took for of_line in seconds.values() for took in of_line.values()]
    table.append(
        ("all", *("" for _ in HEADINGS[2:-1]), f"{len(every)} trainings, {sum(every) / HOUR:.1f} hours", "")
    )
    return table


def measuring_time(results: Mapping[str, Row]) -> str:
    """Return the hours that it took to measure all results, in words."""
    hours = sum(row["evaluate_seconds"] for row in results.values()) / HOUR
    return f"Measuring all {len(results):,} results took {hours:.1f} hours on one thread."
