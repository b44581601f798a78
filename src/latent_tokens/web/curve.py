"""Accuracy and cost by number of latent tokens, as `latent-tokens evaluate` measures them."""

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
from latent_tokens.trace.record import LoadedModel, has_free_latents
from latent_tokens.web.payloads import CurveEnd, Point

DIAL: tuple[int | Literal["all"], ...] = (0, 4, 16, "all")
BATCH = 20  # problems decoded together before each point
MOST_PROBLEMS = 1_000


@dataclass(frozen=True)
class Curve:
    """What to measure. Raise ValueError if the method does not support it."""

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


def measure(
    curve: Curve, tell: Callable[[str, Point | CurveEnd], None], on_step: Callable[[Step], None]
) -> None:
    """Tell a `point` after every BATCH samples, and the `end`, as docs/watching.md describes them."""
    start_time = time.perf_counter()
    net = curve.model.net
    task = curve.model.task
    problems = make_problems(task, curve.count, curve.seed)
    count = len(problems.tokens)
    for decoding in curve.decodings:
        num_right = 0
        num_processed = 0
        num_all_processed = 0
        for start in range(0, count, BATCH):
            # Decode the next problems. The random numbers of a sample depend on its row, not on its batch.
            batch = problems.take(slice(start, start + BATCH))
            tokens, known, lengths = as_tensors(batch, next(net.parameters()).device)
            done = start + len(tokens)
            rows = torch.arange(start, done)
            result = generate(
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
            # Add the batch to the totals.
            num_right += int(task.score(as_numpy(result.tokens), batch)[task.metric].sum())
            num_processed += int(result.processed.sum())
            num_all_processed += int(most_tokens(lengths, known.sum(1)).sum())
            low, high = wilson(num_right / done, done)
            point: Point = {
                "latents": shown_latents(net.method, decoding),
                "done": done,
                "of": count,
                "right": num_right,
                "low": low,
                "high": high,
                "processed": num_processed / done,
                "relative": num_processed / num_all_processed,
            }
            tell("point", point)
    tell("end", {"seconds": round(time.perf_counter() - start_time, 3)})
