"""The candidates' logits of one state for several numbers of latent tokens, from one forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.core.attention import Rule, attends_later
from latent_tokens.core.denoiser import exclude_mask_token
from latent_tokens.core.layout import Layout
from latent_tokens.core.method import Method
from latent_tokens.core.order import block_of
from latent_tokens.network.transformer import Transformer


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
    """Return the logits, in float64, of the next `candidates` of the order for each number n of latents.

    The slots are [clean | most latents | candidates, once per n]. Clean tokens and latent tokens attend to
    nothing after them, so all n share them. One pass costs clean + max n + N k slots instead of N clean + sum
    n + N k. Samples of different n share no state after the first token, so `evaluate` does not use this.

    Args:
        net: the network, in eval mode.
        method: how it was trained.
        tokens: token ids.
        order: a permutation per row. Its first num_clean[b] entries are the clean positions of row b.
        num_clean: the number of clean tokens of each row.
        latents: the numbers n. Each is cut to the masked tokens that are left.
        candidates: k, likewise. A row with fewer candidates repeats its last.
        lengths: the length of each row. Later positions take no part.

    Raises:
        ValueError: the input of the method cannot be shared, a row has no masked token, or the net is in
            training mode.

    Example:
        >>> tokens = torch.zeros(1, 36, dtype=torch.int64)
        >>> order = torch.arange(36)[None]
        >>> sweep(net, METHODS["scdm"], tokens, order, torch.tensor([10]), latents=[0, 4]).shape
        torch.Size([2, 1, 1, 7])
    """
    if net.training:
        raise ValueError(
            "sweep: the net is in training mode, and dropout makes its logits random. Call net.eval()."
        )
    has_blocks = block_of(method.attention) is not None
    needs_own_pass = attends_later(method.attention) or method.readout != "in_place" or has_blocks
    if needs_own_pass or method.window is not None:
        raise ValueError(
            "sweep: a pass is shared only if masked tokens attend to none after them, "
            "with readout=in_place and without a window. Use scdm or esolm."
        )
    if not latents or min(latents) < 0 or candidates < 1:
        numbers = f"latents={list(latents)} with candidates={candidates}"
        raise ValueError(f"{numbers}: numbers of latents start at 0, and of candidates at 1")
    num_masked = (order.shape[1] if lengths is None else lengths) - num_clean
    if (num_masked < 1).any():
        row = int(num_masked.argmin())
        raise ValueError(f"row {row} has no masked token, so it has no candidate. Leave finished rows out.")
    k = num_masked.clamp(max=candidates)
    n = torch.tensor(latents, device=order.device)[:, None].minimum(num_masked - k)  # (N, B)
    layout, copy, slot = arrangement(order, num_clean, k, n)
    mask = shared_mask(method.attention, num_clean, n, copy, slot)
    ids = method.input_ids(tokens, layout, net.mask_id)
    logits = net(ids, layout.positions, mask, copy >= 0)  # (sum of N k, V)
    logits = exclude_mask_token(net.mask_id, logits).double()

    # The copies of a row follow each other, and so do the rows.
    copies = torch.arange(len(n), device=order.device)[:, None]
    start = (len(n) * k).cumsum(0) - len(n) * k + copies * k  # (N, B)
    rank = torch.arange(int(k.max()), device=order.device).minimum(k[:, None] - 1)
    return logits[start[:, :, None] + rank]


def arrangement(
    order: Int[Tensor, "B L"], num_clean: Int[Tensor, " B"], k: Int[Tensor, " B"], n: Int[Tensor, "N B"]
) -> tuple[Layout, Int[Tensor, "B S"], Int[Tensor, "B S"]]:
    """Return the layout, the copy of the candidates that each slot belongs to, and its slot in that copy.

    The slot is counted in an input that has no other copy. The copy of clean tokens and latent tokens is -1.
    """
    clean = num_clean[:, None]
    most = n.amax(0)[:, None]
    shared = clean + most
    num_shown = (shared + len(n) * k[:, None]).squeeze(1)
    at = torch.arange(int(num_shown.max()), device=order.device).expand(len(order), -1)
    beyond = (at - shared).clamp(min=0)
    copy = torch.where((at >= shared) & (at < num_shown[:, None]), beyond // k[:, None], -1)
    rank = beyond % k[:, None]
    shared_entry = torch.where(at < clean, at, at + k[:, None])
    entry = torch.where(copy >= 0, clean + rank, shared_entry)  # (B, S): the entry of the order in each slot
    slot = torch.where(copy >= 0, clean + n.T.gather(1, copy.clamp(min=0)) + rank, at)
    padding = at >= num_shown[:, None]
    positions = order.gather(1, entry.masked_fill(padding, 0)).masked_fill(padding, 0)
    return Layout(positions, num_clean, num_shown), copy, slot.masked_fill(padding, -1)


def shared_mask(
    rule: Rule,
    num_clean: Int[Tensor, " B"],
    n: Int[Tensor, "N B"],
    copy: Int[Tensor, "B S"],
    slot: Int[Tensor, "B S"],
) -> Bool[Tensor, "B S S"]:
    """Return the mask: a candidate attends, by the rule, to clean tokens, n latent tokens and its copy."""
    q = slot[:, :, None]
    j = slot[:, None, :]
    query_copy = copy[:, :, None]
    key_copy = copy[:, None, :]
    n_of_copy = torch.where(copy >= 0, n.T.gather(1, copy.clamp(min=0)), slot.shape[1])
    latents_end = num_clean[:, None] + n_of_copy
    reached = torch.where(key_copy >= 0, query_copy == key_copy, j < latents_end[:, :, None])
    visible = rule(q, j, num_clean[:, None, None])
    diagonal = torch.eye(slot.shape[1], dtype=torch.bool, device=slot.device)
    return (visible & reached & (q >= 0) & (j >= 0)) | diagonal
