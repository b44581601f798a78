"""Accuracy and cost by number of latent tokens, as `latent-tokens evaluate` measures them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from latent_tokens.configs import NumLatents, SamplingConfig
from latent_tokens.core.decoding import Decoding, Step, check_decoding
from latent_tokens.data.splits import make_problems
from latent_tokens.evaluation.intervals import wilson
from latent_tokens.evaluation.problems import batches, decode_batch, device_of
from latent_tokens.evaluation.settings import decoding_for, shown_latents
from latent_tokens.trace.record import LoadedModel, has_free_latents
from latent_tokens.web.payloads import CurveEnd, Point

DIAL: tuple[NumLatents, ...] = (0, 4, 16, "all")
BATCH = 20  # problems decoded together before each point
MOST_PROBLEMS = 1_000


@dataclass(frozen=True)
class Curve:
    """The settings of a curve. Raise ValueError if the method does not support it."""

    model: LoadedModel
    count: int = 200
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """The settings of every point, except for the number of latent tokens."""

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_PROBLEMS:
            raise ValueError(
                f"count={self.count}: must be 1 to {MOST_PROBLEMS:,}. For more, use latent-tokens evaluate."
            )
        for decoding in self.decodings:
            check_decoding(self.model.net.method, decoding)

    @property
    def decodings(self) -> list[Decoding]:
        """One decoding per number of latent tokens, or a single one if the method fixes the number."""
        method, task = self.model.net.method, self.model.task
        numbers = DIAL if has_free_latents(method) else (None,)
        return [decoding_for(method, task, replace(self.sampling, latents=latents)) for latents in numbers]


def measure(
    curve: Curve, tell: Callable[[str, Point | CurveEnd], None], on_step: Callable[[Step], None]
) -> None:
    """Tell a `point` after every BATCH samples, and the `end`, as docs/watching.md describes them."""
    start_time = time.perf_counter()
    net = curve.model.net
    task = curve.model.task
    problems = make_problems(task, curve.count, curve.sampling.seed)
    for decoding in curve.decodings:
        done = 0
        right = 0
        processed = 0
        most = 0
        for batch in batches(problems, BATCH, device_of(net)):
            # Decode and score the next problems.
            decoded = decode_batch(net, batch, decoding, curve.sampling.seed, on_step)
            done += len(decoded.samples)
            right += int(task.score(decoded.samples, batch.examples)[task.metric].sum())
            processed += decoded.processed
            most += batch.most_tokens

            # Send the result of all problems so far.
            low, high = wilson(right / done, done)
            point: Point = {
                "latents": shown_latents(net.method, decoding),
                "done": done,
                "of": len(problems.tokens),
                "right": right,
                "low": low,
                "high": high,
                "processed": processed / done,
                "relative": processed / most,
            }
            tell("point", point)
    tell("end", {"seconds": round(time.perf_counter() - start_time, 3)})
