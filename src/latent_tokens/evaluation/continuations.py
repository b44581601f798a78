"""The exact likelihood of continuations given their contexts, along decoding orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from latent_tokens.checks import check_choice, check_int
from latent_tokens.core.denoiser import Denoiser
from latent_tokens.core.method import Method
from latent_tokens.core.order import Order, first_order, is_random
from latent_tokens.core.state import Streams
from latent_tokens.evaluation.held_out import schedule_for
from latent_tokens.network.likelihood import token_scores

DEFAULT_ORDERS = 4
MAX_POSITIONS = 4_096  # of a batch, whose logits take memory for each position


@dataclass(frozen=True)
class Continuation:
    """Tokens whose likelihood is computed, and those before them, which are given."""

    context: Sequence[int]
    tokens: Sequence[int]
    number: int  # of its random stream

    def __post_init__(self) -> None:
        if not self.tokens:
            raise ValueError("tokens=[]: a continuation needs one token or more. Remove it from the task.")

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
    order: Literal["uniform", "left_to_right"] | None = None  # None is left_to_right if the method decodes so
    orders: int | None = None  # the number of random orders; None is 4
    suffix: int | None = None  # masked positions after the continuation; None is as `suffix_of`
    seed: int = 0
    off_distribution: bool = False  # allow any n for a method whose n is fixed in training

    def __post_init__(self) -> None:
        if self.latents not in (None, "all"):
            check_int("latents", self.latents, 0)
        check_choice("order", self.order, (None, "uniform", "left_to_right"))
        if self.orders is not None:
            check_int("orders", self.orders, 1)
        if self.suffix is not None:
            check_int("suffix", self.suffix, 0)
        check_int("seed", self.seed, 0)


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
    return 0 if method.window is None else method.window - 1


def score_continuations(
    net: Denoiser | nn.Module,
    method: Method,
    continuations: Sequence[Continuation],
    settings: LikelihoodSettings,
    *,
    max_length: int,
    device: torch.device,
    batch_size: int = 8,
    report: Callable[[int], None] = lambda done: None,
) -> list[ContinuationScore]:
    """Return the likelihood of each continuation, in their order.

    The orders of a continuation depend on the seed and its number only: not on its batch, and not on the
    number of latent tokens.

    Args:
        net: the network, in eval mode.
        method: how it was trained.
        continuations: each of at most `max_length` tokens with its context.
        settings: orders and latent tokens.
        max_length: the number of positions of the network.
        device: that of the network.
        batch_size: the most continuations computed together.
        report: receives the number of continuations of each batch.

    Raises:
        ValueError: the method does not support the order or the latent tokens.
    """
    schedule, num_orders = orders_of(method, settings)
    scores: dict[int, ContinuationScore] = {}
    for indices in batches(continuations, batch_size):
        # Pad the sequences. Draw noise for the continuation only, so that the suffix is last in any order.
        tokens, num_known, ends = padded([continuations[index] for index in indices], device)
        lengths = (ends + suffix_of(method, settings)).clamp(max=max_length)
        tokens = nn.functional.pad(tokens, (0, int(lengths.max()) - tokens.shape[1]))  # (B, L)
        known = torch.arange(tokens.shape[1], device=device) < num_known[:, None]
        numbers = torch.tensor([continuations[index].number for index in indices], device=device)
        rows = torch.arange(len(indices), device=device)
        draw = partial(Streams(settings.seed, numbers).uniform, rows, ends - num_known)

        # Compute the log-probabilities along each order.
        nats = []
        is_greedy = torch.ones_like(rows, dtype=torch.bool)
        for _ in range(num_orders):
            order = first_order(schedule, known, lengths, draw)
            scored = token_scores(
                net,
                method,
                tokens,
                order,
                num_known,
                lengths,
                settings.latents,
                ends=ends,
                off_distribution=settings.off_distribution,
            )
            nats.append(scored.log_probabilities.sum(1).tolist())
            is_scored = torch.arange(tokens.shape[1], device=device) >= num_known[:, None]
            is_scored &= torch.arange(tokens.shape[1], device=device) < ends[:, None]
            is_greedy &= (scored.is_argmax | ~is_scored).all(1)
        for index, each, greedy in zip(indices, zip(*nats, strict=True), is_greedy.tolist(), strict=True):
            scores[index] = ContinuationScore(each, greedy)
        report(len(indices))
    return [scores[index] for index in range(len(continuations))]


def batches(continuations: Sequence[Continuation], batch_size: int) -> Iterator[list[int]]:
    """Yield the indices of continuations of similar length, the longest first.

    Batches of long ones are smaller.
    """
    indices = sorted(range(len(continuations)), key=lambda index: -continuations[index].length)
    while indices:
        rows = min(batch_size, max(1, MAX_POSITIONS // continuations[indices[0]].length))
        yield indices[:rows]
        indices = indices[rows:]


def padded(continuations: Sequence[Continuation], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sequences Int[B, L], and the lengths Int[B] of contexts and of sequences."""
    longest = max(each.length for each in continuations)
    rows = [[*each.context, *each.tokens, *[0] * (longest - each.length)] for each in continuations]
    num_known = [len(each.context) for each in continuations]
    ends = [each.length for each in continuations]
    return (
        torch.tensor(rows, device=device),
        torch.tensor(num_known, device=device),
        torch.tensor(ends, device=device),
    )
