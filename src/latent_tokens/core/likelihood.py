"""Exact likelihood of a sequence along a decoding order, one token at a time.

`score_tokens` takes every step as decoding does. `in_one_pass` computes the same for rules under
which one pass holds all steps, and is tested equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latent_tokens.checks import refuse
from latent_tokens.core.attention import agree, causal
from latent_tokens.core.decoding import (
    Count,
    check_count,
    check_latent_policy,
    check_num_latents,
    resolve_count,
)
from latent_tokens.core.denoiser import (
    Denoiser,
    as_denoiser,
    check_length,
    check_vocabulary,
    token_logits,
)
from latent_tokens.core.layout import Layout, next_layout
from latent_tokens.core.method import Method
from latent_tokens.core.order import block_of, check_blocks, is_permutation, left_to_right
from latent_tokens.core.policies import LatentPolicy, choose_latents, nearest
from latent_tokens.core.sampling import CandidateLogits
from latent_tokens.core.state import Counts, PlannedStep, Streams

LOGIT_ROWS = 256  # of logits that are in float64 at once


class TokenScores(NamedTuple):
    """The tokens of sequences under a model, by entry of the order. Entries that are not scored are 0."""

    log_probabilities: Float[Tensor, "B L"]  # in nats, float64
    is_argmax: Bool[Tensor, "B L"]  # whether no token is more probable in its step


@torch.no_grad()
def score_tokens(
    net: Denoiser | nn.Module,
    method: Method,
    tokens: Int[Tensor, "B L"],
    order: Int[Tensor, "B L"],
    num_known: Int[Tensor, " B"],
    lengths: Int[Tensor, " B"],
    latents: Count | None = None,
    *,
    ends: Int[Tensor, " B"] | None = None,
    latent_policy: LatentPolicy = nearest,
    streams: Streams | None = None,
    candidate_logits: CandidateLogits | None = None,
    report: Callable[[int], None] = lambda done: None,
    off_distribution: bool = False,
) -> TokenScores:
    """Return the log-probabilities of `log_likelihood`, and whether each token is the argmax of its step.

    Args:
        ends: how many entries of each order are given or scored. The entries from there to the
            length are masked in every step, so they are latent tokens or are not in the input. None
            is the lengths.
        streams: what a random latent policy draws from, one stream per row. None is that of seed 0.
        candidate_logits: computes the target's logits of a step. None computes those of its slot
            only.

    The other arguments and what is raised are those of `log_likelihood`.
    """
    check_length(net, tokens.shape[1])
    net = as_denoiser(net)
    check(method, order, num_known, lengths, latents, off_distribution)
    check_latent_policy(method, latent_policy)
    ends = lengths if ends is None else ends
    rank = torch.arange(tokens.shape[1], device=tokens.device)
    scored_or_given = tokens.gather(1, order)[rank < ends[:, None]]
    if (scored_or_given == net.mask_id).any():
        raise ValueError(f"token {net.mask_id} is MASK: tokens must be complete sequences")
    check_vocabulary(net, scored_or_given)
    n = method.default_latents if latents is None else latents
    if fits_one_pass(method, n, tokens.shape[1]):
        return in_one_pass(net, method, tokens, order, num_known, ends)
    candidate_logits = candidate_logits or partial(target_logits, net, method)
    log_probabilities = torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device)
    is_argmax = torch.zeros_like(tokens, dtype=torch.bool)
    streams = streams or Streams(0, torch.arange(len(tokens), device=tokens.device))
    for plan in scoring_steps(method, order, num_known, lengths, ends, n):
        host, step = plan.host, plan.on_device
        rows, num_clean = step.rows, step.num_clean
        arranged = order[rows]
        is_masked = torch.zeros_like(arranged, dtype=torch.bool)
        is_masked.scatter_(1, arranged, rank >= num_clean[:, None])
        shown = tokens[rows].masked_fill(is_masked, net.mask_id)
        draw = partial(streams.uniform, host.rows, host.num_masked - 1)
        before = plan.policy_input(arranged, shown)
        layout = plan.layout(choose_latents(latent_policy, before, draw))
        logits = candidate_logits(plan, shown, layout)[:, 0]  # (R, V)
        correct = tokens[rows, arranged.gather(1, num_clean[:, None])[:, 0]]
        log_probabilities[rows, num_clean] = log_probability(logits, correct)
        is_argmax[rows, num_clean] = logits.argmax(-1) == correct
        report(1)
    return TokenScores(log_probabilities, is_argmax)


def fits_one_pass(method: Method, latents: Count, length: int) -> bool:
    """Return whether one pass has all steps: with a shifted readout, or for n = 0 under the causal rule."""
    is_causal = latents == 0 and agree(method.attention, causal, length)
    return length > 0 and (method.readout == "shifted" or is_causal)


def scoring_steps(
    method: Method,
    order: Int[Tensor, "B L"],
    num_known: Int[Tensor, " B"],
    lengths: Int[Tensor, " B"],
    ends: Int[Tensor, " B"],
    latents: Count,
) -> Iterator[PlannedStep]:
    """Yield the steps that score the entries of each order. A finished row takes no part in later steps."""
    device = order.device
    order, num_known, lengths, ends = (values.cpu() for values in (order, num_known, lengths, ends))
    for number in range(max((ends - num_known).tolist(), default=0)):
        rows = (num_known + number < ends).nonzero().flatten()
        num_clean = num_known[rows] + number
        num_visible = method.num_visible(order[rows], num_clean, lengths[rows]).numpy()
        clean, masked = num_clean.numpy(), (lengths[rows] - num_clean).numpy()
        num_latents = resolve_count(latents, num_visible - 1, masked, "latents", least=0)
        one = np.ones_like(clean)
        counts = Counts(
            rows=rows.numpy(),
            number=number * one,
            num_clean=clean,
            num_masked=masked,
            count=one,
            candidates=one,
            latents=num_latents,
        )
        yield PlannedStep.of(counts, device)


def target_logits(
    net: Denoiser, method: Method, plan: PlannedStep, tokens: Int[Tensor, "A L"], layout: Layout
) -> Float[Tensor, "A 1 V"]:
    """Return the logits of each row's last slot, in float64."""
    target = layout.slots == layout.num_shown[:, None] - 1
    return method.logits_at(target, net, tokens, layout)[:, None].double()


@torch.no_grad()
def in_one_pass(
    net: Denoiser,
    method: Method,
    tokens: Int[Tensor, "B L"],
    order: Int[Tensor, "B L"],
    num_known: Int[Tensor, " B"],
    ends: Int[Tensor, " B"],
) -> TokenScores:
    """Return `score_tokens` from one pass, if `fits_one_pass`.

    It is exact, as no clean token attends to a later one. With a shifted readout each slot receives
    the token before it. With the readout "left" every token is clean, and its prediction is read at
    the one before it. Otherwise the clean tokens are followed by one MASK for every step, which
    attends to the clean tokens before its own and to itself.
    """
    batch, length = tokens.shape
    rank = torch.arange(length, device=tokens.device)
    masked = (rank >= num_known[:, None]) & (rank < ends[:, None])
    arranged = tokens.gather(1, order)
    none = torch.zeros_like(ends)
    num_slots = max([1, *ends.tolist()])  # also without rows, or if every row is empty
    if method.readout == "shifted":
        layout = next_layout(order, num_known, ends - num_known, none, num_slots)
        logits = method.logits(net, tokens, layout)
    elif method.readout == "left":
        logits = method.logits(net, tokens, next_layout(order, ends, none, none, num_slots))
    else:
        # Clean slot i attends to the clean slots up to itself, and MASK i to those before and to itself.
        before = rank[:, None] > rank
        same_slot = torch.eye(length, dtype=torch.bool, device=tokens.device)
        top = torch.cat([before | same_slot, torch.zeros_like(same_slot)], 1)
        mask = torch.cat([top, torch.cat([before, same_slot], 1)]).expand(batch, -1, -1)
        clean = arranged.masked_fill(rank >= ends[:, None], net.mask_id)  # the rest has no meaning
        ids = torch.cat([clean, torch.full_like(clean, net.mask_id)], 1)
        logits = token_logits(net, net(ids, order.repeat(1, 2), mask))[:, length:]
    log_probabilities = torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device)
    at = masked[:, : logits.shape[1]]  # no slot is past the longest row
    log_probabilities[masked] = log_probability(logits[at], arranged[masked])
    is_argmax = torch.zeros_like(masked)
    is_argmax[masked] = logits[at].argmax(-1) == arranged[masked]
    return TokenScores(log_probabilities, is_argmax)


def log_probability(logits: Float[Tensor, "N V"], tokens: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return the log-probability of each token under its row of logits, in float64.

    It is minus infinity for a token without a column.
    """
    columns = logits.shape[-1]
    at = tokens.clamp(max=columns - 1)
    parts = zip(torch.split(logits, LOGIT_ROWS), torch.split(at, LOGIT_ROWS), strict=True)
    values = [part.double().log_softmax(-1).gather(1, ids[:, None])[:, 0] for part, ids in parts]
    return torch.cat(values).masked_fill(tokens >= columns, -torch.inf)


def check(
    method: Method,
    order: Tensor,
    num_known: Tensor,
    lengths: Tensor,
    latents: Count | None,
    off_distribution: bool = False,
) -> None:
    """Raise ValueError if the method does not support the order, what is known, or the latent tokens."""
    check_count("latents", latents, least=0)
    if not is_permutation(order):
        raise ValueError(f"order: must be a permutation of 0..{order.shape[1] - 1} for each row")
    if ((num_known < 0) | (num_known > lengths)).any():
        raise ValueError(f"num_known={num_known.tolist()}: must lie in 0..{lengths.tolist()}")
    rank = torch.arange(order.shape[1], device=order.device).expand_as(order)
    known = torch.zeros_like(order, dtype=torch.bool).scatter(1, order, rank < num_known[:, None])
    method.check_known(known)
    block = block_of(method.attention)
    if block is not None:
        check_blocks(order, num_known, lengths, block)
    is_used = rank < lengths[:, None]
    if method.is_left_to_right and (order != left_to_right(known))[is_used].any():
        fix = "order=left_to_right, or esolm, scdm or mdm"
        refuse("order", "this method decodes from left to right", fix)
    check_num_latents(method, latents, off_distribution)
