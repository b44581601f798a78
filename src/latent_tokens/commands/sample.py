"""latent-tokens sample."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from tyro.conf import Positional

from latent_tokens.checks import whole
from latent_tokens.commands.shared import task_of
from latent_tokens.configs import EvalConfig, OrderName


@dataclass(frozen=True)
class Sample:
    """Draw samples from a model and print them, each with the verifier's word."""

    run: Positional[str]
    """A run folder, or the name of a model that comes along."""
    num_samples: int = 2
    """How many."""
    latents: int | Literal["all"] | None = None
    """Latent tokens to show. Default: the method's own."""
    candidates: int | Literal["all", "growing"] | None = None
    """Of how many next positions an adaptive order decodes the most confident (k): a number, all, or growing with the clean ones. Default: 8."""
    order: OrderName | None = None
    """top_prob, margin and entropy are adaptive. Default: top_prob, or left_to_right where the method is."""
    temperature: float | None = None
    """0 takes the likeliest token. Default: 0 for Countdown, 1 for the other tasks."""
    top_p: float = 1.0
    """Draw from the smallest set of tokens that holds this much probability."""
    seed: int = 0
    """Sample number i draws from the stream (seed, i)."""
    json: bool = False
    """Print JSON lines with tokens and order instead of text."""


def run_sample(command: Sample) -> int:
    """latent-tokens sample: samples as text, or JSON lines."""
    from latent_tokens.evaluation import decoding_for
    from latent_tokens.fast import generate
    from latent_tokens.pretrained import find, from_pretrained
    from latent_tokens.splits import make_problems
    from latent_tokens.tensors import as_numpy, as_tensors

    whole("num_samples", command.num_samples, 1)
    net, task = from_pretrained(command.run), task_of(find(command.run))
    asked = EvalConfig(candidates=command.candidates, order=command.order, temperature=command.temperature, top_p=command.top_p, seed=command.seed)
    decoding = decoding_for(net.method, task, asked, command.latents)
    problems = make_problems(task, command.num_samples, command.seed)
    tokens, known, lengths = as_tensors(problems)
    made = generate(net, net.method, tokens, known, decoding, command.seed, lengths=lengths)
    samples = as_numpy(made.tokens)
    for sample, order, score in zip(samples, made.order.tolist(), task.score(samples, problems)[task.metric], strict=True):
        if command.json:
            print(json.dumps({"tokens": sample.tolist(), "order": order, task.metric: bool(score)}))
        else:
            print(task.decode(sample), f"{'' if score else 'not '}{task.metric}\n", sep="\n")
    return 0
