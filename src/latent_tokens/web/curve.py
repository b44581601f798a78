"""Accuracy and cost of a model by number of latent tokens, point by point: the results of `latent-tokens evaluate`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch

from latent_tokens.checks import check_int
from latent_tokens.configs import DEFAULT_CANDIDATES, EvalConfig, OrderName
from latent_tokens.core.cost import most_tokens
from latent_tokens.core.decoding import Decoding, Step, check_decoding
from latent_tokens.data.splits import make_problems
from latent_tokens.data.tensors import as_numpy, as_tensors
from latent_tokens.evaluation.evaluate import (
    CONFIDENCES,
    decoding_for,
    default_order,
    named_candidates,
    shown_latents,
)
from latent_tokens.evaluation.intervals import wilson
from latent_tokens.network.fast import generate
from latent_tokens.trace.record import LoadedModel, Tell, has_free_latents

DIAL: tuple[int | Literal["all"], ...] = (0, 4, 16, "all")
TOGETHER = 20  # problems that are decoded at once, and make the next point
MOST_PROBLEMS = 1_000


@dataclass(frozen=True)
class Curve:
    """What is to be measured. Raises ValueError where the method cannot decode so."""

    model: LoadedModel
    count: int = 200
    candidates: int | Literal["all", "growing"] | None = None  # None: 8 where the order is adaptive
    order: OrderName | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_PROBLEMS:
            raise ValueError(
                f"count={self.count}: must be 1 to {MOST_PROBLEMS:,}; latent-tokens evaluate takes more"
            )
        if self.candidates not in (None, "all", "growing"):
            check_int("candidates", self.candidates, 1)
        for decoding in self.decodings:
            check_decoding(self.model.net.method, decoding)

    @property
    def decodings(self) -> list[Decoding]:
        """One decoding per number of latent tokens, or a single one if the method fixes the number."""
        method, task = self.model.net.method, self.model.task
        config = EvalConfig(order=self.order, seed=self.seed)
        asked = [
            decoding_for(method, task, config, latents)
            for latents in (DIAL if has_free_latents(method) else (None,))
        ]
        if (self.order or default_order(method, task)) not in CONFIDENCES:
            return asked
        return [
            replace(decoding, candidates=named_candidates(self.candidates or DEFAULT_CANDIDATES))
            for decoding in asked
        ]


def measure(curve: Curve, tell: Tell, on_step: Callable[[Step], None]) -> None:
    """Sends a `point` after every TOGETHER samples, and the `end`. docs/watching.md describes both."""
    begun, net, task = time.perf_counter(), curve.model.net, curve.model.task
    problems = make_problems(task, curve.count, curve.seed)
    count = len(problems.tokens)
    for decoding in curve.decodings:
        right, processed, most = 0, 0, 0
        for start in range(0, count, TOGETHER):
            part = problems.take(slice(start, start + TOGETHER))
            tokens, known, lengths = as_tensors(part, next(net.parameters()).device)
            rows = torch.arange(start, start + len(tokens))
            made = generate(
                net,
                net.method,
                tokens,
                known,
                decoding,
                curve.seed,
                rows=rows,
                lengths=lengths,
                on_step=on_step,
            )
            done = start + len(tokens)
            right += int(task.score(as_numpy(made.tokens), part)[task.metric].sum())
            processed, most = (
                processed + int(made.processed.sum()),
                most + int(most_tokens(lengths, known.sum(1)).sum()),
            )
            low, high = wilson(right / done, done)
            point = {
                "latents": shown_latents(net.method, decoding),
                "done": done,
                "of": count,
                "right": right,
                "low": low,
                "high": high,
            }
            tell("point", {**point, "processed": processed / done, "relative": processed / most})
    tell("end", {"seconds": round(time.perf_counter() - begun, 3)})
