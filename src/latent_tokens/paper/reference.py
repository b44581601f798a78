"""The numbers that the paper prints, table by table. claims.py quotes the captions of its figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Printed:
    """An accuracy in percent and, where a table has it, the tokens processed relative to MDM's."""

    accuracy: float
    cost: float | None = None


@dataclass(frozen=True)
class PrintedText:
    """Generative perplexity under an evaluator model without a name, and seconds for 1,024 tokens."""

    perplexity: float
    seconds: float


Column = dict[tuple[str, str], Printed]  # (method, order) -> what is printed

# Table 1, whose Sudoku is Sudoku-Puzzle
TOP_PROB: dict[str, Column] = {
    "sudoku-puzzle": {
        ("mdm", "top_prob"): Printed(80.2, 1.00),
        ("sidm", "top_prob"): Printed(68.1, 0.54),
    },
    "zebra": {("mdm", "top_prob"): Printed(96.9, 1.00), ("sidm", "top_prob"): Printed(71.5, 0.52)},
    "countdown": {
        ("mdm", "top_prob"): Printed(27.3, 1.00),
        ("sidm", "top_prob"): Printed(18.4, 0.60),
    },
}

# Table 2; esolm is its SCDM*, without latents
TEXT = {"mdm": PrintedText(36.48, 752.06), "esolm": PrintedText(48.86, 33.33)}

# Table 4, first block
UNIFORM: dict[str, Column] = {
    "sudoku-puzzle": {
        ("mdm", "uniform"): Printed(12.1, 1.00),
        ("sidm", "uniform"): Printed(4.1, 0.50),
    },
    "zebra": {("mdm", "uniform"): Printed(26.6, 1.00), ("sidm", "uniform"): Printed(14.3, 0.50)},
    "countdown": {("mdm", "uniform"): Printed(17.9, 1.00), ("sidm", "uniform"): Printed(9.4, 0.50)},
}

# Table 3
AR_MTP: dict[str, Column] = {
    task: {
        ("arm", "left_to_right"): Printed(arm),
        ("ar-mtp", "left_to_right"): Printed(ar_mtp),
        ("mdm", "uniform"): Printed(uniform),
        ("mdm", "top_prob"): Printed(top_prob),
    }
    for task, arm, ar_mtp, uniform, top_prob in (
        ("sudoku-gen", 27.4, 78.3, 40.5, 86.4),
        ("sudoku-puzzle", 5.5, 53.6, 12.1, 80.2),
        ("zebra", 54.7, 68.8, 26.6, 96.9),
        ("countdown", 2.6, 8.6, 17.9, 27.3),
    )
}


@dataclass(frozen=True)
class DataSet:
    """A line of the tables of data sets and of training."""

    num_train: int
    length: int
    vocabulary: int
    size: str
    epochs: int


DATA_SETS = {
    "sudoku-gen": DataSet(100_000, 128, 11, "sminy", 100),
    "sudoku-puzzle": DataSet(1_800_000, 192, 14, "mini", 20),
    "zebra": DataSet(1_500_000, 384, 23, "mini", 50),
    "countdown": DataSet(500_000, 64, 20, "tiny", 300),
    "sudoku-large": DataSet(100_000, 1_536, 38, "sminy", 50),
}
ARM_ON_COUNTDOWN_EPOCHS = 40  # it overfits from there (appendix, training)
PAPER_CANDIDATES = 8  # k of every top-prob decoding (appendix E.2)
