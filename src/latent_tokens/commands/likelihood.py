"""latent-tokens likelihood."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

from tyro.conf import Positional

from latent_tokens.checks import one_of, whole
from latent_tokens.commands.shared import task_of

ROWS = 32  # sequences that go through the model together


@dataclass(frozen=True)
class Likelihood:
    """How likely a model of text makes a text, exactly, along orders in which it could be decoded: nats and perplexity a token."""

    run: Positional[str]
    """A run folder."""
    text: Path | None = None
    """A text file, in UTF-8."""
    order: Literal["uniform", "left_to_right"] | None = None
    """uniform: random orders. Default: uniform, or left_to_right where the method is."""
    orders: int = 4
    """How many random orders; the figures are means over them, with their standard error."""
    latents: int | Literal["all"] | None = None
    """Latent tokens to show, the next of the order. Default: the method's own."""
    seed: int = 0
    """Of the orders."""
    json: bool = False
    """Print a JSON line with the nats of each order."""


def run_likelihood(command: Likelihood) -> int:
    """latent-tokens likelihood: one line."""
    import torch

    from latent_tokens.corpus import text_of
    from latent_tokens.likelihood import log_likelihood
    from latent_tokens.order import any_order, first_order, left_to_right
    from latent_tokens.pretrained import check_fits, find, from_pretrained
    from latent_tokens.progress import counting
    from latent_tokens.splits import chunks_of
    from latent_tokens.tasks import Text
    from latent_tokens.tensors import as_tensors

    whole("orders", command.orders, 1)
    one_of("order", command.order, (None, "uniform", "left_to_right"))
    net, task = from_pretrained(command.run), task_of(find(command.run))
    if not isinstance(task, Text):
        raise ValueError(f"{command.run}: a model of {task.name}; the likelihood of a text takes a model of text")
    check_fits(net, task)
    if command.text is None or not command.text.is_file():
        raise ValueError(f"text={command.text}: no such file; name one with --text")
    examples = task.sequences(text_of(command.text))
    fixed = command.order == "left_to_right" or net.method.order is left_to_right
    schedule = left_to_right if fixed else any_order
    orders, generator = 1 if fixed else command.orders, torch.Generator().manual_seed(command.seed)
    count, totals = int(examples.lengths.sum()), []
    with counting("likelihood", orders * len(examples.tokens)) as report:
        for _ in range(orders):
            total = 0.0
            for part in chunks_of(examples, ROWS):
                tokens, known, lengths = as_tensors(part)
                draws = torch.rand(known.shape, generator=generator, dtype=torch.float64)
                order = first_order(schedule, known, lengths, partial(torch.as_tensor, draws))
                total -= float(log_likelihood(net, net.method, tokens, order, known.sum(1), lengths, command.latents).sum())
                report(len(tokens))
            totals.append(total / count)
    mean, error = fmean(totals), stdev(totals) / math.sqrt(orders) if orders > 1 else None
    if command.json:
        print(json.dumps({"nats": totals, "nats_per_token": mean, "standard_error": error, "perplexity": math.exp(mean), "tokens": count}))
    else:
        over = "" if error is None else f" (standard error {error:.4f} over {orders} orders)"
        print(f"{mean:.4f} nats a token{over}, perplexity {math.exp(mean):.2f}, {count:,} tokens")
    return 0
