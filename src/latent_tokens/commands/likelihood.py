"""latent-tokens likelihood."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latent_tokens.checks import check_int
from latent_tokens.commands.shared import ManyLatents, OwnMethod, Run
from latent_tokens.configs import EvalConfig, PolicyName

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from latent_tokens.tasks import Examples, Text


@dataclass(frozen=True, kw_only=True)
class Likelihood(OwnMethod):
    """Compute the exact log-likelihood of a text, averaged over decoding orders.

    It is printed as nats per token, perplexity and bits per byte.

    Examples:
        latent-tokens likelihood runs/text --text book.txt --latents 0 16
        latent-tokens likelihood runs/text --data data/text --num-sequences 16
    """

    run: Run
    """Text model. A run directory, a model directory, or a name on the Hugging Face Hub."""
    text: Path | None = None
    """UTF-8 text file to measure. Give either --text or --data."""
    data: Path | None = None
    """Data set directory made by `latent-tokens data`, whose test split is measured."""
    num_sequences: int | None = None
    """Number of sequences, evenly spaced. Default: 64 of --data, all of --text."""
    order: str | None = None
    """Decoding order. uniform: random orders. left_to_right: one order. blockwise:N: blocks of N
    positions from left to right, random within one. Default: uniform, left_to_right for arm and
    ar-mtp, blockwise:N for block-mdm-N."""
    orders: int = 4
    """Number of random orders to average over."""
    latents: ManyLatents = None
    """Number of latent tokens (n) in the input, one line each. Numbers or all. There is one
    candidate, so n = 0 leaves no other masked token. Default: the method's own, 0 for scdm and
    esolm."""
    latent_policy: PolicyName | None = None
    """Which masked tokens are latent tokens, as for evaluate. relevant needs --data. Default:
    nearest."""
    seed: int = 0
    """Random seed of the orders, which are the same for every number of latent tokens, and of the
    latent policies random and relevant."""
    off_distribution: bool = False
    """Whether to allow any n for a method whose n is fixed in training, such as mdm. The results
    are labeled off-distribution."""
    json: bool = False
    """Print JSON lines."""


def run_likelihood(command: Likelihood) -> int:
    """Run `latent-tokens likelihood`. Print one line per number of latent tokens."""
    from latent_tokens.checkpoints.directory import check_fits, learned_text, model_of
    from latent_tokens.checkpoints.files import find
    from latent_tokens.core.decoding import Decoding, is_off_distribution
    from latent_tokens.core.method import name_of
    from latent_tokens.evaluation.likelihood import nats_along_orders, num_bytes
    from latent_tokens.evaluation.problems import policy_for
    from latent_tokens.evaluation.rows import labeled
    from latent_tokens.evaluation.settings import check_policy, shown_latents
    from latent_tokens.progress import counting
    from latent_tokens.tasks.text.task import with_first_given

    # Read the model, its latent policy and the text.
    check_int("orders", command.orders, 1)
    net = model_of(command.run, command.method, command.base)
    task = learned_text(find(command.run))
    check_fits(net, task)
    names = ("latents", "order", "latent_policy", "data", "seed", "off_distribution")
    config = EvalConfig(**{name: getattr(command, name) for name in names})
    check_policy(net.method, config, command.latents or ())
    examples = read_examples(command, task, net.mask_id)
    if net.method.readout == "left":
        examples = with_first_given(examples)
    policy = policy_for(net, task, config)

    # Print the likelihood for each number of latent tokens.
    for latents in command.latents or (None,):
        shown = shown_latents(net.method, Decoding(latents=latents))
        is_off = is_off_distribution(net.method, latents)
        name = f"{name_of(net.method)} n={labeled(shown, is_off)}"
        label: dict[str, bool | str] = {"off_distribution": True} if is_off else {}
        if command.latent_policy is not None:
            name += f" {command.latent_policy}"
            label["latent_policy"] = command.latent_policy
        with counting(f"likelihood, {name}", None) as report:
            nats = nats_along_orders(
                net,
                examples,
                orders=command.orders,
                order=command.order,
                latents=latents,
                seed=command.seed,
                report=report,
                off_distribution=command.off_distribution,
                latent_policy=policy,
            )
        row = row_of(nats, examples, num_bytes(task, examples))
        if command.json:
            print(json.dumps({"latents": shown, **label, **row}), flush=True)
        else:
            print(f"{name}: {in_words(row)}", flush=True)
    return 0


def read_examples(command: Likelihood, task: Text, mask_id: int) -> Examples:
    """Return the sequences of the text.

    Raise ValueError if there are none, or if MASK is a token of theirs: it is never predicted.
    """
    from latent_tokens.data.corpus import text_of
    from latent_tokens.evaluation.problems import read_split
    from latent_tokens.tasks.base import evenly

    if command.text is not None and command.data is None:
        source = f"text={command.text}"
        examples = task.sequences(text_of(command.text))
    elif command.data is not None and command.text is None:
        source = f"data={command.data}"
        examples = read_split(task, command.data, "test")
    else:
        raise ValueError("--text with --data: exactly one is needed, --text FILE or --data DIR")
    default = 64 if command.text is None else len(examples.tokens)
    count = default if command.num_sequences is None else command.num_sequences
    check_int("num_sequences", count, 0)
    examples = examples.take(evenly(len(examples.tokens), count))
    if not len(examples.tokens):
        raise ValueError(
            f"{source}: is empty. Name a file with text, or a data set with a test split."
        )
    if (examples.tokens == mask_id).any():
        problem = f"has token {mask_id}, which is MASK of the model, so it is never predicted"
        raise ValueError(f"{source}: {problem}. Remove it.")
    return examples


def row_of(nats: NDArray[np.float64], examples: Examples, size: int) -> dict[str, Any]:
    """Return the row of the nats (K, N) of N sequences along K orders, with `size` bytes of text.

    nats: per token, of each order. nats_per_token: their mean.
    standard_error: over orders, None for one.
    ci95: interval of the perplexity over sequences, None for one.
    bytes: of the text of these tokens, without ends of document.
    """
    from latent_tokens.evaluation.text import perplexity

    tokens = examples.lengths - examples.known.sum(1)
    each = nats.sum(1) / tokens.sum()
    error = float(each.std(ddof=1) / math.sqrt(len(each))) if len(each) > 1 else None
    value, interval = perplexity(nats.mean(0), tokens)
    return {
        "nats": each.tolist(),
        "nats_per_token": float(each.mean()),
        "standard_error": error,
        "perplexity": value,
        "ci95": interval,
        "bits_per_byte": float(nats.sum(1).mean() / math.log(2) / max(size, 1)),
        "sequences": len(tokens),
        "tokens": int(tokens.sum()),
        "bytes": size,
    }


def in_words(row: dict[str, Any]) -> str:
    """Return a row in words."""
    words = f"{row['nats_per_token']:.4f} nats per token"
    if row["standard_error"] is not None:
        words += f" (standard error {row['standard_error']:.4f} over {len(row['nats'])} orders)"
    words += f", perplexity {row['perplexity']:.2f}"
    if row["ci95"] is not None:
        words += " ({:.2f} - {:.2f} over sequences)".format(*row["ci95"])
    return f"{words}, {row['bits_per_byte']:.3f} bits per byte, {row['tokens']:,} tokens"
