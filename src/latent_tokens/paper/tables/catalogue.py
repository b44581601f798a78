"""The paper's tables that need no run: its models, data sets and training, next to those of this package."""

from __future__ import annotations

from collections.abc import Callable

import torch

from latent_tokens.configs import TrainConfig
from latent_tokens.network.transformer import Transformer
from latent_tokens.paper.design.reference import DATA_SETS, MILLIONS_OF_PARAMETERS
from latent_tokens.paper.design.scales import SCALES
from latent_tokens.sizes import SIZES
from latent_tokens.tasks import TASKS, configured

Table = list[tuple[str, ...]]

VOCABULARY, LENGTH = 32, 128  # with MASK. With rotary positions no size depends on the length.


def models() -> Table:
    """Return the sizes with the number of parameters in the paper and in this package.

    The paper's network has adaLN (D-1, transformer architecture).
    """
    table: Table = [("model", "hidden", "heads", "layers", "paper, M", "ours, M")]
    for name, size in SIZES.items():
        with torch.device("meta"):
            count = sum(
                weight.numel() for weight in Transformer(size, VOCABULARY - 1, LENGTH, "rotary").parameters()
            )
        paper = MILLIONS_OF_PARAMETERS.get(name)
        table.append(
            (
                name,
                str(size.width),
                str(size.heads),
                str(size.layers),
                "" if paper is None else f"{paper}",
                f"{count / 1e6:.1f}",
            )
        )
    return table


def data_sets() -> Table:
    """Return the training examples, lengths and vocabularies of the paper and of this package.

    Ours are with its padding and without. No vocabulary counts MASK.
    """
    table: Table = [
        ("data set", "train size", "paper's length", "ours, padded", "ours", "paper's vocabulary", "ours")
    ]
    for name, entry in DATA_SETS.items():
        task, padded = TASKS[name], configured(name, {"padding": "paper"})
        vocabularies = f"{entry.vocabulary}", f"{padded.vocab_size}"
        table.append(
            (
                name,
                f"{entry.num_train:,}",
                f"{entry.length:,}",
                f"{padded.length:,}",
                f"{task.length:,}",
                *vocabularies,
            )
        )
    return table


def training() -> Table:
    """Model and epochs of each task in the paper, and what trains at each scale."""
    table: Table = [
        (
            "data set",
            "model",
            "epochs",
            "steps of 512",
            *(f"{scale}: task, model, steps x batch" for scale in ("cpu", "smoke")),
        )
    ]
    for name, entry in DATA_SETS.items():
        ours = []
        for scale in ("cpu", "smoke"):
            budget = SCALES[scale].budgets[name]
            ours.append(
                f"{budget.task}, {budget.training['size']}, {budget.training['steps']:,}"
                f" x {budget.training.get('batch_size', TrainConfig.batch_size)}"
            )
        table.append(
            (
                name,
                entry.size,
                str(entry.epochs),
                f"{SCALES['paper'].budgets[name].training['steps']:,}",
                *ours,
            )
        )
    return table


CATALOGUE: dict[str, Callable[[], Table]] = {
    "table-models": models,
    "table-datasets": data_sets,
    "table-training": training,
}
