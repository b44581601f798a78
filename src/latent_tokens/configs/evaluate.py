"""The settings of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, get_args

from latent_tokens.checks import check_choice, check_int, check_threads
from latent_tokens.configs.forms import set_paths, set_tuple
from latent_tokens.configs.names import Precision
from latent_tokens.configs.sampling import NumLatents, SamplingConfig, check_sampling


@dataclass(frozen=True)
class EvalConfig(SamplingConfig):
    """An evaluation: one result row for each number of latent tokens.

    Example:
        >>> EvalConfig(latents=(0, 4, "all"), candidates=4).latents
        (0, 4, 'all')
    """

    latents: tuple[NumLatents, ...] | None = None  # type: ignore[assignment]
    """Number of latent tokens (n) in the input, one result row each. Numbers or all. With n = 0 the input
    still has the other k - 1 candidates. Default: the method's own, 0 for scdm and esolm."""
    num_samples: int | None = None
    """Samples per row. Default: 1,000, all problems of a smaller data set, or 100 for text."""
    data: Path | None = None
    """Data set directory made by `latent-tokens data`, whose test split is used. A model of Sudoku boards
    infills its puzzles. For text, the evaluator trigrams learns from its validation split. Default: problems
    of the test split are generated."""
    batch_size: int = 250
    """Samples decoded together. The samples do not depend on it."""
    precision: Precision = "fp32"
    """Floating-point format of the network. In bf16 single samples may depend on the batch."""
    protocol: Literal["paper"] | None = None
    """Protocol that sets candidates and samples. paper: 8 candidates, the first 1,280 problems of Zebra, and
    only models of padded sequences with EMA weights. Default: none."""
    threads: int | None = None
    """Number of CPU threads. Default: all cores."""

    def __post_init__(self) -> None:
        set_paths(self, "data")
        set_tuple(self, "latents")
        if self.num_samples is not None:
            check_int("num_samples", self.num_samples, 1)
        check_int("batch_size", self.batch_size, 1)
        if self.latents == ():
            raise ValueError("latents=(): must have numbers or 'all', like (0, 4, 'all')")
        for latents in self.latents or ():
            if latents != "all":
                check_int("latents", latents, 0)
        check_sampling(self)
        check_threads(self.threads)
        check_choice("protocol", self.protocol, (None, "paper"))
        for name in ("candidates", "num_samples"):
            if self.protocol is not None and getattr(self, name) is not None:
                raise ValueError(
                    f"{name}={getattr(self, name)} with protocol={self.protocol}: the protocol sets {name}. "
                    "Leave one of the two out."
                )
        check_choice("precision", self.precision, get_args(Precision))

    @property
    def samplings(self) -> tuple[SamplingConfig, ...]:
        """The settings of each result row: one `SamplingConfig` per number of latent tokens."""
        names = [field.name for field in fields(SamplingConfig) if field.name != "latents"]
        shared = {name: getattr(self, name) for name in names}
        return tuple(SamplingConfig(latents=latents, **shared) for latents in self.latents or (None,))
