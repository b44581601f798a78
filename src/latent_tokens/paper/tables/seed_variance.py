"""The variance between training seeds, relative to that of the samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, variance

from latent_tokens.configs import ScaleName
from latent_tokens.evaluation.rows import Row
from latent_tokens.paper.design.recipes import every_recipe
from latent_tokens.paper.tables.lines import ENOUGH, Line, lines, stand_in

HEADINGS = ("task", "settings", "variance between seeds / of the samples")
NOTE = (
    "How much training seeds differ, over all settings with three seeds: the variance of their shares of"
    " correct samples, over the variance p(1 - p) / N of a share p of the N samples of one seed. About 1 is"
    " what equally good networks have. Where it is larger, an interval of the samples alone is too narrow."
)


def seed_variance(
    scale: ScaleName, root: Path, results: Mapping[str, Row], seeds: int | None = None
) -> list[tuple[str, ...]]:
    """Return a line for each task: the variance between training seeds over that of the samples.

    Both are means over the settings with three seeds or more, of shares of correct samples. A task whose
    samples are all wrong, or all correct, has no line.

    Args:
        scale: the scale of the results.
        root: directory of data sets and models, which are part of no hash.
        results: rows by the hash of their recipe.
        seeds: training seeds of each model. None: as many as the scale has.
    """
    by_task: dict[str, list[Line]] = {}
    for line in lines(every_recipe(scale, root, seeds), results):
        if len(line.rows) >= ENOUGH and not line.is_loss:
            by_task.setdefault(stand_in(line), []).append(line)
    table: list[tuple[str, ...]] = [HEADINGS]
    for task, of_task in by_task.items():
        between = fmean(variance(line.values) for line in of_task)
        of_samples = fmean(binomial_variance(row, line) for line in of_task for row in line.rows)
        if of_samples:
            table.append((task, str(len(of_task)), f"{between / of_samples:.1f}"))
    return table


def binomial_variance(row: Row, line: Line) -> float:
    """Return the variance of a result's share of correct samples, in percent squared."""
    percent = line.value_in(row)
    return percent * (100 - percent) / row["num_samples"]
