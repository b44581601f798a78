"""What a `Model` returns: samples, and tables of results. Both index, iterate and become a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from latent_tokens.evaluation.report import table
from latent_tokens.evaluation.rows import Row
from latent_tokens.tasks import Tokens

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Samples:
    """The samples that `Model.generate` returns: N of L positions.

    It has the length and the order of its samples. Each item is a dict with its tokens, text, valid,
    tokens_processed and order.

    Example:
        >>> samples = load("sudoku-6-scdm").generate(num_samples=2, latents=4)
        >>> samples.tokens.shape, samples[1]["tokens"].shape
        ((2, 36), (36,))
        >>> [sample["tokens_processed"] for sample in samples] == samples.tokens_processed.tolist()
        True
    """

    tokens: Tokens  # (N, L)
    # A puzzle as its task writes it, or a text up to its first decoded end of document
    text: list[str]
    # (N,), whether the task's `verify` finds no error; None for text
    valid: NDArray[np.bool_] | None
    tokens_processed: NDArray[np.int64]  # (N,), summed over steps
    order: NDArray[np.int64]  # (N, L): positions as decoded, after the given ones
    forward_passes: int  # the largest number of steps of a sample
    # Whether n leaves out masked tokens that each input had in training
    off_distribution: bool = False

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The samples, one dict each."""
        valid = [None] * len(self.text) if self.valid is None else self.valid.tolist()
        names = ("tokens", "text", "valid", "tokens_processed", "order")
        columns = (self.tokens, self.text, valid, self.tokens_processed.tolist(), self.order)
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return len(self.text)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    def to_pandas(self) -> DataFrame:
        """Return the samples as a DataFrame, one per row.

        Raises:
            ValueError: pandas is not installed.

        Example:
            model.generate(num_samples=100, latents=4).to_pandas().valid.mean()
        """
        return as_frame(self.rows)


@dataclass(frozen=True)
class ResultTable:
    """The results that `Model.evaluate` returns: one row per combination of settings. It prints as a table.

    It has the length, the items and the order of its `rows`.

    Example:
        >>> results = load("sudoku-6-scdm").evaluate(latents=(0, 4), num_samples=2)
        >>> results[1]["latents"], [row["num_samples"] for row in results]
        (4, [2, 2])
    """

    rows: list[Row]
    title: str

    def __str__(self) -> str:
        return str(table(self.rows, self.title)) if self.rows else self.title

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> Row:
        return self.rows[index]

    def to_pandas(self) -> DataFrame:
        """Return the rows as a DataFrame.

        Raises:
            ValueError: pandas is not installed.

        Example:
            model.evaluate(latents=(0, 4, "all")).to_pandas().plot("relative_cost", "valid")
        """
        return as_frame(self.rows)


def as_frame(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return rows as a DataFrame. Raise ValueError if pandas is not installed."""
    try:
        import pandas
    except ImportError:
        fix = "Use pip install pandas."
        raise ValueError(f"to_pandas: pandas is not installed. {fix}") from None
    return pandas.DataFrame(rows)
