"""The plan of a reproduction: trained, begun and missing models, and an estimate of the time left."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from accelerate import Accelerator

from latent_tokens.bench.cases import training_step
from latent_tokens.bench.machine import seconds
from latent_tokens.configs import SizeName
from latent_tokens.evaluation.problems import DEFAULT_SAMPLES
from latent_tokens.paper.design.recipes import Recipe
from latent_tokens.paper.running.runs import measured
from latent_tokens.training.checkpoint import saved_step

STEPS = 5  # measured for an estimate
PASS = 3  # a training step computes about three forward passes


@dataclass(frozen=True)
class Work:
    """A model and what is still to do: steps of training, and recipes to measure."""

    name: str
    recipes: tuple[Recipe, ...]
    steps_left: int
    missing: tuple[Recipe, ...]

    @property
    def state(self) -> str:
        """The state: done, trained (but not yet measured), begun, missing or to import."""
        if not self.missing:
            return "done"
        if self.recipes[0].imported and not (self.recipes[0].training.folder / "config.json").is_file():
            return "to import"
        if not self.steps_left:
            return "trained"
        return "begun" if self.steps_left < self.recipes[0].training.steps else "missing"


def plan(recipes: Sequence[Recipe], results: Path) -> list[Work]:
    """Return the models of recipes in their order, with the missing rows and steps of each."""
    rows = measured(results)
    by_model: dict[str, list[Recipe]] = {}
    for recipe in recipes:
        by_model.setdefault(recipe.model, []).append(recipe)
    works = []
    for name, model_recipes in by_model.items():
        missing = tuple(recipe for recipe in model_recipes if recipe.hash not in rows)
        training = model_recipes[0].training
        steps_left = 0
        if missing and not model_recipes[0].imported:
            steps_left = training.steps - saved_step(training.folder)
        works.append(Work(name, tuple(model_recipes), steps_left, missing))
    return works


def estimate(works: Iterable[Work]) -> float:
    """Estimate the seconds that are left.

    The estimate is from training steps, which are timed now, and from the forward passes of decoding.

    Imported models are left out.
    """
    total = 0.0
    for work in works:
        first = work.recipes[0]
        training, length = first.training, first.length
        if not work.missing or first.imported:
            continue
        assert training.size is not None
        rate = step_seconds(training.size, training.batch_size, length)
        total += work.steps_left * rate
        for recipe in work.missing:
            samples = recipe.evaluation.num_samples or recipe.num_held_out or DEFAULT_SAMPLES
            total += samples / training.batch_size * length * rate / PASS
    return total


@cache
def step_seconds(size: SizeName, batch: int, length: int) -> float:
    """Measure the seconds of a training step, once per shape."""
    step, _ = training_step(size, batch, length, "fp32", supports_slots=True)
    return statistics.median(seconds(step, Accelerator().device) for _ in range(STEPS))
