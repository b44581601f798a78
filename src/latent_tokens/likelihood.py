"""Exact likelihood along an order: what decoding one token at a time in that order gives a sequence.

`log_likelihood` is the plain way: every step as decoding takes it. `in_one_pass` is the same for rules under which one pass shows
all steps at once, and is tested equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latent_tokens.attention import causal, sees_later
from latent_tokens.layout import next_layout
from latent_tokens.methods import Denoiser, Method, most_latents, rule_out
from latent_tokens.order import left_to_right

Report = Callable[[int], None]


@torch.no_grad()
def log_likelihood(
    net: Denoiser,
    method: Method,
    tokens: Int[Tensor, "B L"],
    order: Int[Tensor, "B L"],
    num_known: Int[Tensor, " B"],
    lengths: Int[Tensor, " B"],
    latents: int | Literal["all"] | None = None,
    report: Report = lambda done: None,
) -> Float[Tensor, "B L"]:
    """Natural logarithms, in float64, of the probability of each token where the ones before it in `order` are clean: (B, L), by entry of
    the order; 0 for what is known and past the length. A row's sum is its log-likelihood given what is known.

    `latents` are shown as in decoding with k = 1 and a schedule that is not reshuffled. `report` hears of every step. Raises ValueError
    where a left-to-right method is given another order, or a method latents that it cannot use.
    """
    check(method, order, num_known, lengths, latents)
    wanted = method.latents if latents is None else latents
    if method.readout == "shifted" or (method.attention is causal and wanted == 0):
        return in_one_pass(net, method, tokens, order, num_known, lengths)
    found = torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device)
    for step in range(int(num_known.min()), int(lengths.max())):
        rows = ((num_known <= step) & (step < lengths)).nonzero().flatten()
        if not len(rows):
            continue
        clean = torch.full_like(rows, step)
        room = method.room(lengths[rows] - clean)
        count = room - 1 if wanted in (None, "all") else (room - 1).clamp(max=int(wanted))
        layout = next_layout(order[rows], clean, torch.ones_like(rows), count)
        target = layout.slots == layout.num_shown[:, None] - 1
        logits = method.logits_at(target, net, tokens[rows], layout)  # (R, V)
        found[rows, step] = log_probability(logits, tokens[rows, order[rows, step]])
        report(1)
    return found


@torch.no_grad()
def in_one_pass(
    net: Denoiser, method: Method, tokens: Int[Tensor, "B L"], order: Int[Tensor, "B L"], num_known: Int[Tensor, " B"], lengths: Int[Tensor, " B"]
) -> Float[Tensor, "B L"]:
    """`log_likelihood` without latents under the causal rule: no clean token sees a later one, so those of all steps stand in one pass.

    With a shifted readout each slot is fed the token before it; else a MASK for every step stands behind the clean ones, and sees those
    before its own and itself.
    """
    batch, length = tokens.shape
    rank = torch.arange(length, device=tokens.device)
    open_entry = (rank >= num_known[:, None]) & (rank < lengths[:, None])
    arranged = tokens.gather(1, order)
    if method.readout == "shifted":
        layout = next_layout(order, num_known, (lengths - num_known).clamp(min=1), torch.zeros_like(num_known))
        logits = method.logits(net, tokens, layout)
    else:
        before = rank[:, None] > rank
        own = torch.eye(length, dtype=torch.bool, device=tokens.device)
        top = torch.cat([before | own, torch.zeros_like(own)], 1)
        mask = torch.cat([top, torch.cat([before, own], 1)]).expand(batch, -1, -1)
        ids = torch.cat([arranged, torch.full_like(arranged, net.mask_id)], 1)
        logits = rule_out(net.mask_id, net(ids, order.repeat(1, 2), mask))[:, length:]
    found = torch.zeros(tokens.shape, dtype=torch.float64, device=tokens.device)
    found[open_entry] = log_probability(logits[open_entry[:, : logits.shape[1]]], arranged[open_entry])  # no slot past the longest row
    return found


def log_probability(logits: Float[Tensor, "N V"], tokens: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """What each row of logits gives its token, in float64."""
    return logits.double().log_softmax(-1).gather(1, tokens[:, None])[:, 0]


def check(method: Method, order: Tensor, num_known: Tensor, lengths: Tensor, latents: int | Literal["all"] | None) -> None:
    """Raises ValueError where a left-to-right method is given another order, or a method latents that it cannot use."""
    rank = torch.arange(order.shape[1], device=order.device).expand_as(order)
    if method.order is left_to_right and (order != rank)[rank < lengths[:, None]].any():
        raise ValueError("order: this method decodes from left to right; use order=left_to_right, or esolm, scdm or mdm")
    if sees_later(method.attention) and latents not in (None, "all"):
        raise ValueError(f"latents={latents}: its latents are all masked tokens that it shows; use latents=all, or scdm or esolm")
    if latents not in (None, 0) and most_latents(method) is None:
        raise ValueError(f"latents={latents}: this method can use none; use latents=0, or scdm or esolm")
