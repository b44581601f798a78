"""Missing results: models to train, the experiments that need them, and an estimate of the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from latent_tokens.configs import PrecisionSetting, ScaleName
from latent_tokens.evaluation.rows import Row
from latent_tokens.paper.design.experiments import EXPERIMENTS
from latent_tokens.paper.design.recipes import Recipe, recipes
from latent_tokens.paper.design.variants import VARIANTS, label

HOUR = 3600
HEADINGS = ("task", "experiments", "models to train (seeds)", "results", "hours")

Training = tuple[str | None, PrecisionSetting]
"""The task and the precision of a training. No task (None) stands for all."""


@dataclass(frozen=True)
class Rates:
    """Measured seconds, each the median of the results of a task, or of all tasks if it has none."""

    per_token: Mapping[Training, float]
    per_result: Mapping[str | None, float]  # by task, and of all tasks (None)

    def hours(self, missing: Sequence[Recipe]) -> float:
        """Return the hours to train the models of some recipes, each once, and to measure the recipes.

        A precision without results counts as the slowest of the others.
        """
        models = {recipe.model: recipe for recipe in missing if recipe.is_trained_here}
        slowest = max(seconds for (task, _), seconds in self.per_token.items() if task is None)

        def seconds_per_token(recipe: Recipe) -> float:
            precision = recipe.training.precision
            of_all = self.per_token.get((None, precision), slowest)
            return self.per_token.get((recipe.data.task, precision), of_all)

        training = sum(recipe.trained_tokens * seconds_per_token(recipe) for recipe in models.values())
        measuring = sum(self.per_result.get(recipe.data.task, self.per_result[None]) for recipe in missing)
        return (training + measuring) / HOUR


def rates_of(listed: Iterable[Recipe], results: Mapping[str, Row]) -> Rates | None:
    """Return the measured rates of the recipes that have a result, or None if none was trained here."""
    done = [recipe for recipe in listed if recipe.hash in results and recipe.is_trained_here]
    per_token: dict[Training, dict[str, float]] = {}  # training -> model -> seconds
    per_result: dict[str | None, list[float]] = {}
    for recipe in done:
        row = results[recipe.hash]
        for task in (recipe.data.task, None):
            per_result.setdefault(task, []).append(row["evaluate_seconds"])
            if seconds := row["train_seconds"]:
                of_models = per_token.setdefault((task, recipe.training.precision), {})
                of_models[recipe.model] = seconds / recipe.trained_tokens
    if not per_token:
        return None
    return Rates(
        {key: median(of_models.values()) for key, of_models in per_token.items()},
        {task: median(seconds) for task, seconds in per_result.items()},
    )


def missing_table(
    scale: ScaleName,
    root: Path,
    results: Mapping[str, Row],
    seeds: int | None = None,
    judge: str | None = None,
) -> list[tuple[str, ...]]:
    """Return the models of all experiments that have results to measure, with the hours on one thread.

    A line is for the models of one task that the same experiments need, so no model is in two lines. A model
    that has other results already is trained again, because results store no weights.

    Args:
        scale: the scale of the results.
        root: directory of data sets and models, which are part of no hash.
        results: rows by the hash of their recipe.
        seeds: training seeds of each model. None: as many as the scale has.
        judge: the evaluator model of generated text. None: the scale's.
    """
    every: dict[str, Recipe] = {}
    needed_by: dict[str, dict[str, None]] = {}  # model -> experiments
    for name in EXPERIMENTS:
        for recipe in recipes(name, scale, root, seeds, judge):
            every[recipe.hash] = recipe
            if recipe.hash not in results:
                needed_by.setdefault(recipe.model, {})[name] = None
    rates = rates_of(every.values(), results)
    missing = [recipe for recipe in every.values() if recipe.hash not in results]
    groups: dict[tuple[str, str], list[Recipe]] = {}
    for recipe in missing:
        key = recipe.training.task, ", ".join(needed_by[recipe.model])
        groups.setdefault(key, []).append(recipe)

    def cells(of_group: Sequence[Recipe]) -> tuple[str, str]:
        if rates is None or not any(recipe.is_trained_here for recipe in of_group):
            return f"{len(of_group):,}", ""
        at_least = "" if all(recipe.is_trained_here for recipe in of_group) else "at least "
        return f"{len(of_group):,}", f"{at_least}{rates.hours(of_group):.1f}"

    table: list[tuple[str, ...]] = [HEADINGS]
    for (task, names), of_group in sorted(groups.items()):
        table.append((task, names, models_of(of_group), *cells(of_group)))
    if len(table) > 2:
        table.append(("all", "", f"{len(needed_by)} models", *cells(missing)))
    return table


def models_of(missing: Iterable[Recipe]) -> str:
    """Return the models of some recipes in words: "mdm, sidm (1, 2); arm [elbo weight] (2)"."""
    seeds: dict[tuple[str, str], set[int]] = {}
    for recipe in missing:
        seeds.setdefault((recipe.cell.method, change_of(recipe)), set()).add(recipe.training.seed)
    methods: dict[tuple[str, str], list[str]] = {}
    for (method, change), of_method in seeds.items():
        numbers = ", ".join(str(seed) for seed in sorted(of_method))
        methods.setdefault((change, numbers), []).append(method)
    return "; ".join(
        f"{', '.join(names)}{change} ({numbers})" for (change, numbers), names in methods.items()
    )


def change_of(recipe: Recipe) -> str:
    """Return what a recipe's cell changes in training, in brackets, or nothing."""
    variant = VARIANTS[recipe.cell.variant or "plain"]
    if variant.share != 1:
        return f" [{100 * variant.share:g}% of the steps]"
    return f" [{label(recipe.cell.variant)}]" if variant.training else ""
