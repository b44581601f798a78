"""The settings of sampling: one value of each."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, get_args

from latent_tokens.checks import check_choice, check_int, check_min

OrderName = Literal["top_prob", "margin", "entropy", "uniform", "left_to_right"]
PolicyName = Literal["nearest", "adjacent", "distant", "decaying", "random", "relevant"]
NumLatents = int | Literal["all"]
NumCandidates = int | Literal["all", "growing"]
DEFAULT_CANDIDATES = 8
"""The paper's k (appendix D.2)."""


@dataclass(frozen=True)
class SamplingConfig:
    """Settings of sampling. None is the default of the method or the task.

    Raise ValueError for a value out of range.

    `evaluation.settings.decoding_for` turns it into a `Decoding`.
    """

    latents: NumLatents | None = None
    """Number of latent tokens (n) in the input. A number or all. With n = 0 the input still has the other k -
    1 candidates. Default: the method's own, 0 for scdm and esolm."""
    candidates: NumCandidates | None = None
    """Number of candidates (k): the most confident of the next k masked tokens is decoded. A number, all, or
    growing (clean tokens + 1). For adaptive orders only. Default: 8."""
    order: str | None = None
    """Decoding order. top_prob, margin, entropy, uniform, left_to_right or blockwise:N. The first three are
    adaptive. The last is top_prob within blocks of N positions, from left to right. Default: top_prob,
    uniform for text, left_to_right for arm and ar-mtp."""
    tokens_per_step: int | None = None
    """Tokens decoded per step, sampled independently. Default: 1."""
    latent_policy: PolicyName | None = None
    """Which masked tokens are latent tokens. nearest: the next ones of the order. adjacent, distant: those
    whose positions are closest to the candidates, or farthest. decaying: drawn, with a probability that falls
    with the distance. random: any. relevant: those with the highest influence. Default: nearest."""
    temperature: float | None = None
    """Sampling temperature. 0 takes the most likely token. Default: 0 for Countdown, 1 for other tasks
    (docs/decisions.md, D-17, temperature)."""
    top_p: float | None = None
    """Nucleus sampling: sample from the smallest set of tokens with this probability. Default: 0.9 for text,
    1 for other tasks."""
    refresh: bool = True
    """Whether to reshuffle the masked part of a random order after every step. --no-refresh is Algorithm 5 as
    printed."""
    seed: int = 0
    """Random seed. Sample i depends on (seed, i) only."""
    off_distribution: bool = False
    """Whether to allow any n for a method whose n is fixed in training, such as mdm. The results are labeled
    off-distribution."""
    confidence_noise: float | None = None
    """Scale of Gumbel noise on the log of the confidence, which falls to 0 over decoding (MaskGIT). For
    adaptive orders only. Default: 0."""

    def __post_init__(self) -> None:
        if self.latents not in (None, "all"):
            check_int("latents", self.latents, 0)
        check_sampling(self)


def check_sampling(config: SamplingConfig) -> None:
    """Raise ValueError if a setting other than the number of latent tokens is out of range."""
    if config.candidates not in (None, "all", "growing"):
        check_int("candidates", config.candidates, 1)
    if config.tokens_per_step is not None:
        check_int("tokens_per_step", config.tokens_per_step, 1)
    if block_in(config.order) is None:
        check_choice("order", config.order, (None, *get_args(OrderName), "blockwise:N"))
    check_choice("latent_policy", config.latent_policy, (None, *get_args(PolicyName)))
    if config.temperature is not None:
        check_min("temperature", config.temperature, 0)
        if not math.isfinite(config.temperature):
            raise ValueError(f"temperature={config.temperature}: must be 0 (argmax) or more, and finite")
    if config.top_p is not None and not 0 < config.top_p <= 1:
        raise ValueError(f"top_p={config.top_p}: must be above 0 and at most 1")
    if config.confidence_noise is not None:
        check_min("confidence_noise", config.confidence_noise, 0)
        if not math.isfinite(config.confidence_noise):
            raise ValueError(f"confidence_noise={config.confidence_noise}: must be 0 or more, and finite")
    check_int("seed", config.seed, 0)


def block_in(order: str | None) -> int | None:
    """Return the N of the order blockwise:N, or None for another order."""
    match = re.fullmatch(r"blockwise:([1-9][0-9]*)", str(order))
    return int(match[1]) if match else None
