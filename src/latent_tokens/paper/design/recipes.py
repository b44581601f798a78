"""Recipes: the model to train and the result to measure, for each cell, scale and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from latent_tokens.configs import DataConfig, EvalConfig, ScaleName, TrainConfig
from latent_tokens.data.datasets import task_of
from latent_tokens.paper.design.cells import Cell
from latent_tokens.paper.design.experiments import EXPERIMENTS
from latent_tokens.paper.design.hashes import (
    Content,
    data_content,
    evaluation_content,
    hash_of,
    training_content,
)
from latent_tokens.paper.design.reference import ARM_ON_COUNTDOWN_EPOCHS, DATA_SETS
from latent_tokens.paper.design.scales import SCALES, Budget, Scale
from latent_tokens.tasks import Text


@dataclass(frozen=True)
class Recipe:
    """A model to train from a seed, and one result to measure. Equal training means the same model."""

    cell: Cell
    data: DataConfig
    training: TrainConfig
    evaluation: EvalConfig
    problems: DataConfig | None = None  # the data set of puzzles that a model of boards infills
    judge: str | None = None  # the evaluator model of generated text
    num_held_out: int = 0  # sequences whose likelihood is measured
    imported: bool = False  # the model is published and not trained here

    @property
    def model(self) -> str:
        """The name of the model: task, method, seed, and a hash of all that its weights depend on."""
        if self.imported:
            return f"{self.training.task}-{self.training.method}-imported"
        content = {"data": data_content(self.data), "training": training_content(self.training)}
        return f"{self.training.task}-{self.training.method}-{self.training.seed}-{hash_of(content)}"

    @property
    def length(self) -> int:
        """The number of positions of a sequence."""
        if self.data.task == "text":
            return self.data.length or Text.length
        return task_of(self.data).length

    @property
    def hash(self) -> str:
        """The hash of all that the result depends on."""
        content: dict[str, Content] = {
            "model": self.model,
            "evaluation": evaluation_content(self.evaluation),
            "problems": None if self.problems is None else data_content(self.problems),
        }
        # These came later. They enter the hash only if they are set, so that older hashes stay.
        if self.evaluation.data is None and not self.imported:
            content["made"] = True
        if self.judge:
            content["judge"] = self.judge
        if self.num_held_out:
            content["held_out"] = self.num_held_out
        return hash_of(content)


def recipes(
    experiment: str, scale_name: ScaleName, root: Path, seeds: int | None = None, judge: str | None = None
) -> list[Recipe]:
    """Return the recipes of an experiment, as `of_cells` does.

    Raises:
        ValueError: the experiment or the scale does not exist.
    """
    return of_cells(EXPERIMENTS[experiment].cells(SCALES[scale_name]), scale_name, root, seeds, judge)


def every_recipe(
    scale: ScaleName, root: Path, seeds: int | None = None, judge: str | None = None
) -> list[Recipe]:
    """Return the recipes of all experiments, each once. Arguments as `recipes`."""
    listed = (recipe for name in EXPERIMENTS for recipe in recipes(name, scale, root, seeds, judge))
    return list({recipe.hash: recipe for recipe in listed}.values())


def of_cells(
    cells: Sequence[Cell],
    scale_name: ScaleName,
    root: Path,
    seeds: int | None = None,
    judge: str | None = None,
) -> list[Recipe]:
    """Return the recipes of some cells, cell by cell and seed by seed.

    Args:
        cells: numbers of tables and figures.
        scale_name: the scale whose budgets apply.
        root: directory of data sets and models.
        seeds: training seeds of each model. None: as many as the scale has.
        judge: the evaluator model of generated text. None: the scale's.
    """
    scale = SCALES[scale_name]
    folder = root / scale_name
    listed = []
    for cell in cells:
        for seed in range(seeds or scale.budgets[cell.task].seeds):
            if scale.budgets[cell.task].task == "text":
                listed.append(text_recipe(cell, scale, seed, folder, judge))
            else:
                listed.append(puzzle_recipe(cell, scale, seed, folder))
    return listed


def puzzle_recipe(cell: Cell, scale: Scale, seed: int, root: Path) -> Recipe:
    """Return the recipe of a cell of puzzles or boards."""
    budget = scale.budgets[cell.task]
    data = data_set(budget, root)
    training = TrainConfig(budget.task, cell.method, data=data.folder, seed=seed, **budget.training)
    if scale is SCALES["paper"] and (cell.task, cell.method) == ("countdown", "arm"):
        examples = ARM_ON_COUNTDOWN_EPOCHS * DATA_SETS["countdown"].num_train
        training = replace(training, steps=examples // training.batch_size)
    problems = None if cell.problems is None else data_set(scale.budgets[cell.problems], root)
    evaluation = puzzle_evaluation(cell, scale, seed, data, problems)
    return in_folder(Recipe(cell, data, training, evaluation, problems), root)


def puzzle_evaluation(
    cell: Cell, scale: Scale, seed: int, data: DataConfig, problems: DataConfig | None
) -> EvalConfig:
    """Return how a cell of puzzles or boards is measured.

    The paper scale has the paper's protocol, except for a cell with a k of its own. Such a cell has more
    samples, unless it has problems to infill.
    """
    budget = scale.budgets[cell.task]
    evaluation = EvalConfig(
        latents=None if cell.latents is None else (cell.latents,),
        candidates=budget.candidates if cell.order == "top_prob" else None,
        order=cell.order,
        num_samples=scale.num_samples,
        data=(problems or data).folder,
        top_p=1.0,
        seed=seed,
        precision=budget.precision or scale.precision,
    )
    if cell.k is None:
        if scale is SCALES["paper"]:
            return replace(evaluation, candidates=None, num_samples=None, protocol="paper")
        return evaluation
    evaluation = replace(evaluation, candidates=cell.k)
    if problems is not None:
        return evaluation
    # A test split has fewer problems, so they are made on the spot.
    return replace(evaluation, data=None, num_samples=ceil(scale.num_thorough / budget.seeds))


def text_recipe(cell: Cell, scale: Scale, seed: int, root: Path, judge: str | None) -> Recipe:
    """Return the recipe of a cell of text. It also has held-out likelihood."""
    budget = scale.budgets[cell.task]
    texts = scale.texts
    data = data_set(budget, root)
    training = TrainConfig(budget.task, cell.method, data=data.folder, seed=seed, **budget.training)
    evaluation = EvalConfig(
        latents=None if cell.latents is None else (cell.latents,),
        order=cell.order,
        num_samples=texts.num_samples,
        data=None if budget.imported else data.folder,
        top_p=0.9,
        seed=seed,
        batch_size=50,
    )
    recipe = Recipe(
        cell,
        data,
        training,
        evaluation,
        judge=judge or texts.judge,
        num_held_out=texts.num_held_out,
        imported=budget.imported,
    )
    return in_folder(recipe, root)


def in_folder(recipe: Recipe, root: Path) -> Recipe:
    """Return a recipe that writes its model to ROOT/models."""
    return replace(recipe, training=replace(recipe.training, out=root / "models" / recipe.model))


def data_set(budget: Budget, root: Path) -> DataConfig:
    """Return the data set of a budget, in ROOT/data."""
    data = DataConfig(budget.task, **budget.data)
    return replace(data, out=root / "data" / f"{budget.task}-{hash_of(data_content(data))}")
