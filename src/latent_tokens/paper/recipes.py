"""Recipes: what is trained and measured for every cell of an experiment, at a scale and from a seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from latent_tokens.configs import MAY_CHANGE_ON_RESUME, DataConfig, EvalConfig, ScaleName, TrainConfig
from latent_tokens.data.datasets import GENERATOR
from latent_tokens.paper.experiments import EXPERIMENTS, WINDOWED, Cell
from latent_tokens.paper.reference import ARM_ON_COUNTDOWN_EPOCHS, DATA_SETS
from latent_tokens.paper.scales import SCALES, Budget, Scale
from latent_tokens.paper.variants import VARIANTS, Variant
from latent_tokens.storage import short_hash

IRRELEVANT = (
    "data",
    "processes",
    *MAY_CHANGE_ON_RESUME,
)  # settings that no outcome depends on; the data have a config of their own


@dataclass(frozen=True)
class Recipe:
    """A model to train from a seed, and one thing to measure of it. Recipes that train alike share the model."""

    cell: Cell
    data: DataConfig
    training: TrainConfig
    evaluation: EvalConfig
    problems: DataConfig | None = None  # puzzles, where the model learned boards
    judge: str | None = None  # of texts
    num_held_out: int = 0  # sequences whose likelihood is told, of texts
    imported: bool = False  # the model is not trained here, but put in its place

    @property
    def model(self) -> str:
        """The name of the model: what it learned, how, from which seed, and a hash of all that its weights are a function of."""
        if self.imported:
            return f"{self.training.task}-{self.training.method}-imported"
        about = {"data": made_of(self.data), "training": settings(self.training)}
        return f"{self.training.task}-{self.training.method}-{self.training.seed}-{named(about)}"

    @property
    def hash(self) -> str:
        """Of all that the row is a function of."""
        about = {
            "model": self.model,
            "evaluation": settings(self.evaluation),
            "problems": self.problems and made_of(self.problems),
        }
        beyond = {
            "watched": self.cell.variant if self.variant.watcher else None,
            "adjust": self.cell.variant if self.variant.adjust else None,
            "made": self.evaluation.data is None and not self.imported,
            "judge": self.judge,
            "held_out": self.num_held_out,
        }
        return named({**about, **{name: value for name, value in beyond.items() if value}})

    @property
    def variant(self) -> Variant:
        """What the cell changes; nothing where it says nothing."""
        return VARIANTS[self.cell.variant or "plain"]


def settings(config: DataConfig | TrainConfig | EvalConfig) -> dict[str, Any]:
    """A config without what no outcome depends on, and without what it leaves open: a setting that is new changes no hash while it is None."""
    return {
        name: value for name, value in asdict(config).items() if name not in IRRELEVANT and value is not None
    }


def made_of(data: DataConfig) -> dict[str, Any]:
    """All that the examples of a data set are a function of."""
    source = {"source": Path(str(data.source)).name} if data.from_file else {}
    return {**settings(data), **source, "generator": GENERATOR}


def named(content: dict[str, Any]) -> str:
    """Twelve hexadecimal digits that stand for a JSON object in a name."""
    return short_hash(json.dumps(content, sort_keys=True).encode(), 12)


def recipes(
    experiment: str, scale_name: ScaleName, root: Path, seeds: int | None = None, judge: str | None = None
) -> list[Recipe]:
    """What must be trained and measured for an experiment. Raises ValueError for a name that is not there; the rest is as in `of_cells`."""
    return of_cells(EXPERIMENTS[experiment].cells(SCALES[scale_name]), scale_name, root, seeds, judge)


def of_cells(
    cells: Sequence[Cell],
    scale_name: ScaleName,
    root: Path,
    seeds: int | None = None,
    judge: str | None = None,
) -> list[Recipe]:
    """The recipes of some cells, cell by cell and seed by seed.

    `root` is where data sets and models go; `seeds` is how often each model is trained, where not as often as the scale says, and `judge` reads
    the texts, where not the scale's.
    """
    scale = SCALES[scale_name]
    place = root / scale_name
    return [
        told(cell, scale, seed, place, judge) if cell.task == "text" else recipe(cell, scale, seed, place)
        for cell in cells
        for seed in range(seeds or seeds_of(cell, scale))
    ]


def seeds_of(cell: Cell, scale: Scale) -> int:
    """How often the cell's model is trained: at most twice with a window."""
    seeds = scale.budgets[cell.task].seeds
    return min(2, seeds) if cell.method.startswith(WINDOWED) else seeds


def recipe(cell: Cell, scale: Scale, seed: int, root: Path) -> Recipe:
    """The recipe of a cell at a scale, from a seed."""
    budget, variant = scale.budgets[cell.task], VARIANTS[cell.variant or "plain"]
    data = data_set(budget, root)
    training = TrainConfig(
        budget.task, cell.method, data=data.folder, seed=seed, **budget.training, **variant.training
    )
    if scale is SCALES["paper"] and (cell.task, cell.method) == ("countdown", "arm"):
        training = replace(
            training, steps=ARM_ON_COUNTDOWN_EPOCHS * DATA_SETS["countdown"].num_train // training.batch_size
        )
    steps, warmup = (max(1, round(variant.share * count)) for count in (training.steps, training.warmup))
    training = replace(training, steps=steps, warmup=warmup)
    problems = None if cell.problems is None else data_set(scale.budgets[cell.problems], root)
    evaluation = EvalConfig(
        latents=None if cell.latents is None else (cell.latents,),
        candidates=budget.candidates if cell.order == "top_prob" else None,
        order=cell.order,
        num_samples=ceil(variant.samples * scale.num_thorough / seeds_of(cell, scale))
        if cell.variant and not problems
        else scale.num_samples,
        data=(problems or data).folder
        if problems or cell.variant is None
        else None,  # a test split has fewer boards than a variant takes
        top_p=1.0,
        seed=seed,
        precision=scale.precision,
    )
    evaluation = replace(evaluation, **variant.evaluation)
    made = Recipe(cell, data, training, evaluation, problems)
    return replace(made, training=replace(training, out=root / "models" / made.model))


def told(cell: Cell, scale: Scale, seed: int, root: Path, judge: str | None) -> Recipe:
    """The recipe of a cell of text."""
    budget, texts = scale.budgets[cell.task], scale.texts
    data = data_set(budget, root)
    evaluation = EvalConfig(
        latents=None if cell.latents is None else (cell.latents,),
        order=cell.order,
        num_samples=texts.num_samples,
        data=None if budget.imported else data.folder,
        top_p=0.9,
        seed=seed,
        batch_size=50,
    )
    training = TrainConfig(budget.task, cell.method, data=data.folder, seed=seed, **budget.training)
    made = Recipe(
        cell, data, training, evaluation, None, judge or texts.judge, texts.num_held_out, budget.imported
    )
    return replace(made, training=replace(training, out=root / "models" / made.model))


def data_set(budget: Budget, root: Path) -> DataConfig:
    """What a budget learns from."""
    data = DataConfig(budget.task, **budget.data)
    return replace(data, out=root / "data" / f"{budget.task}-{named(made_of(data))}")
