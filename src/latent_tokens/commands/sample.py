"""latent-tokens sample."""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from latent_tokens import processes
from latent_tokens.checks import check_int, printable
from latent_tokens.commands.shared import Command, OwnCode, RunName, latents_in_words
from latent_tokens.configs import DecodeConfig, SamplingConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from latent_tokens.core.decoding import Decoding
    from latent_tokens.core.generated import Step
    from latent_tokens.network.transformer import Transformer
    from latent_tokens.tasks import Examples, Solvable, Text
    from latent_tokens.tasks.examples import Tokens


@dataclass(frozen=True, kw_only=True)
class Sample(Command, DecodeConfig, OwnCode):
    """Draw samples from a model and print them: puzzles with the verifier's verdict, text with its speed.

    Examples:
        latent-tokens sample sudoku-6-scdm --latents all --num-samples 3
        latent-tokens sample runs/text --prompt 'Once upon a time' --show
    """

    run: RunName
    """Model to sample from. A run directory, a bundled model, or a name on the Hugging Face Hub."""
    num_samples: int = 2
    """Number of samples. One with --show."""
    prompt: str | None = None
    """Start of the text, for text. A gap of three or more underscores is filled in with as many
    tokens, and nothing is added after the end."""
    chat: bool = False
    """Whether the prompt is the message of a user, written by the chat template of the tokenizer."""
    show: bool = False
    """Show one sample while it is decoded, with its latent tokens, for text."""
    compile: bool = False
    """Compile the blocks of the network with torch.compile. The first step takes seconds and, on a
    CPU, a C++ compiler. Not measured on a GPU."""
    json: bool = False
    """Print JSON lines with tokens and order instead of text."""


def run_sample(command: Sample) -> int:
    """Run `latent-tokens sample`. Print samples as text or JSON lines."""
    from latent_tokens.checkpoints.learned import check_fits
    from latent_tokens.core.decoding import check_decoding, is_off_distribution
    from latent_tokens.devices import fastest_device
    from latent_tokens.evaluation.rows import speed_in_words
    from latent_tokens.evaluation.settings import decoding_for, shown_candidates, shown_latents
    from latent_tokens.network.kernels import compile_blocks
    from latent_tokens.tasks import Text

    # Check the options against the model.
    check_int("num_samples", command.num_samples, 1)
    ((_, net, task),) = command.models(command.run)
    net.to(fastest_device())
    if command.compile:
        compile_blocks(net)
    check_fits(net, task)
    decoding = decoding_for(net.method, task, command.config(SamplingConfig))
    check_decoding(net.method, decoding)
    is_off = is_off_distribution(net.method, decoding.latents)
    problems = problems_of(command, net, task)

    # Draw and print the samples.
    if command.compile and isinstance(task, Text):
        take_a_step(net, decoding, problems, command.seed)
    begin = time.perf_counter()
    samples, orders, processed = draw(net, decoding, command, task, problems)
    seconds = time.perf_counter() - begin
    if not processes.is_main():
        return 0
    print_samples(command, task, problems, samples, orders, is_off)
    if command.json:
        return 0
    if isinstance(task, Text):
        count = int((problems.inside & ~problems.known).sum())
        speed = f"{count:,} tokens in {seconds:.1f} s, {speed_in_words(count / seconds)} tokens/s"
        print(f"{speed}, {processed:,} tokens processed")
    if is_off:
        num_latents = shown_latents(net.method, decoding)
        print(latents_in_words(num_latents, shown_candidates(net.method, decoding), True))
    return 0


def take_a_step(net: Transformer, decoding: Decoding, problems: Examples, seed: int) -> None:
    """Take one step of this rank's samples, which compiles the network before the clock starts."""
    from latent_tokens.evaluation.problems import Batch, device_of
    from latent_tokens.network.fast import generate

    batch = Batch.of(problems.take(processes.shard_indices(len(problems.tokens))), device_of(net))
    inputs = (net, net.method, batch.tokens, batch.known, decoding, seed)
    generate(*inputs, lengths=batch.lengths, stop=lambda rows, tokens: True)


def problems_of(command: Sample, net: Transformer, task: Solvable | Text) -> Examples:
    """Return the problems, one per sample. Raise ValueError if the prompt does not suit the task."""
    import numpy as np

    from latent_tokens.data.dialogues import user_prompt
    from latent_tokens.evaluation.problems import without_prompt
    from latent_tokens.tasks import Text

    count = 1 if command.show else command.num_samples
    prompt = user_prompt(task, command.prompt) if command.chat else command.prompt
    if not isinstance(task, Text) and (prompt is not None or command.show):
        name = "show=True" if prompt is None else f"prompt={prompt!r}"
        reason = f"is for text, and this model learned {task.name}"
        raise ValueError(f"{name}: {reason}. Use latent-tokens solve.")
    if prompt is None:
        return without_prompt(net, task, count, command.seed)
    problem = task.encode(prompt)
    if problem.known[:, : problem.lengths[0]].all():
        reason = f"has {problem.lengths[0] - 1:,} tokens and leaves nothing to generate"
        raise ValueError(f"prompt={prompt!r}: {reason} in {task.length:,}. Shorten it.")
    return problem.take(np.zeros(count, np.int64))


def draw(
    net: Transformer, decoding: Decoding, command: Sample, task: Solvable | Text, problems: Examples
) -> tuple[Tokens, Tokens, int]:
    """Return (samples, their orders, tokens processed).

    Each rank draws its shard, and every rank returns all samples.
    """
    from latent_tokens.data.loading import as_numpy
    from latent_tokens.evaluation.problems import Batch, decode_batch, device_of
    from latent_tokens.tasks import Text

    # Decode this rank's shard.
    shard = processes.shard_indices(len(problems.tokens))
    batch = Batch.of(problems.take(shard), device_of(net), shard)
    shown: AbstractContextManager[Callable[[Step], None] | None] = nullcontext()
    if command.show and isinstance(task, Text) and processes.is_main():
        from latent_tokens.trace.terminal import watching

        shown = watching(task, batch.tokens, batch.known, batch.lengths)
    with shown as on_step:
        decoded = decode_batch(net, batch, decoding, command.seed, on_step)

    # Gather the samples of all ranks.
    samples = processes.gather_rows(decoded.samples)
    orders = processes.gather_rows(as_numpy(decoded.generated.order))
    return samples, orders, sum(processes.all_gather_object(decoded.processed))


def print_samples(
    command: Sample,
    task: Solvable | Text,
    problems: Examples,
    samples: Tokens,
    orders: Tokens,
    is_off: bool,
) -> None:
    """Print each sample with the verdict of the verifier, as text or as a JSON line. Text has no verdict."""
    from latent_tokens.evaluation.problems import samples_in_words
    from latent_tokens.tasks import Text
    from latent_tokens.tasks.base import scores_of

    scores = None if isinstance(task, Text) else scores_of(task, samples, problems)[task.metric]
    texts = samples_in_words(task, samples, problems)
    for number, (sample, length) in enumerate(zip(samples, problems.lengths.tolist(), strict=True)):
        entries = {"tokens": sample[:length].tolist(), "order": orders[number, :length].tolist()}
        verdict = ""
        if scores is not None and not isinstance(task, Text):
            score = float(scores[number])  # also a share
            entries[task.metric] = bool(score) if score in (0, 1) else score
            share = "" if score == 1 else f" {score:.3g}"
            verdict = f"{task.metric}{share}" if score else f"not {task.metric}"
        if command.json:
            print(json.dumps(entries | ({"off_distribution": True} if is_off else {})))
        else:
            print(printable(texts[number], also="\n\t"), f"{verdict}\n", sep="\n")
