"""latent-tokens sample."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal, cast

from tyro.conf import Positional

from latent_tokens import processes
from latent_tokens.checks import printable, whole
from latent_tokens.commands.shared import model_of, task_of
from latent_tokens.configs import EvalConfig, OrderName


@dataclass(frozen=True)
class Sample:
    """Draw samples from a model and print them: puzzles each with the verifier's word, text with how fast it came."""

    run: Positional[str]
    """A run folder, or the name of a model that comes along."""
    num_samples: int | None = None
    """How many. Default: 2, or 1 with --show."""
    latents: int | Literal["all"] | None = None
    """Latent tokens to show. Default: the method's own."""
    candidates: int | Literal["all", "growing"] | None = None
    """Of how many next positions an adaptive order decodes the most confident (k): a number, all, or growing with the clean ones. Default: 8."""
    tokens_per_step: int | None = None
    """Tokens decoded at once, which are drawn independently. Default: 1."""
    order: OrderName | None = None
    """top_prob, margin and entropy are adaptive. Default: top_prob, uniform for text, or left_to_right where the method is."""
    temperature: float | None = None
    """0 takes the likeliest token. Default: 0 for Countdown, 1 for the other tasks."""
    top_p: float | None = None
    """Draw from the smallest set of tokens that holds this much probability. Default: 0.9 for text, 1 for the other tasks."""
    prompt: str | None = None
    """For text: what it begins with. A gap of three or more underscores is filled in with as many tokens; then nothing is added after the end."""
    show: bool = False
    """For text: watch one sample as it is decoded, with its latents."""
    seed: int = 0
    """Sample number i draws from the stream (seed, i)."""
    json: bool = False
    """Print JSON lines with tokens and order instead of text."""


def run_sample(command: Sample) -> int:
    """latent-tokens sample: samples as text, or JSON lines."""
    from latent_tokens.decoding import check_decoding
    from latent_tokens.evaluation import decoding_for
    from latent_tokens.pretrained import check_fits, find
    from latent_tokens.tasks import Text

    count = (1 if command.show else 2) if command.num_samples is None else command.num_samples
    whole("num_samples", count, 1)
    net, task = model_of(command.run), task_of(find(command.run))
    check_fits(net, task)
    if not isinstance(task, Text) and (command.prompt is not None or command.show):
        raise ValueError(f"prompt and show are for models of text; this is one of {task.name}: use latent-tokens solve")
    if command.show and (command.json or count != 1):
        raise ValueError(f"show: watches one sample; leave out --num-samples {count} and --json")
    names = ("candidates", "tokens_per_step", "order", "temperature", "top_p", "seed")
    asked = EvalConfig(**{name: getattr(command, name) for name in names})
    decoding = decoding_for(net.method, task, asked, command.latents)
    check_decoding(net.method, decoding)
    problems = problems_of(command, task, count)
    samples, orders, processed, seconds = draw(net, decoding, command, task, problems)
    if not processes.is_first():
        return 0
    words = judged(task, samples, problems)
    for sample, order, length, (said, about) in zip(samples, orders.tolist(), problems.lengths.tolist(), words, strict=True):
        if command.json:
            print(json.dumps({"tokens": sample[:length].tolist(), "order": order[:length], **about}))
        else:
            print(printable(task.decode(sample[:length]), also="\n\t"), f"{said}\n", sep="\n")
    if isinstance(task, Text) and not command.json:
        count = int(problems.lengths.sum() - problems.known.sum())
        print(f"{count:,} tokens in {seconds:.1f} s, {count / seconds:.3g} a second; {processed:,} processed")
    return 0


def draw(net: Any, decoding: Any, command: Sample, task: Any, problems: Any) -> tuple[Any, Any, int, float]:
    """(samples, the order of each, tokens processed, seconds): each process draws its share, and all of them get all."""
    import torch

    from latent_tokens.fast import generate
    from latent_tokens.tensors import as_numpy, as_tensors

    if command.show and processes.count() > 1:
        raise ValueError(f"show: watches one sample, and there are {processes.count()} processes; leave out the launcher")
    own = processes.share(len(problems.tokens))
    device = next(net.parameters()).device
    tokens, known, lengths = as_tensors(problems.take(own), device)
    begun, watched = time.perf_counter(), cast(Any, nullcontext())
    if command.show:
        from latent_tokens.watching import watching

        watched = watching(task, tokens, known, lengths)
    with watched as on_step:
        rows = torch.from_numpy(own).to(device)
        made = generate(net, net.method, tokens, known, decoding, command.seed, rows=rows, lengths=lengths, on_step=on_step)
    samples, orders = processes.whole(as_numpy(made.tokens)), processes.whole(as_numpy(made.order))
    return samples, orders, sum(processes.gather(int(made.processed.sum()))), time.perf_counter() - begun


def problems_of(command: Sample, task: Any, count: int) -> Any:
    """What is to be filled in, one example a sample. Raises ValueError for a prompt that the task cannot take."""
    import numpy as np

    from latent_tokens.splits import make_problems
    from latent_tokens.tasks import Examples, Text

    if not isinstance(task, Text):
        return make_problems(task, count, command.seed)
    if command.prompt is None:
        return Examples.of(np.zeros((count, task.length), np.uint16), 0)
    problem = task.encode(command.prompt)
    if problem.known[:, : problem.lengths[0]].all():
        raise ValueError(f"prompt of {problem.lengths[0] - 1:,} tokens: leaves nothing to write in {task.length:,}; shorten it")
    return problem.take(np.zeros(count, np.int64))


def judged(task: Any, samples: Any, problems: Any) -> list[tuple[str, dict[str, bool]]]:
    """The verifier's word on each sample, for people and as JSON; none on text."""
    from latent_tokens.tasks import Text

    if isinstance(task, Text):
        return [("", {})] * len(samples)
    return [(f"{'' if score else 'not '}{task.metric}", {task.metric: bool(score)}) for score in task.score(samples, problems)[task.metric]]
