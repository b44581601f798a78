"""The quality of generated text: its perplexity under an evaluator model, and its diversity.

Repeated text has a low perplexity, so every row also has the entropy of the tokens of a text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from latent_tokens import processes
from latent_tokens.configs import EvalConfig
from latent_tokens.evaluation.evaluate import answer, checked_decodings, in_precision
from latent_tokens.evaluation.evaluators import Judge
from latent_tokens.evaluation.intervals import half_interval, half_interval_of_ratio
from latent_tokens.evaluation.origin import trained_run
from latent_tokens.evaluation.problems import device_of, policy_for
from latent_tokens.evaluation.results import in_percent
from latent_tokens.evaluation.rows import Measured, Row, joined
from latent_tokens.evaluation.settings import row_settings
from latent_tokens.network.kernels import warn_if_slow
from latent_tokens.network.transformer import Transformer
from latent_tokens.progress import counting
from latent_tokens.storage import provenance
from latent_tokens.tasks import Examples, Text
from latent_tokens.tasks.base import Tokens

DEFAULT_TEXTS = 100


def perplexity(
    nats: NDArray[np.float64], counts: NDArray[np.int64]
) -> tuple[float, tuple[float, float] | None]:
    """Return exp(nats per token) of N texts together, and its 95% interval over texts.

    The interval is None for a single text. Raise ValueError if no token is counted.
    """
    if not counts.sum():
        raise ValueError(
            "no text has a token to score: the model generates ends of documents only. Train it longer."
        )
    mean = float(nats.sum() / counts.sum())
    if len(nats) < 2:
        return math.exp(mean), None
    half = half_interval_of_ratio(nats.tolist(), counts.tolist())
    return math.exp(mean), (math.exp(mean - half), math.exp(mean + half))


def entropy(sample: Tokens) -> float:
    """Return the entropy of the tokens of one sample, by their frequencies, in nats."""
    _, counts = np.unique(sample, return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def distinct(samples: Tokens, size: int) -> float:
    """Return the share of different runs among all runs of `size` tokens in the samples (distinct-n)."""
    runs = np.lib.stride_tricks.sliding_window_view(samples, size, axis=1).reshape(-1, size)
    return len(np.unique(runs, axis=0)) / len(runs)


def evaluate_text(
    net: Transformer,
    task: Text,
    config: EvalConfig,
    judge: Judge,
    *,
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Return rows as `evaluate` does, of generated text: perplexity, entropy (nats) and distinct-1 to 3.

    Rank 0 judges and has the rows. The other ranks have none.

    Raises:
        ValueError: the net is not of the task, or its method cannot decode so.
    """
    # Check the request before anything is computed.
    if config.protocol is not None:
        raise ValueError(f"protocol={config.protocol}: is for puzzles and boards. Leave it out for text.")
    decodings = checked_decodings(net, task, config)
    count = DEFAULT_TEXTS if config.num_samples is None else config.num_samples
    problems = text_problems(net, task, count)
    model = in_precision(net, config.precision)
    warn_if_slow(config.precision, device_of(net))

    # Measure one row per number of latent tokens.
    rows: list[Row] = []
    with processes.limit_threads(config.threads):
        policy = policy_for(model, task, config)
        for decoding in decodings:
            chosen = replace(decoding, latent_policy=policy)
            samples, costs = answer(model, problems, config, chosen)
            if not processes.is_main():
                continue
            row = joined(
                row_settings(net.method, task, config, chosen),
                judged(task, samples, judge),
                costs,
                {},
                {},
                {"precision": config.precision, "made_with": provenance()},
                trained_run(net),
            )
            rows.append(in_percent(row))
            on_row(rows[-1])
    return rows


def text_problems(net: Transformer, task: Text, count: int) -> Examples:
    """Return `count` texts to generate. Only the readout "left" has a given token, the first."""
    if net.method.readout == "left":  # no slot is to the left of position 0
        return task.encode("").take(np.zeros(count, np.int64))
    return Examples.of(np.zeros((count, task.length), np.uint16), 0)


def judged(task: Text, samples: Tokens, judge: Judge) -> Measured:
    """Return the metrics of generated texts."""
    with counting(f"scoring with the evaluator model {judge.name}", len(samples)) as report:
        nats, counts = judge(task, samples, report)
    value, interval = perplexity(nats, counts)
    entropies = [entropy(sample) for sample in samples]
    mean = fmean(entropies)
    bounds = None
    entropy_bounds = None
    if interval is not None:
        bounds = [round(bound, 3) for bound in interval]
        half = half_interval(entropies)
        entropy_bounds = [round(mean - half, 4), round(mean + half, 4)]
    return {
        "metric": "perplexity",
        "perplexity": round(value, 3),
        "ci95": bounds,
        "entropy": round(mean, 4),
        "entropy_ci95": entropy_bounds,
        "distinct_1": round(distinct(samples, 1), 4),
        "distinct_2": round(distinct(samples, 2), 4),
        "distinct_3": round(distinct(samples, 3), 4),
        "num_samples": len(samples),
        "judge": judge.name,
        "judged_tokens": int(counts.sum()),
    }
