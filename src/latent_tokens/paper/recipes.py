"""Recipes: the model to train and the result to measure, for each cell, scale and seed, and their hashes.

A hash lists names and values, so that no change of a config class changes it. A setting added later
is None by default and is added to a list here. None enters no hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil
from pathlib import Path
from typing import Any, cast

from latent_tokens.configs import EvalConfig, ScaleName
from latent_tokens.data.config import DataConfig
from latent_tokens.data.datasets import GENERATOR
from latent_tokens.paper.experiments import EXPERIMENTS, Cell
from latent_tokens.paper.reference import ARM_ON_COUNTDOWN_EPOCHS, DATA_SETS
from latent_tokens.paper.scales import SCALES, Budget, Scale
from latent_tokens.storage import Json, short_hash
from latent_tokens.training.config import DEFAULT_NUM_TRAIN, TrainConfig

RECIPE_HASH_DIGITS = 12  # of a hash
OF_TRAINING = (
    "task", "method", "size", "steps", "batch_size", "lr", "weight_decay", "warmup", "schedule", "clip",
    "ema", "dropout", "positions", "gelu", "weight", "targets", "noise", "precision", "num_train",
    "num_validation", "evaluate_every", "seed", "start", "mask", "lora", "lora_targets",
    "lora_alpha", "freeze_embeddings", "first",
)  # fmt: skip
"""The settings that the weights depend on."""

OF_EVALUATION = tuple(
    field.name for field in fields(EvalConfig) if field.name not in ("data", "threads")
)
"""The settings that a result depends on."""

OF_DATA = (
    "task", "source", "split", "skip_bad", "apart_from", "num_train", "num_validation", "num_test",
    "padding", "clues", "guessing", "houses", "attributes", "numbers", "targets", "length", "tokenizer",
    "field", "seed",
)  # fmt: skip
"""The settings that the examples of a data set depend on."""

# False and 0 enter no hash
ONLY_IF_SET = ("freeze_embeddings", "off_distribution", "confidence_noise", "drafts")


def training_content(config: TrainConfig) -> dict[str, Json]:
    """Return the settings that the weights depend on."""
    settings = settings_of(config, OF_TRAINING)
    settings["num_train"] = config.num_train or DEFAULT_NUM_TRAIN
    if config.start is not None:
        settings["start"] = str(config.start)
    return settings


def evaluation_content(config: EvalConfig) -> dict[str, Json]:
    """Return the settings that a result depends on."""
    settings = settings_of(config, OF_EVALUATION)
    if config.candidates is not None:
        (settings["candidates"],) = cast(
            tuple[Any, ...], config.candidates
        )  # a recipe has one result
    return settings


def data_content(config: DataConfig) -> dict[str, Json]:
    """Return all that the examples of a data set depend on. A file enters by its name."""
    settings = settings_of(config, OF_DATA)
    if config.from_file:
        settings["source"] = Path(str(config.source)).name
    settings["apart_from"] = [str(folder) for folder in config.apart_from]
    settings["generator"] = GENERATOR
    if config.task.startswith("countdown"):
        settings["answer"] = "longest"  # since version 0.2
    return settings


def settings_of(config: object, names: Sequence[str]) -> dict[str, Json]:
    """Return some fields of a config by their names, without None."""
    values = ((name, getattr(config, name)) for name in names)
    entries = {name: value or None if name in ONLY_IF_SET else value for name, value in values}
    return {name: value for name, value in entries.items() if value is not None}


def hash_of(content: Mapping[str, Json]) -> str:
    """Return the first twelve hexadecimal digits of the SHA-256 of a JSON object with sorted keys."""
    return short_hash(json.dumps(content, sort_keys=True).encode(), RECIPE_HASH_DIGITS)


@dataclass(frozen=True)
class Recipe:
    """A model to train from a seed, and one result to measure. Equal training means the same model."""

    cell: Cell
    data: DataConfig
    training: TrainConfig
    evaluation: EvalConfig
    problems: DataConfig | None = None  # the data set of puzzles that a model of boards infills
    evaluator: str | None = None  # the evaluator model of generated text
    num_held_out: int = 0  # sequences whose likelihood is measured
    imported: bool = False  # the model is published and not trained here

    @property
    def model(self) -> str:
        """The name of the model: task, method, seed, and a hash of all that its weights depend on."""
        if self.imported:
            return f"{self.training.task}-{self.training.method}-imported"
        training = self.training
        content = {"data": data_content(self.data), "training": training_content(training)}
        return f"{training.task}-{training.method}-{training.seed}-{hash_of(content)}"

    @property
    def hash(self) -> str:
        """The hash of all that the result depends on."""
        content: dict[str, Json] = {
            "model": self.model,
            "evaluation": evaluation_content(self.evaluation),
            "problems": None if self.problems is None else data_content(self.problems),
        }
        # These came later. They enter the hash only if they are set, so that older hashes stay.
        if self.evaluation.data is None and not self.imported:
            content["made"] = True
        if self.evaluator:
            content["judge"] = self.evaluator
        if self.num_held_out:
            content["held_out"] = self.num_held_out
        return hash_of(content)


def recipes(
    experiment: str,
    scale_name: ScaleName,
    root: Path,
    seeds: int | None = None,
    evaluator: str | None = None,
) -> list[Recipe]:
    """Return the recipes of an experiment, as `of_cells` does.

    Raises:
        ValueError: the experiment or the scale does not exist.
    """
    cells = EXPERIMENTS[experiment].cells(SCALES[scale_name])
    return of_cells(cells, scale_name, root, seeds, evaluator)


def every_recipe(scale: ScaleName, root: Path) -> list[Recipe]:
    """Return the recipes of all experiments, each once. Arguments as `recipes`."""
    listed = (recipe for name in EXPERIMENTS for recipe in recipes(name, scale, root))
    return list({recipe.hash: recipe for recipe in listed}.values())


def of_cells(
    cells: Sequence[Cell],
    scale_name: ScaleName,
    root: Path,
    seeds: int | None = None,
    evaluator: str | None = None,
) -> list[Recipe]:
    """Return the recipes of some cells, cell by cell and seed by seed.

    Args:
        cells: numbers of tables and figures.
        scale_name: the scale whose budgets apply.
        root: directory of data sets and models.
        seeds: training seeds of each model. None: as many as the scale has.
        evaluator: the evaluator model of generated text. None: the scale's.
    """
    scale = SCALES[scale_name]
    folder = root / scale_name
    listed = []
    for cell in cells:
        for seed in range(seeds or scale.budgets[cell.task].seeds):
            if scale.budgets[cell.task].task == "text":
                listed.append(text_recipe(cell, scale, seed, folder, evaluator))
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

    The paper scale has the paper's protocol, except for a cell with a k of its own. Such a cell has
    more samples, unless it has problems to infill.
    """
    budget = scale.budgets[cell.task]
    evaluation = EvalConfig(
        latents=None if cell.latents is None else (cell.latents,),
        candidates=(budget.candidates,) if cell.order == "top_prob" else None,
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
    evaluation = replace(evaluation, candidates=(cell.k,))
    if problems is not None:
        return evaluation
    # A test split has fewer problems, so they are made on the spot.
    return replace(evaluation, data=None, num_samples=ceil(scale.num_thorough / budget.seeds))


def text_recipe(cell: Cell, scale: Scale, seed: int, root: Path, evaluator: str | None) -> Recipe:
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
        evaluator=evaluator or texts.evaluator,
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
