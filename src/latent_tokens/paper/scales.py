"""Scales: the task, the training and the number of samples that replace those of the paper."""

from __future__ import annotations

import pydoc_data.topics
from dataclasses import dataclass, field, replace
from typing import Any

from latent_tokens.checks import Registry
from latent_tokens.configs import NumLatents, Precision, TaskName
from latent_tokens.evaluation.settings import NUM_ZEBRA
from latent_tokens.paper.reference import DATA_SETS, PAPER_CANDIDATES

BOARDS_9 = "sudoku-gen-9x9"  # the paper's own task of boards, next to 6x6 boards in its place
# Written by scripts/english.py
ENGLISH = {"source": "texts/english", "length": 128, "tokenizer": "bpe:1024"}


@dataclass(frozen=True)
class Budget:
    """The task that replaces one of the paper at a scale, and its training unless it is `imported`.

    A field that is None takes the value of the scale.
    """

    task: TaskName
    training: dict[str, Any]
    data: dict[str, Any] = field(default_factory=dict)
    candidates: int = PAPER_CANDIDATES  # k of top_prob
    seeds: int = 1  # how often each method is trained
    imported: bool = False
    precision: Precision | None = None  # of sampling
    latent_counts: tuple[NumLatents | None, ...] | None = None  # numbers of latents
    windows: tuple[int, ...] | None = None  # numbers of predicted tokens
    # K of figures over n, if `candidates` leave no latent tokens
    curve_candidates: int | None = None


@dataclass(frozen=True)
class Texts:
    """The measurement of a model of text: an evaluator model, generated texts, and held-out likelihood."""

    evaluator: str
    num_samples: int
    num_held_out: int  # sequences whose likelihood is measured
    methods: tuple[str, ...] = ("esolm", "scdm")
    latent_counts: tuple[NumLatents | None, ...] = (0, 1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Scale:
    """Budgets by the paper's name of the task, numbers of samples, and the windows and latents of figures."""

    budgets: dict[str, Budget]
    num_samples: int
    num_thorough: int  # samples of a cell with a k of its own, of all its seeds together
    latent_counts: tuple[NumLatents | None, ...]
    windows: tuple[int, ...]
    texts: Texts
    precision: Precision = "fp32"  # of sampling

    def latent_counts_of(self, task: str) -> tuple[NumLatents | None, ...]:
        """Return the numbers of latent tokens of a figure of a task."""
        return self.budgets[task].latent_counts or self.latent_counts

    def windows_of(self, task: str) -> tuple[int, ...]:
        """Return the windows of a figure of a task."""
        return self.budgets[task].windows or self.windows


def published(task: TaskName, name: str, **data: Any) -> Budget:
    """Return the published budget: padded, a constant rate after a warmup, and bf16.

    All tokens are noised in training, also those of prompts, except on boards.

    The sources are three decisions:

    - D-7, published optimizer settings
    - D-8, noised positions
    - D-10, padding
    """
    entry = DATA_SETS[name]
    training = {
        "size": entry.size, "steps": entry.epochs * entry.num_train // 512, "batch_size": 512,
        "lr": 3e-4, "warmup": 2_500, "schedule": "constant",
        "precision": "bf16", "dropout": 0.1, "positions": "both", "gelu": "tanh",
        "noise": "answer" if "puzzle" not in name and task.startswith("sudoku") else "all",
    }  # fmt: skip
    return Budget(task, training, {"padding": "paper", "num_train": entry.num_train, **data})


def cpu_budget(task: TaskName, precision: Precision | None = None, **training: Any) -> Budget:
    """Return the budget of a 6x6 task of three seeds that trains on two cores."""
    training = {"size": "nano", "precision": "fp32", **training}
    return Budget(task, training, {"num_train": 100_000}, 4, seeds=3, precision=precision)


def longer_budget(
    task: TaskName, num_train: int, precision: Precision = "fp32", **training: Any
) -> Budget:
    """Return a budget of three seeds and batches of 64, in one precision throughout."""
    training = {"size": "nano", "precision": precision, "batch_size": 64, **training}
    return Budget(task, training, {"num_train": num_train}, seeds=3, precision=precision)


def smoke_budget(task: TaskName, **data: Any) -> Budget:
    """Return a budget of a few steps, which checks that everything runs."""
    training = {
        "size": "pico", "precision": "fp32", "steps": 6, "batch_size": 8, "warmup": 2,
        "evaluate_every": 3, "save_every": 3,
    }  # fmt: skip
    sizes = {"num_train": 256, "num_validation": 16, "num_test": 16}
    return Budget(task, training, {**sizes, **data}, candidates=4)


ZEBRA = longer_budget(
    "zebra-compact-3", 300_000, "bf16", steps=8_000, warmup=300, positions="learned"
)
COUNTDOWN = longer_budget("countdown-3", 400_000, "bf16", steps=12_000, warmup=500)

SCALES: Registry[Scale] = Registry(
    "scale",
    {
        "smoke": Scale(
            {
                "sudoku-gen": smoke_budget("sudoku-6"),
                "sudoku-puzzle": smoke_budget("sudoku-6-puzzle"),
                "zebra": replace(smoke_budget("zebra-compact-3"), curve_candidates=2),
                "countdown": smoke_budget("countdown-3"),
                "sudoku-large": smoke_budget("sudoku-4"),
                "text": smoke_budget("text", source=pydoc_data.topics.__file__, length=16),
            },
            num_samples=4,
            num_thorough=4,
            latent_counts=(0, "all"),
            windows=(1, 4),
            texts=Texts("trigrams", 4, 2, latent_counts=(0, 4)),
        ),
        "cpu": Scale(
            {
                "sudoku-gen": cpu_budget("sudoku-6", steps=3_400),
                BOARDS_9: replace(
                    longer_budget("sudoku-9", 100_000, steps=4_000),
                    latent_counts=(0, 4, 8, 16, 32, "all"),
                    windows=(8, 32),
                ),
                "sudoku-puzzle": cpu_budget("sudoku-6-puzzle", "fp32", steps=2_400),
                "zebra": replace(ZEBRA, curve_candidates=2, latent_counts=(0, 2, 4, "all")),
                "countdown": replace(COUNTDOWN, latent_counts=(0, 4, 8, 16, "all")),
                "sudoku-large": replace(
                    longer_budget("sudoku-9-pattern", 100_000, steps=1_500), windows=(1, 4, 16, 64)
                ),
                "text": Budget(
                    "text",
                    {"size": "nano", "precision": "fp32", "steps": 6_000, "positions": "rotary"},
                    ENGLISH,
                ),
            },
            num_samples=1_000,
            num_thorough=4_000,
            latent_counts=(0, 2, 4, 8, 16, "all"),
            windows=(1, 4, 16),
            texts=Texts("smollm2", 100, 64),
            precision="bf16",
        ),
        "paper": Scale(
            {
                "sudoku-gen": published("sudoku-9", "sudoku-gen"),
                "sudoku-puzzle": published("sudoku-puzzle", "sudoku-puzzle"),
                "zebra": published("zebra", "zebra", num_test=NUM_ZEBRA),
                "countdown": published("countdown", "countdown"),
                "sudoku-large": published("sudoku-36", "sudoku-large"),
                "text": Budget("text", {"size": "small"}, imported=True),
            },
            num_samples=1_000,
            num_thorough=4_000,
            latent_counts=(0, 4, 8, 16, 32, 64, "all"),
            windows=(1, 8, 32, 128),
            texts=Texts("gpt2-large", 1_000, 0, methods=("esolm",)),
            precision="bf16",
        ),
    },
)
