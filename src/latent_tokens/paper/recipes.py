"""Recipes: what is trained and measured for every cell of the paper, at three scales.

A table is a list of cells. A cell says in the paper's words what it holds; a scale says what stands for each task and how it is
trained. A new experiment is one more list of cells, a new budget one more `Budget`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from latent_tokens.configs import DataConfig, EvalConfig, Names, OrderName, ScaleName, TaskName, TrainConfig
from latent_tokens.paper.reference import AR_MTP, ARM_ON_COUNTDOWN_EPOCHS, CANDIDATES, DATA_SETS, TOP_PROB, UNIFORM, Column

Latents = int | Literal["all"] | None

FORWARD = ("arm", "ar-mtp", "ar-ntp")  # how the names of the methods begin that decode from left to right
WINDOWED = ("ar-mtp-window", "ar-ntp")
IRRELEVANT = ("out", "data", "resume", "processes", "save_every")  # settings that no outcome depends on; the data have a config of their own


@dataclass(frozen=True)
class Cell:
    """One number of a table or figure: a method on a task of the paper, decoded in an order with so many latents (None: its own).

    `problems` names another task whose problems are solved: puzzles, infilled by a model of boards.
    """

    task: str
    method: str
    order: OrderName
    latents: Latents = None
    problems: str | None = None


@dataclass(frozen=True)
class Budget:
    """What stands for a task of the paper at some scale, and how it is learned there."""

    task: TaskName
    training: dict[str, Any]
    data: dict[str, Any] = field(default_factory=dict)
    candidates: int = CANDIDATES  # k of top_prob
    seeds: int = 1  # how often each method is trained


@dataclass(frozen=True)
class Scale:
    """Budgets by the paper's name of the task, how many samples are drawn, and the windows and numbers of latents of its figures."""

    budgets: dict[str, Budget]
    num_samples: int
    dial: tuple[Latents, ...]
    windows: tuple[int, ...]
    precision: Literal["fp32", "bf16"] = "fp32"  # of sampling


@dataclass(frozen=True)
class Recipe:
    """A model to train from a seed, and one thing to measure of it. Recipes that train alike share the model."""

    cell: Cell
    data: DataConfig
    training: TrainConfig
    evaluation: EvalConfig
    problems: DataConfig | None = None  # puzzles, where the model learned boards

    @property
    def model(self) -> str:
        """The name of the model: what it learned, how, from which seed, and a hash of all that its weights are a function of."""
        about = {"data": settings(self.data), "training": settings(self.training)}
        return f"{self.training.task}-{self.training.method}-{self.training.seed}-{short_hash(about)}"

    @property
    def hash(self) -> str:
        """Of all that the row is a function of."""
        return short_hash({"model": self.model, "evaluation": settings(self.evaluation), "problems": self.problems and settings(self.problems)})


def settings(config: DataConfig | TrainConfig | EvalConfig) -> dict[str, Any]:
    """A config without what no outcome depends on."""
    return {name: value for name, value in asdict(config).items() if name not in IRRELEVANT}


def short_hash(content: dict[str, Any]) -> str:
    """Twelve hexadecimal digits of the SHA-256 of a JSON object."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def published(task: TaskName, name: str) -> Budget:
    """The published setting (decisions 7, 8 and 10): padded, a constant rate after a warm-up, bf16; all tokens learned but on boards."""
    about = DATA_SETS[name]
    training = {
        "size": about.size, "steps": about.epochs * about.num_train // 512, "batch_size": 512, "lr": 3e-4, "warmup": 2_500, "schedule": "constant",
        "dropout": 0.1, "positions": "both", "gelu": "tanh", "noise": "answer" if "puzzle" not in name and task.startswith("sudoku") else "all",
    }  # fmt: skip
    return Budget(task, training, {"padding": "paper", "num_train": about.num_train})


def small(task: TaskName, *, candidates: int, seeds: int, **training: Any) -> Budget:
    """A sibling of a task at which two cores show the same."""
    return Budget(task, {"size": "nano", **training}, {"num_train": 100_000}, candidates, seeds)


def seconds(task: TaskName) -> Budget:
    """A few steps, to see that everything runs."""
    training = {"size": "nano", "steps": 6, "batch_size": 8, "warmup": 2, "evaluate_every": 3, "save_every": 3}
    return Budget(task, training, {"num_train": 256, "num_validation": 16, "num_test": 16}, 4)


SCALES: Names[Scale] = Names(
    "scale",
    {
        "smoke": Scale(
            {
                "sudoku-gen": seconds("sudoku-6"),
                "sudoku-puzzle": seconds("sudoku-6-puzzle"),
                "zebra": seconds("zebra-3"),
                "countdown": seconds("countdown-3"),
                "sudoku-large": seconds("sudoku-4"),
            },
            num_samples=4,
            dial=(0, "all"),
            windows=(4,),
        ),
        "cpu": Scale(
            {
                "sudoku-gen": small("sudoku-6", candidates=4, seeds=3, steps=3_400),
                "sudoku-puzzle": small("sudoku-6-puzzle", candidates=4, seeds=1, steps=2_400),
                "zebra": small("zebra-3", candidates=2, seeds=1, steps=1_800),
                "countdown": small("countdown-3", candidates=4, seeds=1, steps=4_000),
                "sudoku-large": small("sudoku-16", candidates=8, seeds=1, steps=1_200, batch_size=16),
            },
            num_samples=1_000,
            dial=(0, 2, 4, 8, 16, "all"),
            windows=(4, 16),
            precision="bf16",
        ),
        "paper": Scale(
            {
                "sudoku-gen": published("sudoku-9", "sudoku-gen"),
                "sudoku-puzzle": published("sudoku-puzzle", "sudoku-puzzle"),
                "zebra": published("zebra", "zebra"),
                "countdown": published("countdown", "countdown"),
                "sudoku-large": published("sudoku-36", "sudoku-large"),
            },
            num_samples=1_000,
            dial=(0, 4, 8, 16, 32, 64, "all"),
            windows=(8, 32, 128),
            precision="bf16",
        ),
    },
)


def printed_cells(table: dict[str, Column]) -> list[Cell]:
    """A cell for each number of a table."""
    return [Cell(task, method, order) for task, column in table.items() for method, order in column]  # type: ignore[arg-type]


def curve(task: str, scale: Scale, problems: str | None = None) -> list[Cell]:
    """scdm over its dial, between sidm and mdm."""
    dial = [Cell(task, "scdm", "top_prob", latents, problems) for latents in scale.dial]
    return [*dial, *(Cell(task, method, "top_prob", problems=problems) for method in ("sidm", "mdm"))]


def windows(task: str, scale: Scale, *others: str) -> list[Cell]:
    """Autoregressive models over the number of tokens they predict, trained to predict all of them or the next alone."""
    names = [f"{kind}-{window}" for kind in WINDOWED for window in scale.windows]
    return [Cell(task, method, "left_to_right") for method in ("arm", *names, *others)]


EXPERIMENTS: Names[Callable[[Scale], list[Cell]]] = Names(
    "experiment",
    {
        "figure-1": lambda scale: [*curve("sudoku-gen", scale), *windows("sudoku-gen", scale, "ar-mtp")],
        "table-1": lambda scale: printed_cells(TOP_PROB),
        "table-1-uniform": lambda scale: [*printed_cells(UNIFORM), *printed_cells(TOP_PROB)],
        "table-ar-mtp": lambda scale: printed_cells(AR_MTP),
        "figure-latents": lambda scale: [
            *(cell for task in AR_MTP for cell in curve(task, scale)),
            *curve("sudoku-gen", scale, problems="sudoku-puzzle"),
        ],
        "figure-sudoku-large": lambda scale: [*windows("sudoku-large", scale), Cell("sudoku-large", "mdm", "uniform")],
    },
)


def recipes(experiment: str, scale_name: ScaleName, root: Path) -> list[Recipe]:
    """What must be trained and measured for an experiment, cell by cell and seed by seed. Raises ValueError for a name that is not there.

    `root` is where data sets and models go.
    """
    scale = SCALES[scale_name]
    return [recipe(cell, scale, seed, root / scale_name) for cell in EXPERIMENTS[experiment](scale) for seed in range(seeds_of(cell, scale))]


def seeds_of(cell: Cell, scale: Scale) -> int:
    """How often the cell's model is trained: at most twice with a window."""
    seeds = scale.budgets[cell.task].seeds
    return min(2, seeds) if cell.method.startswith(WINDOWED) else seeds


def recipe(cell: Cell, scale: Scale, seed: int, root: Path) -> Recipe:
    """The recipe of a cell at a scale, from a seed."""
    budget = scale.budgets[cell.task]
    data = data_set(budget, root)
    training = TrainConfig(budget.task, cell.method, data=data.folder, seed=seed, **budget.training)
    if scale is SCALES["paper"] and (cell.task, cell.method) == ("countdown", "arm"):
        training = replace(training, steps=ARM_ON_COUNTDOWN_EPOCHS * DATA_SETS["countdown"].num_train // training.batch_size)
    problems = None if cell.problems is None else data_set(scale.budgets[cell.problems], root)
    evaluation = EvalConfig(
        latents=None if cell.latents is None else (cell.latents,),
        candidates=budget.candidates if cell.order == "top_prob" else None,
        order=cell.order,
        num_samples=scale.num_samples,
        data=data.folder,
        seed=seed,
        precision=scale.precision,
    )
    made = Recipe(cell, data, training, evaluation, problems)
    return replace(made, training=replace(training, out=root / "models" / made.model))


def data_set(budget: Budget, root: Path) -> DataConfig:
    """What a budget learns from."""
    data = DataConfig(budget.task, **budget.data)
    return replace(data, out=root / "data" / f"{budget.task}-{short_hash(settings(data))}")
