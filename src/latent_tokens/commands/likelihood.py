"""latent-tokens likelihood."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from tyro.conf import Positional

from latent_tokens.checks import check_int
from latent_tokens.commands.options import Settings
from latent_tokens.commands.shared import OwnCode
from latent_tokens.configs import EvalConfig, PolicyName, SamplingConfig

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from latent_tokens.tasks import Examples, Text

DEFAULT_SEQUENCES, DEFAULT_ORDERS = 64, 4


@dataclass(frozen=True)
class Likelihood:
    """Compute the exact log-likelihood of a text, averaged over decoding orders.

    It is printed as nats per token, perplexity and bits per byte.
    """

    run: Positional[str]
    """Text model. A run directory, a model directory, or a name on the Hugging Face Hub."""
    own: Annotated[OwnCode, Settings(("method", "base"))] = field(default_factory=OwnCode)
    text: Path | None = None
    """UTF-8 text file to measure. Give either --text or --data."""
    data: Path | None = None
    """Data set directory made by `latent-tokens data`, whose test split is measured."""
    num_sequences: int | None = None
    """Number of sequences of --data. Default: 64."""
    order: str | None = None
    """Decoding order. uniform: random orders. left_to_right: one order. blockwise:N: blocks of N positions
    from left to right, random within one. Default: uniform, left_to_right for arm and ar-mtp, blockwise:N for
    block-mdm-N."""
    orders: int | None = None
    """Number of random orders to average over. Default: 4."""
    latents: tuple[int | Literal["all"], ...] | None = None
    """Number of latent tokens (n) in the input, one line each. Numbers or all. There is one candidate, so n =
    0 leaves no other masked token. Default: the method's own, 0 for scdm and esolm."""
    latent_policy: PolicyName | None = None
    """Which masked tokens are latent tokens, as for evaluate. relevant needs --data. Default: nearest."""
    seed: int = 0
    """Random seed of the orders, which are the same for every number of latent tokens, and of the latent
    policies decaying, random and relevant."""
    off_distribution: bool = False
    """Whether to allow any n for a method whose n is fixed in training, such as mdm. The results are labeled
    off-distribution."""
    json: bool = False
    """Print JSON lines."""


class LikelihoodRow(TypedDict):
    """The likelihood of a text with one number of latent tokens."""

    nats: list[float]  # per token, of each order
    nats_per_token: float  # mean over orders
    standard_error: float | None  # over orders; None for one
    perplexity: float
    ci95: tuple[float, float] | None  # of the perplexity, over sequences; None for one
    bits_per_byte: float
    sequences: int
    tokens: int
    bytes: int  # of the text of these tokens, without ends of document


def run_likelihood(command: Likelihood) -> int:
    """Run `latent-tokens likelihood`. Print one line per number of latent tokens."""
    from latent_tokens.checkpoints.directory import check_fits, learned_text, model_of
    from latent_tokens.checkpoints.files import find
    from latent_tokens.core.decoding import Decoding, is_off_distribution
    from latent_tokens.core.method import name_of
    from latent_tokens.evaluation.likelihood import check_order, nats_along_orders, num_bytes
    from latent_tokens.evaluation.problems import policy_for
    from latent_tokens.evaluation.rows import labeled
    from latent_tokens.evaluation.settings import check_policy, shown_latents
    from latent_tokens.progress import counting
    from latent_tokens.tasks.text.task import with_first_given

    # Check the options against the model.
    for name in ("orders", "num_sequences"):
        if getattr(command, name) is not None:
            check_int(name, getattr(command, name), 1)
    check_order(command.order)
    net = model_of(command.run, command.own.method, command.own.base)
    task = learned_text(find(command.run))
    check_fits(net, task)
    samplings = [
        SamplingConfig(
            latents=latents,
            order=command.order,
            latent_policy=command.latent_policy,
            seed=command.seed,
            off_distribution=command.off_distribution,
        )
        for latents in command.latents or (None,)
    ]
    check_policy(net.method, samplings[0], command.latents or ())
    if net.method.is_left_to_right or command.order == "left_to_right":
        is_drawn = command.latent_policy in ("decaying", "random", "relevant")
        for name, is_ignored in (
            ("orders", (command.orders or 1) > 1),
            ("seed", command.seed != 0 and not is_drawn),
        ):
            if is_ignored:
                raise ValueError(
                    f"{name}={getattr(command, name)} with order=left_to_right: there is one such order. "
                    "Leave it out."
                )

    # Print the likelihood for each number of latent tokens.
    examples = read_examples(command, task)
    check_without_mask(command, examples, net.mask_id)
    if net.method.readout == "left":
        examples = with_first_given(examples)
    probe = EvalConfig(latent_policy=command.latent_policy, data=command.data, seed=command.seed)
    policy = policy_for(net, task, probe)
    for sampling in samplings:
        shown = shown_latents(net.method, Decoding(latents=sampling.latents))
        is_off = is_off_distribution(net.method, sampling.latents)
        name = f"{name_of(net.method)} n={labeled(shown, is_off)}"
        if command.latent_policy is not None:
            name += f" {command.latent_policy}"
        with counting(f"likelihood, {name}", None) as report:
            nats = nats_along_orders(
                net,
                examples,
                orders=command.orders or DEFAULT_ORDERS,
                order=command.order,
                latents=sampling.latents,
                seed=sampling.seed,
                report=report,
                off_distribution=sampling.off_distribution,
                latent_policy=policy,
            )
        row = row_of(nats, examples, num_bytes(task, examples))
        if command.json:
            label: dict[str, bool | str] = {"off_distribution": True} if is_off else {}
            if command.latent_policy is not None:
                label["latent_policy"] = command.latent_policy
            print(json.dumps({"latents": shown, **label, **row}), flush=True)
        else:
            print(f"{name}: {in_words(row)}", flush=True)
    return 0


def read_examples(command: Likelihood, task: Text) -> Examples:
    """Return the sequences of the text.

    Raise ValueError if there are none, or if the data set has other tokens.
    """
    from latent_tokens.data.corpus import text_of
    from latent_tokens.evaluation.problems import read_split
    from latent_tokens.tasks.base import evenly

    if (command.text is None) == (command.data is None):
        raise ValueError(
            "--text with --data: exactly one is needed, --text FILE or --data DIR with a test split"
        )
    if command.text is not None and command.num_sequences is not None:
        raise ValueError(
            f"num_sequences={command.num_sequences}: is for --data. "
            "All of a --text is measured, leave it out."
        )
    if command.data is not None:
        examples = read_split(task, command.data, "test")
        if not len(examples.tokens):
            raise ValueError(f"data={command.data}: has no test split. Make a data set that has one.")
        return examples.take(evenly(len(examples.tokens), command.num_sequences or DEFAULT_SEQUENCES))
    if command.text is None or not command.text.is_file():
        raise ValueError(f"text={command.text}: not found. Name a text file.")
    text = text_of(command.text)
    if not text:
        raise ValueError(f"text={command.text}: is empty. Name a file with text.")
    return task.sequences(text)


def check_without_mask(command: Likelihood, examples: Examples, mask_id: int) -> None:
    """Raise ValueError if MASK is a token of the sequences: it is never predicted."""
    if (examples.tokens == mask_id).any():
        source = f"text={command.text}" if command.data is None else f"data={command.data}"
        problem = f"has token {mask_id}, which is MASK of the model, so it is never predicted"
        raise ValueError(f"{source}: {problem}. Remove it.")


def row_of(nats: NDArray[np.float64], examples: Examples, size: int) -> LikelihoodRow:
    """Return the row of the nats (K, N) of N sequences along K orders, with `size` bytes of text."""
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


def in_words(row: LikelihoodRow) -> str:
    """Return a row in words."""
    error = ""
    interval = ""
    if row["standard_error"] is not None:
        error = f" (standard error {row['standard_error']:.4f} over {len(row['nats'])} orders)"
    if row["ci95"] is not None:
        interval = f" ({row['ci95'][0]:.2f} - {row['ci95'][1]:.2f} over sequences)"
    nats = f"{row['nats_per_token']:.4f} nats per token{error}"
    perplexity = f"perplexity {row['perplexity']:.2f}{interval}"
    return f"{nats}, {perplexity}, {row['bits_per_byte']:.3f} bits per byte, {row['tokens']:,} tokens"
