"""The dial at one state: the candidates' logits at several numbers of latents, from one pass over what they share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.attention import Rule, sees_later
from latent_tokens.layout import Layout
from latent_tokens.methods import Method, rule_out
from latent_tokens.model import Transformer


@torch.no_grad()
def sweep(
    net: Transformer,
    method: Method,
    tokens: Int[Tensor, "B L"],
    order: Int[Tensor, "B L"],
    num_clean: Int[Tensor, " B"],
    latents: Sequence[int],
    *,
    candidates: int = 1,
    lengths: Int[Tensor, " B"] | None = None,
) -> Float[Tensor, "N B K V"]:
    """The logits, in float64, of the next `candidates` of the order where the n after them are latents, for each n of `latents`.

    order[b, :num_clean[b]] are the clean positions of row b. Slots are [clean | most latents | candidates, once for each n]:
    clean tokens and latents see nothing that comes after them, so all n share them (numbers of latents and candidates are cut
    to what is left; a row with fewer candidates repeats its last). One pass costs clean + max n + N k slots instead of
    N clean + sum n + N k.
    Positions from lengths[b] on take no part. Numbers of latents given to `evaluate` share nothing: their samples part after the
    first token. Raises ValueError where the method shows what one pass cannot share, or the net is in training mode.
    """
    if net.training:
        raise ValueError("sweep: the net is in training mode, where dropout makes its logits random; call net.eval() first")
    if sees_later(method.attention) or method.readout == "shifted" or method.window is not None:
        raise ValueError(
            "sweep: a pass is shared where masked tokens see none after them, are read in place and are not bounded by a window; use scdm or esolm"
        )
    if not latents or min(latents) < 0 or candidates < 1:
        raise ValueError(f"latents={list(latents)} with candidates={candidates}: numbers of latents start at 0, and of candidates at 1")
    left = (order.shape[1] if lengths is None else lengths) - num_clean
    if (left < 1).any():
        raise ValueError(f"row {int(left.argmin())} has nothing masked: there is no candidate in it; leave finished rows out")
    k = left.clamp(max=candidates)
    n = torch.tensor(latents, device=order.device)[:, None].minimum(left - k)  # (N, B)
    layout, copy, slot = arrangement(order, num_clean, k, n)
    mask = shared_mask(method.attention, num_clean, n, copy, slot)
    ids = method.fed(tokens, layout, net.mask_id)
    wanted = copy >= 0
    logits = rule_out(net.mask_id, net.read(ids, layout.positions, mask[:, None], wanted)).double()  # (sum of N k, V)
    start = (len(n) * k).cumsum(0) - len(n) * k + torch.arange(len(n), device=order.device)[:, None] * k  # (N, B)
    rank = torch.arange(int(k.max()), device=order.device).minimum(k[:, None] - 1)
    return logits[start[:, :, None] + rank]


def arrangement(
    order: Int[Tensor, "B L"], num_clean: Int[Tensor, " B"], k: Int[Tensor, " B"], n: Int[Tensor, "N B"]
) -> tuple[Layout, Int[Tensor, "B S"], Int[Tensor, "B S"]]:
    """What is shown, to which copy of the candidates each slot belongs (-1: to all), and which slot it would be if that were the only one."""
    clean, most = num_clean[:, None], n.amax(0)[:, None]
    shared = clean + most
    shown = (shared + len(n) * k[:, None]).squeeze(1)
    at = torch.arange(int(shown.max()), device=order.device).expand(len(order), -1)
    beyond = (at - shared).clamp(min=0)
    copy = torch.where((at >= shared) & (at < shown[:, None]), beyond // k[:, None], -1)
    rank = beyond % k[:, None]
    source = torch.where(copy >= 0, clean + rank, torch.where(at < clean, at, at + k[:, None]))
    slot = torch.where(copy >= 0, clean + n.T.gather(1, copy.clamp(min=0)) + rank, at)
    padding = at >= shown[:, None]
    positions = order.gather(1, source.masked_fill(padding, 0)).masked_fill(padding, 0)
    return Layout(positions, num_clean, shown), copy, slot.masked_fill(padding, -1)


def shared_mask(
    rule: Rule, num_clean: Int[Tensor, " B"], n: Int[Tensor, "N B"], copy: Int[Tensor, "B S"], slot: Int[Tensor, "B S"]
) -> Bool[Tensor, "B S S"]:
    """Who sees whom: a candidate the clean tokens, its own n latents and its own copy, as the rule says; a padding slot itself."""
    q, j, own, other = slot[:, :, None], slot[:, None, :], copy[:, :, None], copy[:, None, :]
    latents_end = num_clean[:, None] + torch.where(copy >= 0, n.T.gather(1, copy.clamp(min=0)), slot.shape[1])
    reached = torch.where(other >= 0, own == other, j < latents_end[:, :, None])
    visible: Tensor = rule(q, j, num_clean[:, None, None])
    return (visible & reached & (q >= 0) & (j >= 0)) | torch.eye(slot.shape[1], dtype=torch.bool, device=slot.device)
