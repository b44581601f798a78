"""Experiments: the tables and figures of the paper, and our ablations. Each is a title and a list of cells.

A new one is one more `Experiment`, and its name in `configs.ExperimentName`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from latent_tokens.checks import Registry
from latent_tokens.configs import OrderName
from latent_tokens.paper.reference import AR_MTP, TOP_PROB, UNIFORM, Column
from latent_tokens.paper.scales import BOARDS_9, Latents, Scale

WINDOWED = ("ar-mtp-window", "ar-ntp")  # how the names of the methods begin that show a window
ORDERS: tuple[OrderName, ...] = ("uniform", "top_prob")
CHOICES = (
    "plain",
    "random",
    "of a unit",
    "constrained",
    "constrained of a unit",
    "most certain",
    "least certain",
    "relevant",
)
WHICH: tuple[tuple[Latents, str], ...] = ((0, "plain"), (4, "plain"), (4, "relevant"), ("all", "plain"))
COMPUTE = ("12.5 % of the steps", "25 % of the steps", "50 % of the steps", "plain")
MODELS: tuple[tuple[str, Latents], ...] = (("scdm", 0), ("scdm", "all"), ("sidm", None), ("mdm", None))
WITH_LATENTS: tuple[tuple[str, Latents], ...] = (("scdm", "all"), ("mdm", None))
SUPERVISED: tuple[tuple[str, Latents], ...] = (("mdm", None), ("scdm", 0), ("scdm", 4), ("scdm", "all"))


@dataclass(frozen=True)
class Cell:
    """One number of a table or figure: a method on a task of the paper, decoded in an order.

    `latents` is their number (None: the method's own).

    `problems` names another task, whose puzzles a model of boards infills. A `variant` (VARIANTS) changes
    one thing, and is measured on more samples.
    """

    task: str
    method: str
    order: OrderName
    latents: Latents = None
    problems: str | None = None
    variant: str | None = None


@dataclass(frozen=True)
class Experiment:
    """The title of a figure, the cells at a scale, and a note under the table."""

    title: str
    cells: Callable[[Scale], list[Cell]]
    note: str = ""


def printed_cells(table: dict[str, Column]) -> list[Cell]:
    """A cell for each number of a table."""
    return [Cell(task, method, order) for task, column in table.items() for method, order in column]  # type: ignore[arg-type]


def curve(task: str, scale: Scale, problems: str | None = None) -> list[Cell]:
    """scdm over its numbers of latent tokens, and sidm and mdm."""
    dial = [Cell(task, "scdm", "top_prob", latents, problems) for latents in scale.dial_of(task)]
    return [*dial, *(Cell(task, method, "top_prob", problems=problems) for method in ("sidm", "mdm"))]


def written(scale: Scale, dial: tuple[Latents, ...]) -> list[Cell]:
    """Text models over their numbers of latent tokens, and an mdm to compare with."""
    return [
        Cell("text", "mdm", "uniform"),
        *(Cell("text", method, "uniform", n) for method in scale.texts.methods for n in dial),
    ]


def windows(task: str, scale: Scale, kinds: tuple[str, ...] = WINDOWED) -> list[Cell]:
    """Return autoregressive models over the number of predicted tokens, trained on all or the next."""
    names = [
        f"{kind}-{window}"
        for kind in kinds
        for window in scale.windows_of(task)
        if (kind, window) != ("ar-ntp", 1)
    ]  # the same as ar-mtp-window-1
    return [Cell(task, method, "left_to_right") for method in ("arm", *names)]


def boards_of_9(scale: Scale) -> list[Cell]:
    """Return Figure 1 on 9x9 boards, with both other orders and with adaptive candidates."""
    task = BOARDS_9 if BOARDS_9 in scale.budgets else "sudoku-gen"
    adaptive = [Cell(task, method, "top_prob", n, variant="k=growing") for method, n in MODELS]
    return [
        *curve(task, scale),
        *windows(task, scale, ("ar-mtp-window",)),
        Cell(task, "ar-mtp", "left_to_right"),
        *(Cell(task, method, "uniform") for method in ("mdm", "sidm")),
        *adaptive,
    ]


EXPERIMENTS: Registry[Experiment] = Registry(
    "experiment",
    {
        "figure-1": Experiment(
            "Valid boards by the number of latent tokens",
            lambda scale: [
                *curve("sudoku-gen", scale),
                *windows("sudoku-gen", scale),
                Cell("sudoku-gen", "ar-mtp", "left_to_right"),
            ],
        ),
        "figure-1-9x9": Experiment(
            "Valid 9x9 boards by the number of latent tokens",
            boards_of_9,
            "k=growing takes as many candidates as there are clean tokens, plus one.",
        ),
        "table-1": Experiment(
            "With latent tokens (MDM) and without (SIDM)",
            lambda scale: printed_cells(TOP_PROB),
        ),
        "table-1-uniform": Experiment(
            "With latent tokens (MDM) and without (SIDM), in uniform and in top-prob order",
            lambda scale: [
                *printed_cells(UNIFORM),
                *(Cell("sudoku-gen", method, "uniform") for method in ("mdm", "sidm")),
                *printed_cells(TOP_PROB),
                *(Cell("sudoku-gen", method, "top_prob") for method in ("mdm", "sidm")),
            ],
        ),
        "table-ar-mtp": Experiment(
            "Autoregressive models with latent tokens (AR-MTP) and without (ARM)",
            lambda scale: printed_cells(AR_MTP),
        ),
        "figure-latents": Experiment(
            "Accuracy by the number of latent tokens",
            lambda scale: [
                *(cell for task in AR_MTP for cell in curve(task, scale)),
                *curve("sudoku-gen", scale, problems="sudoku-puzzle"),
            ],
        ),
        "figure-sudoku-large": Experiment(
            "Large boards: soft loss by the number of predicted tokens (lower is better)",
            lambda scale: [*windows("sudoku-large", scale), Cell("sudoku-large", "mdm", "uniform")],
        ),
        "figure-text": Experiment(
            "Text: latent tokens added at inference",
            lambda scale: written(scale, scale.texts.dial),
        ),
        "table-text": Experiment(
            "Text: with latent tokens (MDM), and without them and with a KV cache (Eso-LM)",
            lambda scale: written(scale, (0,)),
        ),
        "ablation-refresh": Experiment(
            "Algorithm 5: schedule reshuffled after every step, or as printed",
            lambda scale: [
                boards("scdm", "top_prob", latents, name)
                for latents in (*scale.chosen, "all")
                for name in ("plain", "as printed")
            ],
            "Measured for scdm only. All other results of mdm, sidm and scdm use the reshuffled schedule,"
            " which Algorithms 4 and 5 do not print.",
        ),
        "ablation-weight": Experiment(
            "AR-MTP: loss divided by all tokens to decode, or by the predicted ones (elbo)",
            lambda scale: [boards("ar-mtp", "left_to_right", None, name) for name in ("plain", "elbo")],
        ),
        "figure-compute": Experiment(
            "Accuracy by training steps",
            lambda scale: [
                boards(method, "left_to_right", None, name)
                for method in ("arm", "ar-mtp")
                for name in COMPUTE
            ],
        ),
        "ablation-candidates": Experiment(
            "Number of candidates",
            lambda scale: [
                boards(method, "top_prob", latents, f"k={k}")
                for method, latents in MODELS
                for k in (1, 2, 4, 8, 16, "all", "growing")
                if (latents, k) != (0, "all")  # no masked token is left for n = all either
            ],
            "k = all leaves no latent tokens, so scdm's result there holds for every n.",
        ),
        "ablation-infilling": Experiment(
            "Number of candidates, for a model of boards that infills puzzles",
            lambda scale: [
                Cell("sudoku-gen", method, "top_prob", latents, "sudoku-puzzle", f"k={k}")
                for method, latents in MODELS
                for k in (4, 8, "all", "growing")
                if (latents, k) != (0, "all")
            ],
            "k = all leaves no latent tokens, so scdm's result there holds for every n."
            " All seeds solve the same 1,000 puzzles.",
        ),
        "ablation-growing": Experiment(
            "Adaptive candidates (k = clean tokens + 1) on other tasks",
            lambda scale: [
                Cell(task, method, "top_prob", latents, variant=name)
                for task in ("sudoku-puzzle", "zebra", "countdown")
                for method, latents in MODELS[1:]
                for name in ("plain", "k=growing")
            ],
        ),
        "ablation-schedule": Experiment(
            "The same total number of latent tokens, at different steps",
            lambda scale: [
                boards("scdm", order, None, name)
                for order in ORDERS
                for name in ("constant", "a share", "early", "late")
            ],
        ),
        "ablation-targets": Experiment(
            "Training on all masked tokens, or on the target only",
            lambda scale: [
                boards(method, order, latents, name)
                for order in ORDERS
                for method, latents in SUPERVISED
                for name in ("plain", "target only")
            ],
        ),
        "ablation-latents": Experiment(
            "Which masked tokens serve as latents",
            lambda scale: [
                *(boards("scdm", order, latents, "plain") for order in ORDERS for latents in (0, "all")),
                *(
                    boards("scdm", order, latents, name)
                    for order in ORDERS
                    for name in CHOICES
                    for latents in scale.chosen
                ),
            ],
            "The default is the nearest masked tokens of the schedule.",
        ),
        "ablation-relevant": Experiment(
            "Four relevant latent tokens, on other tasks",
            lambda scale: [
                Cell(task, "scdm", order, latents, variant=name)
                for task in ("sudoku-puzzle", "zebra", "countdown")
                for order in ORDERS
                for latents, name in WHICH
            ],
        ),
        "figure-dead-ends": Experiment(
            "Boards without a solution left, by the number of candidates",
            lambda scale: [
                boards(method, "top_prob", latents, f"dead ends, k={k}")
                for method, latents in WITH_LATENTS
                for k in (1, 8, "all", "growing")
            ],
        ),
        "figure-predictions": Experiment(
            "Latent tokens whose most probable token is the one decoded later",
            lambda scale: [
                *(boards("scdm", order, latents, "watched") for order in ORDERS for latents in (4, "all")),
                *(boards("mdm", order, None, "watched") for order in ORDERS),
                boards("ar-mtp", "left_to_right", None, "watched"),
            ],
        ),
    },
)


def boards(method: str, order: OrderName, latents: Latents, variant: str) -> Cell:
    """A cell of an ablation: generated boards."""
    return Cell("sudoku-gen", method, order, latents, variant=variant)
