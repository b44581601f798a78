"""Measuring a model: generate, score, a 95 % interval, and what it cost. One row for each number of latent tokens."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from latent_tokens import decoding as rules
from latent_tokens.configs import DEFAULT_CANDIDATES, EvalConfig
from latent_tokens.cost import most_tokens, relative_cost
from latent_tokens.decoding import Decoding, generate
from latent_tokens.methods import Method, name_of
from latent_tokens.model import Transformer
from latent_tokens.order import Order, any_order, left_to_right
from latent_tokens.pretrained import check_fits
from latent_tokens.progress import progress
from latent_tokens.storage import provenance
from latent_tokens.tasks import Task

CONFIDENCES = {"top_prob": rules.top_prob, "margin": rules.margin, "entropy": rules.entropy}
ORDERS: dict[str, Order] = {"uniform": any_order, "left_to_right": left_to_right}

Row = dict[str, Any]


def evaluate(net: Transformer, task: Task, config: EvalConfig, *, on_row: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """The rows of results.jsonl, one a number of latents; `on_row` receives each as soon as it is measured.

    Percentages are of samples; `processed` and `forward_passes` are counted, the latter a batch; `relative_cost` is
    tokens relative to showing all masked tokens, `paper_cost` the same by the paper's formula (decision 21); seconds are
    of decoding alone. The net is left in eval mode. Raises ValueError where the net is not of the task, or its method cannot
    decode so.
    """
    check_fits(net, task)
    decodings = [decoding_for(net.method, config, latents) for latents in config.latents or (None,)]
    for decoding in decodings:
        rules.check_decoding(net.method, decoding)
    made_with = provenance()
    model = deepcopy(net).bfloat16() if config.precision == "bf16" else net
    rows = []
    for decoding in decodings:
        row = measure(model.eval(), task, config, decoding)
        rows.append({**row, "precision": config.precision, "made_with": made_with})
        on_row(rows[-1])
    return rows


def measure(net: Transformer, task: Task, config: EvalConfig, decoding: Decoding) -> Row:
    """One row: `num_samples` samples from nothing known, in batches that do not matter to them."""
    device = next(net.parameters()).device
    samples, processed, passes, seconds = [], 0, 0, 0.0
    most = 0
    with progress(label(net.method, decoding), config.num_samples) as advance:
        for start in range(0, config.num_samples, config.batch_size):
            numbers = torch.arange(start, min(start + config.batch_size, config.num_samples), device=device)
            known = torch.zeros(len(numbers), task.length, dtype=torch.bool, device=device)
            begun = time.perf_counter()
            made = generate(net, net.method, torch.zeros_like(known, dtype=torch.int64), known, decoding, config.seed, rows=numbers)
            samples.append(as_numpy(made.tokens))
            seconds += time.perf_counter() - begun
            processed += int(made.processed.sum())
            passes = max(passes, made.forward_passes)
            most += int(most_tokens(torch.full_like(numbers, task.length), known.sum(1)).sum())
            advance(len(numbers), f"{(start + len(numbers)) / seconds:.0f} samples/s")
    scores = task.score(np.concatenate(samples))
    share = float(scores[task.metric].mean())
    latents = shown_latents(net.method, decoding)
    return {
        "task": task.name,
        "method": name_of(net.method),
        "order": config.order or default_order(net.method),
        "latents": latents,
        "candidates": decoding.candidates,
        "metric": task.metric,
        task.metric: round(100 * share, 2),
        "ci95": [round(100 * bound, 2) for bound in wilson(share, config.num_samples)],
        "num_samples": config.num_samples,
        **{name: round(float(values.mean()), 4) for name, values in scores.items() if name != task.metric},
        "processed": processed / config.num_samples,
        "relative_cost": round(processed / most, 4),
        "paper_cost": round(paper_cost(task.length, decoding, latents), 4),
        "forward_passes": passes,
        "seconds": round(seconds, 3),
        "samples_per_second": round(config.num_samples / seconds, 2),
        "seed": config.seed,
        "temperature": decoding.temperature,
        "top_p": decoding.top_p,
        "refresh": decoding.refresh,
        "device": str(device),
        "threads": torch.get_num_threads(),
    }


def decoding_for(method: Method, config: EvalConfig, latents: int | Literal["all"] | None) -> Decoding:
    """The Decoding that a config means for a method: 8 candidates by default where the order is adaptive, one where it is not.

    Raises ValueError for an adaptive order with a left-to-right method.
    """
    order = config.order or default_order(method)
    adaptive = order in CONFIDENCES
    if adaptive and method.order is left_to_right:
        raise ValueError(f"order={order} with {name_of(method)}: it decodes the next token; use order=left_to_right, or mdm or scdm")
    candidates = (config.candidates or DEFAULT_CANDIDATES) if adaptive else 1
    return Decoding(
        candidates=candidates,
        latents=latents,
        order=ORDERS.get(order),
        confidence=CONFIDENCES.get(order, rules.top_prob),
        refresh=config.refresh,
        temperature=config.temperature,
        top_p=config.top_p,
    )


def default_order(method: Method) -> str:
    """left_to_right for the methods that are, top_prob for the others (appendix D)."""
    return "left_to_right" if method.order is left_to_right else "top_prob"


def shown_latents(method: Method, decoding: Decoding) -> int | str:
    """The number of latents that a row reports: as asked for, else the method's own; a window shows no more than it has."""
    asked = method.latents if decoding.latents is None else decoding.latents
    if asked is None or asked == "all":
        return "all" if method.window is None else method.window - 1
    return asked if isinstance(asked, int) else getattr(asked, "__name__", "custom")


def paper_cost(length: int, decoding: Decoding, latents: int | str) -> float:
    """`relative_cost` of a decoding."""
    candidates = length if decoding.candidates == "all" else decoding.candidates
    return relative_cost(length, candidates, length if isinstance(latents, str) else latents)


def label(method: Method, decoding: Decoding) -> str:
    """What the progress bar of a row says."""
    return f"{name_of(method)} n={shown_latents(method, decoding)} k={decoding.candidates}"


def wilson(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of `count` samples (decision 20)."""
    z = 1.959964
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def as_numpy(tokens: Tensor) -> Any:
    """Tokens as tasks take them: uint8 on the CPU."""
    return tokens.cpu().numpy().astype(np.uint8)
