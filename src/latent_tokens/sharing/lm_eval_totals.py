"""The likelihood of all requests of a type: nats per token and bits per byte, with their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

from latent_tokens.evaluation.intervals import half_interval


class LikelihoodRow(TypedDict):
    """The likelihood of all requests of a type. A half interval is None for one order."""

    requests: int
    tokens: int
    bytes: int
    nats_per_token: float
    nats_per_token_half_interval: float | None
    bits_per_byte: float
    bits_per_byte_half_interval: float | None


class ModelInfo(TypedDict):
    """The settings of an evaluation, and the likelihoods by type of request."""

    method: str
    order: str
    orders: int
    latents: int | str
    suffix: int
    seed: int
    likelihood: dict[str, LikelihoodRow]
    off_distribution: NotRequired[bool]  # true if n leaves out masked tokens that each input had in training


@dataclass
class LikelihoodTotal:
    """The sum over requests of their log-probabilities along each order."""

    nats: list[float] = field(default_factory=list)  # per order, negative
    requests: int = 0
    tokens: int = 0
    num_bytes: int = 0

    def add(self, nats: tuple[float, ...], tokens: int, text: str) -> None:
        """Add one request: its log-probability along each order, its number of tokens, and its text."""
        self.nats = [sum(pair) for pair in zip(self.nats or [0.0] * len(nats), nats, strict=True)]
        self.requests += 1
        self.tokens += tokens
        self.num_bytes += len(text.encode())

    def row(self) -> LikelihoodRow:
        """Return the means over orders, with half of their 95% intervals over orders."""
        per_token = [-nats / self.tokens for nats in self.nats]
        mean = sum(per_token) / len(per_token)
        half = half_interval(per_token) if len(per_token) > 1 else None
        bits_per_nat_per_token = self.tokens / self.num_bytes / math.log(2)
        return {
            "requests": self.requests,
            "tokens": self.tokens,
            "bytes": self.num_bytes,
            "nats_per_token": mean,
            "nats_per_token_half_interval": half,
            "bits_per_byte": mean * bits_per_nat_per_token,
            "bits_per_byte_half_interval": None if half is None else half * bits_per_nat_per_token,
        }
