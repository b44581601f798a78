"""The settings of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from latent_tokens.checks import check_choice, check_int
from latent_tokens.configs.names import Precision
from latent_tokens.configs.sampling import OrderName, PolicyName


@dataclass(frozen=True)
class EvalConfig:
    """What to evaluate: one result row for each number of latent tokens."""

    latents: tuple[int | Literal["all"], ...] | None = None
    """Number of latent tokens (n) in the input, one result row each. Numbers or all. With n = 0 the input still has the other k - 1 candidates.
    Default: the method's own, 0 for scdm and esolm."""
    candidates: int | Literal["all", "growing"] | None = None
    """Number of candidates (k): the most confident of the next k masked tokens is decoded. A number, all, or growing (clean tokens + 1). For adaptive
    orders only. Default: 8."""
    order: OrderName | None = None
    """Decoding order. top_prob, margin and entropy are adaptive. Default: top_prob; uniform for text; left_to_right for arm and ar-mtp."""
    tokens_per_step: int | None = None
    """Tokens decoded per step, sampled independently. Default: 1."""
    latent_policy: PolicyName | None = None
    """Which masked tokens are latent tokens. nearest: the next ones of the order; random; relevant: those with the highest influence. Default:
    nearest."""
    num_samples: int | None = None
    """Samples per row. Default: 1,000, or all problems of a smaller data set."""
    data: Path | None = None
    """Data set directory made by `latent-tokens data`, whose test split is used. A model of Sudoku boards infills its puzzles. Default: problems of
    the test split are generated."""
    seed: int = 0
    """Random seed. Sample i depends on (seed, i) only."""
    batch_size: int = 250
    """Samples decoded together. The samples do not depend on it."""
    temperature: float | None = None
    """Sampling temperature. 0 takes the most likely token. Default: 0 for Countdown, 1 for other tasks (D-17, temperature)."""
    top_p: float | None = None
    """Nucleus sampling: sample from the smallest set of tokens with this probability. Default: 0.9 for text, 1 for other tasks."""
    refresh: bool = True
    """Whether to reshuffle the masked part of a random order after every step. --no-refresh is Algorithm 5 as printed."""
    precision: Precision = "fp32"
    """Floating-point format of the network. In bf16 single samples may depend on the batch."""

    def __post_init__(self) -> None:
        for name in ("num_samples", "batch_size"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 1)
        check_int("seed", self.seed, 0)
        if self.latents is not None and (not isinstance(self.latents, tuple) or not self.latents):
            raise ValueError(
                f"latents={self.latents!r}: must be a tuple of numbers or 'all', like (0, 4, 'all')"
            )
        for latents in self.latents or ():
            if latents != "all":
                check_int("latents", latents, 0)
        if self.candidates not in (None, "all", "growing"):
            check_int("candidates", self.candidates, 1)
        if self.tokens_per_step is not None:
            check_int("tokens_per_step", self.tokens_per_step, 1)
        check_choice("order", self.order, (None, *get_args(OrderName)))
        check_choice("latent_policy", self.latent_policy, (None, *get_args(PolicyName)))
        check_choice("precision", self.precision, ("fp32", "bf16"))
