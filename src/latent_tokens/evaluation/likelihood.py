"""Exact likelihood: of held-out sequences, and of continuations of a prompt."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from latent_tokens.checkpoints.learned import check_fits
from latent_tokens.checks import block_in, check_choice, check_int
from latent_tokens.configs import EvalConfig
from latent_tokens.core.decoding import Count, Decoding, is_off_distribution
from latent_tokens.core.denoiser import Denoiser
from latent_tokens.core.likelihood import score_tokens
from latent_tokens.core.method import Method, checked_method, name_of
from latent_tokens.core.order import (
    Order,
    any_order,
    block_of,
    blockwise,
    first_order,
    is_random,
    left_to_right,
)
from latent_tokens.core.policies import LatentPolicy, nearest
from latent_tokens.core.state import Streams
from latent_tokens.data.loading import as_tensors
from latent_tokens.data.splits import chunks_of
from latent_tokens.evaluation.problems import device_of, policy_for, read_split
from latent_tokens.evaluation.settings import check_policy, shown_latents
from latent_tokens.evaluation.text import perplexity
from latent_tokens.network.likelihood import scoring_logits
from latent_tokens.network.transformer import Transformer
from latent_tokens.progress import counting
from latent_tokens.tasks import Examples, Text
from latent_tokens.tasks.base import evenly
from latent_tokens.tasks.text.task import with_first_given

MAX_SEQUENCES = 32  # sequences per batch at most
MAX_POSITIONS = 4_096  # of a batch, whose logits take memory for each position
DEFAULT_ORDERS = 4


def nats_along_orders(
    net: Transformer,
    examples: Examples,
    *,
    orders: int = 1,
    order: str | None = None,
    latents: Count | None = None,
    seed: int = 0,
    report: Callable[[int], None] = lambda done: None,
    off_distribution: bool = False,
    latent_policy: LatentPolicy = nearest,
) -> NDArray[np.float64]:
    """Return the negative log-likelihood of N sequences along K orders, in nats (K, N).

    K is 1 from left to right. Sequence i has the random orders of (seed, i) for any number of
    latents. The mean over uniform orders is the bound (ELBO) that masked diffusion models are
    trained on.

    Args:
        net: the network, with its method.
        examples: N complete sequences.
        orders: the number K of orders. 1 if `order` is left_to_right.
        order: uniform, left_to_right or blockwise:N. None is the method's own.
        latents: n, or a function of the number of masked tokens. None is the method's own number.
        seed: of the random orders, and of a random latent policy.
        report: receives the number of sequences of each batch.
        off_distribution: as for `log_likelihood`.
        latent_policy: which masked tokens are the n.

    Raises:
        ValueError: as `log_likelihood`.

    Example:
        >>> nats_along_orders(net, task.generate(2, seed=0), orders=3, latents=4).shape
        (3, 2)
    """
    # Choose the orders.
    method = checked_method(net, None)
    device = device_of(net)
    schedule = schedule_for(method, order)
    count = orders if is_random(schedule) else 1

    # Compute the nats, one batch and one order at a time.
    nats = np.empty((count, len(examples.tokens)))
    at_once = max(1, min(MAX_SEQUENCES, MAX_POSITIONS // examples.tokens.shape[1]))
    starts = range(0, len(examples.tokens), at_once)
    for start, part in zip(starts, chunks_of(examples, at_once), strict=True):
        tokens, known, lengths = as_tensors(part, device)
        rows = torch.arange(start, start + len(tokens), device=device)
        streams = Streams(seed, rows)
        draw = partial(streams.uniform, rows - start, torch.full_like(rows, tokens.shape[1]))
        arranged = [first_order(schedule, known, lengths, draw) for _ in range(count)]
        for number, along in enumerate(arranged):
            scored = score_tokens(
                *(net, method, tokens, along, known.sum(1), lengths, latents),
                latent_policy=latent_policy,
                streams=streams,
                candidate_logits=scoring_logits(net, method, tokens, along, latents),
                off_distribution=off_distribution,
            )
            nats[number, start : start + len(tokens)] = -scored.log_probabilities.sum(1).cpu()
            report(len(tokens))
    return nats


def schedule_for(method: Method, order: str | None) -> Order:
    """Return the order of a name: uniform, left_to_right or blockwise:N.

    None is the order of the method. Under a rule with blocks, uniform is, too.

    Raises:
        ValueError: the name is unknown, or the method decodes from left to right only.
    """
    block = block_in(order)
    if block is None:
        check_choice("order", order, (None, "uniform", "left_to_right", "blockwise:N"))
    if order not in (None, "left_to_right") and method.is_left_to_right:
        raise ValueError(
            f"order={order}: this method decodes from left to right only. "
            "Use order=left_to_right, or esolm, scdm or mdm."
        )
    if order == "left_to_right" or method.is_left_to_right:
        return left_to_right
    if block is not None:
        return blockwise(block)
    is_own = order is None or block_of(method.attention) is not None
    return method.order if is_own else any_order


def sequences_of(
    net: Transformer,
    task: Text,
    text: str | None,
    data: str | Path | None,
    num_sequences: int | None,
    source: str,
) -> Examples:
    """Return the sequences to score: those of a text, or of the test split of a data set.

    Args:
        net: the network that scores them.
        task: the text that it learned.
        text: the text. None is the data set.
        data: the directory of the data set. None is the text.
        num_sequences: how many, evenly spaced. None is all of a text, and 64 of a data set.
        source: their name in a message.

    Raises:
        ValueError: there are none, or MASK is a token of theirs, which is never predicted.
    """
    if text is not None and not isinstance(text, str):
        raise ValueError(f"text of {type(text).__name__}: must be a str. Score several one by one.")
    if text is not None and data is None:
        examples = task.sequences(text)
    elif text is None and data is not None:
        examples = read_split(task, Path(data), "test")
    else:
        problem = "exactly one of the two is needed"
        raise ValueError(f"text with data: {problem}. Name a text or a data set.")
    default = 64 if text is None else len(examples.tokens)
    count = default if num_sequences is None else num_sequences
    check_int("num_sequences", count, 0 if num_sequences is None else 1)
    examples = examples.take(evenly(len(examples.tokens), count))
    if not len(examples.tokens):
        fix = "Name a file with text, or a data set with a test split."
        raise ValueError(f"{source}: is empty. {fix}")
    if (examples.tokens == net.mask_id).any():
        problem = f"has token {net.mask_id}, which is MASK of the model, so it is never predicted"
        raise ValueError(f"{source}: {problem}. Remove it.")
    return with_first_given(examples) if net.method.readout == "left" else examples


def likelihoods(
    net: Transformer,
    task: Text,
    examples: Examples,
    config: EvalConfig,
    *,
    orders: int = DEFAULT_ORDERS,
    on_row: Callable[[dict[str, Any]], None] = lambda row: None,
) -> list[dict[str, Any]]:
    """Return one row per number of latent tokens of a config, as docs/formats.md describes.

    Args:
        net: the network, with its method.
        task: the text that it learned.
        examples: complete sequences.
        config: order, latents, latent_policy, seed and off_distribution.
        orders: the number of random orders.
        on_row: receives each row when it is computed.

    Raises:
        ValueError: the method does not support a setting, or another text was learned.
    """
    check_int("orders", orders, 1)
    check_fits(net, task)
    method = net.method
    check_policy(method, config, config.values("latents"))
    policy = policy_for(net, task, config)
    rows = []
    for latents in config.values("latents") or (None,):
        row: dict[str, Any] = {
            "method": name_of(method),
            "latents": shown_latents(method, Decoding(candidates=1, latents=latents)),
        }
        if is_off_distribution(method, latents):
            row["off_distribution"] = True
        if config.latent_policy is not None:
            row["latent_policy"] = config.latent_policy
        with counting(f"likelihood, {row['method']} n={row['latents']}", None) as report:
            nats = nats_along_orders(
                net,
                examples,
                orders=orders,
                order=config.order,
                latents=latents,
                seed=config.seed,
                report=report,
                off_distribution=config.off_distribution,
                latent_policy=policy,
            )
        row |= likelihood_of(nats, num_tokens(task, examples), num_bytes(task, examples))
        rows.append(row)
        on_row(row)
    return rows


def likelihood_of(
    nats: NDArray[np.float64], tokens: NDArray[np.int64], num_bytes: int
) -> dict[str, Any]:
    """Return the likelihood of N sequences of some tokens along K orders, from their nats (K, N).

    nats: per token, of each order. nats_per_token: their mean.
    standard_error: over orders, None for one.
    ci95: interval of the perplexity over sequences, None for one.
    bytes: of the text of these tokens, without ends of document.
    """
    each = nats.sum(1) / tokens.sum()
    error = float(each.std(ddof=1) / math.sqrt(len(each))) if len(each) > 1 else None
    value, interval = perplexity(nats.mean(0), tokens)
    return {
        "nats": each.tolist(),
        "nats_per_token": float(each.mean()),
        "standard_error": error,
        "perplexity": value,
        "ci95": None if interval is None else list(interval),
        "bits_per_byte": float(nats.sum(1).mean() / math.log(2) / max(num_bytes, 1)),
        "sequences": len(tokens),
        "tokens": int(tokens.sum()),
        "bytes": num_bytes,
    }


def num_tokens(task: Text, examples: Examples) -> NDArray[np.int64]:
    """Return how many tokens of each sequence are unknown. Of the ends that fill a response one counts.

    So its perplexity does not depend on the length that it is filled up to. A sequence with no more
    given than its first token is not a response: it may end with the end of a document and its own.
    """
    is_end = (examples.tokens == task.coder.end) | ~examples.inside
    to_the_end = np.logical_and.accumulate(is_end[:, ::-1], axis=1)[:, ::-1]
    fills = np.pad(to_the_end[:, :-1], ((0, 0), (1, 0))) & (
        examples.known.sum(1, keepdims=True) > 1
    )
    counts: NDArray[np.int64] = (~examples.known & examples.inside & ~fills).sum(1)
    return counts


def num_bytes(task: Text, examples: Examples) -> int:
    """Return the bytes of the text of the unknown tokens, without ends of document."""
    is_text = (examples.tokens != task.coder.end) & ~examples.known & examples.inside
    rows = zip(examples.tokens, is_text, strict=True)
    return sum(task.coder.num_bytes(tokens[kept].tolist()) for tokens, kept in rows)


@dataclass(frozen=True)
class Continuation:
    """Tokens whose likelihood is computed, and those before them, which are given."""

    context: Sequence[int]
    tokens: Sequence[int]
    number: int  # of its random stream

    def __post_init__(self) -> None:
        if not self.tokens:
            raise ValueError(
                "tokens=[]: a continuation needs one token or more. Remove it from the task."
            )

    @property
    def length(self) -> int:
        return len(self.context) + len(self.tokens)


@dataclass(frozen=True)
class ContinuationScore:
    """The likelihood of one continuation."""

    nats: tuple[float, ...]  # the log-probability along each order
    is_greedy: bool  # whether every token is the argmax of its step, along every order


@dataclass(frozen=True)
class LikelihoodSettings:
    """Settings of likelihoods. Raises ValueError for a value out of range."""

    latents: int | Literal["all"] | None = None  # n; None is the method's own
    # None is left_to_right if the method decodes so
    order: Literal["uniform", "left_to_right"] | None = None
    orders: int | None = None  # the number of random orders; None is 4
    suffix: int | None = None  # masked positions after the continuation; None is as `suffix_of`
    seed: int = 0
    off_distribution: bool = False  # allow any n for a method whose n is fixed in training

    def __post_init__(self) -> None:
        check_choice("order", self.order, (None, "uniform", "left_to_right"))
        for name, least in (("latents", 0), ("orders", 1), ("suffix", 0), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and (name, value) != ("latents", "all"):
                check_int(name, value, least)


def orders_of(method: Method, settings: LikelihoodSettings) -> tuple[Order, int]:
    """Return the order, and how many permutations of it are averaged over.

    Raises:
        ValueError: the method does not support the order, or there is one permutation only.
    """
    schedule = schedule_for(method, settings.order)
    if is_random(schedule):
        return schedule, DEFAULT_ORDERS if settings.orders is None else settings.orders
    if (settings.orders or 1) > 1:
        raise ValueError(
            f"orders={settings.orders} with order=left_to_right: there is one such order. Leave it out."
        )
    return schedule, 1


def suffix_of(method: Method, settings: LikelihoodSettings) -> int:
    """Return how many masked positions follow a continuation, so that its last token has n latent tokens.

    It is n if that is a number, all that the window has besides the target if it has one, else 0.
    """
    if settings.suffix is not None:
        return settings.suffix
    latents = method.default_latents if settings.latents is None else settings.latents
    if latents != "all":
        return latents
    return 0 if method.window == "all" else method.window - 1


def score_continuations(
    net: Denoiser | nn.Module,
    method: Method,
    continuations: Sequence[Continuation],
    settings: LikelihoodSettings,
    *,
    device: torch.device,
    batch_size: int = 8,
    report: Callable[[int], None] = lambda done: None,
) -> list[ContinuationScore]:
    """Return the likelihood of each continuation, in their order.

    The orders of a continuation depend on the seed and its number only: not on its batch, and not
    on the number of latent tokens.

    Args:
        net: the network, in eval mode.
        method: how it was trained.
        continuations: each fits into the network, with its context and `suffix_of` masked tokens.
        settings: orders and latent tokens.
        device: that of the network.
        batch_size: the most continuations computed together.
        report: receives the number of continuations of each batch.

    Raises:
        ValueError: the method does not support the order or the latent tokens.
    """
    schedule, num_orders = orders_of(method, settings)
    scores: dict[int, ContinuationScore] = {}
    for indices in batches_by_length(continuations, batch_size):
        # Pad the sequences. Draw noise for the continuation only, so that the suffix is last in any order.
        tokens, num_known, ends = padded([continuations[index] for index in indices], device)
        lengths = ends + suffix_of(method, settings)
        tokens = nn.functional.pad(tokens, (0, int(lengths.max()) - tokens.shape[1]))  # (B, L)
        positions = torch.arange(tokens.shape[1], device=device)
        known = positions < num_known[:, None]
        is_scored = ~known & (positions < ends[:, None])
        numbers = torch.tensor([continuations[index].number for index in indices], device=device)
        rows = torch.arange(len(indices), device=device)
        draw = partial(Streams(settings.seed, numbers).uniform, rows, ends - num_known)

        # Compute the log-probabilities along each order.
        nats = []
        is_greedy = torch.ones_like(rows, dtype=torch.bool)
        for _ in range(num_orders):
            order = first_order(schedule, known, lengths, draw)
            scored = score_tokens(
                *(net, method, tokens, order, num_known, lengths, settings.latents),
                ends=ends,
                candidate_logits=scoring_logits(net, method, tokens, order, settings.latents),
                off_distribution=settings.off_distribution,
            )
            nats.append(scored.log_probabilities.sum(1).tolist())
            is_greedy &= (scored.is_argmax | ~is_scored).all(1)
        of_each = zip(zip(*nats, strict=True), is_greedy.tolist(), strict=True)
        scores |= zip(indices, starmap(ContinuationScore, of_each), strict=True)
        report(len(indices))
    return [scores[index] for index in range(len(continuations))]


def batches_by_length(
    continuations: Sequence[Continuation], batch_size: int
) -> Iterator[list[int]]:
    """Yield the indices of continuations of similar length, the longest first.

    Batches of long ones are smaller.
    """
    indices = sorted(range(len(continuations)), key=lambda index: -continuations[index].length)
    while indices:
        rows = min(batch_size, max(1, MAX_POSITIONS // continuations[indices[0]].length))
        yield indices[:rows]
        indices = indices[rows:]


def padded(
    continuations: Sequence[Continuation], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sequences Int[B, L], and the lengths Int[B] of contexts and of sequences."""
    longest = max(each.length for each in continuations)
    rows = [[*each.context, *each.tokens, *[0] * (longest - each.length)] for each in continuations]
    num_known = torch.tensor([len(each.context) for each in continuations], device=device)
    ends = torch.tensor([each.length for each in continuations], device=device)
    return torch.tensor(rows, device=device), num_known, ends
