"""The return values of the methods of `Model`."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from latent_tokens.evaluation.report import table
from latent_tokens.evaluation.rows import Row
from latent_tokens.tasks import Tokens

if TYPE_CHECKING:
    from pandas import DataFrame

WIDTH = 110  # columns of a printed table


@dataclass(frozen=True)
class Samples:
    """The samples that `Model.generate` returns: N of L positions.

    Example:
        >>> load("sudoku-6-scdm").generate(num_samples=2, latents=4).tokens.shape
        (2, 36)
    """

    tokens: Tokens  # (N, L)
    text: list[str]
    valid: NDArray[np.bool_] | None  # (N,), whether the task's `verify` finds no error; None for text
    tokens_processed: NDArray[np.int64]  # (N,), summed over steps
    order: NDArray[np.int64]  # (N, L): positions as decoded, after the given ones
    forward_passes: int  # the largest number of steps of a sample
    off_distribution: bool = False  # whether n leaves out masked tokens that each input had in training


@dataclass(frozen=True)
class ResultTable:
    """The results that `Model.evaluate` returns: one row per number of latent tokens. It prints as a table.

    Example:
        >>> load("sudoku-6-scdm").evaluate(latents=(0, 4), num_samples=2).rows[1]["latents"]
        4
    """

    rows: list[Row]
    title: str

    def __str__(self) -> str:
        text = io.StringIO()
        Console(file=text, width=WIDTH).print(table(self.rows, self.title))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def to_pandas(self) -> DataFrame:
        """Return the rows as a DataFrame.

        Raises:
            ValueError: pandas is not installed.

        Example:
            model.evaluate(latents=(0, 4, "all")).to_pandas().plot("relative_cost", "valid")
        """
        try:
            import pandas
        except ImportError:
            raise ValueError("to_pandas: pandas is not installed. Use pip install pandas.") from None
        return pandas.DataFrame(self.rows)
