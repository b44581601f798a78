"""Experiments: the tables and figures of the paper. Each is a title and a list of cells, one per number.

A new one is one more `Experiment`, and its name in `configs.ExperimentName`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from latent_tokens.checks import Registry
from latent_tokens.configs import NumCandidates, NumLatents, OrderName
from latent_tokens.core.cost import relative_cost, tokens_processed
from latent_tokens.paper.reference import (
    AR_MTP,
    DATA_SETS,
    PAPER_CANDIDATES,
    TOP_PROB,
    UNIFORM,
    Column,
)
from latent_tokens.paper.scales import BOARDS_9, Scale
from latent_tokens.tasks import SudokuPuzzle

# Tasks whose problems are the same for every seed
PUZZLE_TASKS = ("sudoku-puzzle", "zebra", "countdown")
REFERENCE_METHODS: tuple[tuple[str, NumLatents | None], ...] = (("sidm", None), ("mdm", None))


@dataclass(frozen=True)
class Cell:
    """One number of a table or figure: a method on a task of the paper, decoded in an order.

    `latents` is their number (None: the method's own). `problems` names another task, whose puzzles
    a model of boards infills. `k` is the number of candidates (None: the task's own). A cell with a
    k of its own is measured on more samples.
    """

    task: str
    method: str
    order: OrderName
    latents: NumLatents | None = None
    problems: str | None = None
    k: NumCandidates | None = None

    @property
    def legacy_name(self) -> str | None:
        """The name of its k in rows and tables of every version."""
        return None if self.k is None else f"k={self.k}"

    @property
    def entries(self) -> dict[str, object]:
        """The cell as rows have it."""
        names = ("task", "method", "order", "latents", "problems")
        return {**{name: getattr(self, name) for name in names}, "variant": self.legacy_name}


@dataclass(frozen=True)
class Experiment:
    """The title of a figure, the cells at a scale, and a note under the table."""

    title: str
    cells: Callable[[Scale], list[Cell]]
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """A claim that one cell is better than another. `source` is the place in the paper that states it."""

    text: str
    better: Cell
    worse: Cell
    source: str


WINDOWED = ("ar-mtp-window", "ar-ntp")  # how the names of the methods begin that show a window


def printed_cells(table: dict[str, Column]) -> list[Cell]:
    """Return a cell for each number of a table."""
    return [Cell(task, method, order) for task, column in table.items() for method, order in column]  # type: ignore[arg-type]


def costs_of_sidm() -> str:
    """Return the cost of SIDM at the paper's lengths by both conventions (D-21, relative cost)."""
    costs = ", ".join(
        f"{task} {relative_cost(DATA_SETS[task].length, PAPER_CANDIDATES, 0):.3f}x"
        f" (paper {column['sidm', 'top_prob'].cost:.2f}x)"
        for task, column in TOP_PROB.items()
    )
    puzzle = SudokuPuzzle("sudoku-puzzle", 3, 3)
    processed = tokens_processed(puzzle.length, puzzle.start, PAPER_CANDIDATES, 0)
    given = processed / (puzzle.length * (puzzle.length - puzzle.start))
    return (
        f"If prompts and pads count as decoded, SIDM at k = {PAPER_CANDIDATES} costs: {costs}."
        f" With the prompt given, and without pads, sudoku-puzzle costs {given:.3f}x."
        " In the last column prompts and pads count as decoded. In the column before it prompts are given."
    )


def curve(task: str, scale: Scale, problems: str | None = None) -> list[Cell]:
    """Return scdm over its numbers of latent tokens, and sidm and mdm."""
    k = scale.budgets[task].curve_candidates
    models = [*(("scdm", latents) for latents in scale.latent_counts_of(task)), *REFERENCE_METHODS]
    return [Cell(task, method, "top_prob", latents, problems, k) for method, latents in models]


def written(scale: Scale, latent_counts: tuple[NumLatents | None, ...]) -> list[Cell]:
    """Return text models over their numbers of latent tokens, and an mdm to compare with."""
    over_n = [(method, n) for method in scale.texts.methods for n in latent_counts]
    mdm = Cell("text", "mdm", "uniform")
    return [mdm, *(Cell("text", method, "uniform", n) for method, n in over_n)]


def windows(task: str, scale: Scale, kinds: tuple[str, ...] = WINDOWED) -> list[Cell]:
    """Return autoregressive models over the number of predicted tokens, trained on all or the next."""
    names = [f"{kind}-{window}" for kind in kinds for window in scale.windows_of(task)]
    names = [name for name in names if name != "ar-ntp-1"]  # the same as ar-mtp-window-1
    return [Cell(task, method, "left_to_right") for method in ("arm", *names)]


def boards_of_9(scale: Scale) -> list[Cell]:
    """Return Figure 1 on 9x9 boards, with both other orders and with adaptive candidates."""
    task = BOARDS_9 if BOARDS_9 in scale.budgets else "sudoku-gen"
    models: list[tuple[str, NumLatents | None]] = [("scdm", 0), ("scdm", "all"), *REFERENCE_METHODS]
    adaptive = [Cell(task, method, "top_prob", n, k="growing") for method, n in models]
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
            costs_of_sidm(),
        ),
        "table-1-uniform": Experiment(
            "With latent tokens (MDM) and without (SIDM), in uniform and in top-prob order",
            lambda scale: [
                *printed_cells(UNIFORM),
                *(Cell("sudoku-gen", method, "uniform") for method in ("mdm", "sidm")),
                *printed_cells(TOP_PROB),
                *(Cell("sudoku-gen", method, "top_prob") for method in ("mdm", "sidm")),
            ],
            costs_of_sidm(),
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
            lambda scale: written(scale, scale.texts.latent_counts),
        ),
        "table-text": Experiment(
            "Text: with latent tokens (MDM), and without them and with a KV cache (Eso-LM)",
            lambda scale: written(scale, (0,)),
        ),
    },
)
