"""A decoding step of a network of `transformers` with a KV cache."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.core.attention import is_cacheable, visible
from latent_tokens.core.layout import Layout
from latent_tokens.core.methods import Method, exclude_mask_token
from latent_tokens.core.plan import PlannedStep
from latent_tokens.network.hf import HuggingFaceDenoiser


def supports_cache(net: HuggingFaceDenoiser, method: Method) -> bool:
    """Return whether the cache is exact for a network: a decoder in eval mode, under a causal rule.

    The readout "left" reads slots that it would have dropped. Hooks on the network, and the forward of a
    subclass, would not be called. Those of `net.model` are.
    """
    is_exact = is_cacheable(method.attention) and method.readout != "left"
    is_plain = type(net) is HuggingFaceDenoiser and not (net._forward_hooks or net._forward_pre_hooks)
    return net.cache_argument is not None and not net.training and is_exact and is_plain


class CachedModel:
    """Computes the candidates' logits of some rows, step after step (a `sampling.CandidateLogits`).

    It keeps keys and values that never change: those of clean slots, and with a shifted readout those of all
    slots. Rows may have different numbers of them. In a row with fewer, no slot attends to the padding.

    Args:
        net: the network, a decoder.
        method: how it was trained. Its attention is cacheable.
        rows: the rows to decode.
    """

    def __init__(self, net: HuggingFaceDenoiser, method: Method, rows: Int[Tensor, " R"]) -> None:
        from transformers import DynamicCache

        self.net = net
        self.method = method
        self.rows = rows
        self.cache = DynamicCache()
        self.num_cached = torch.zeros_like(rows)
        self.slots = rows.new_empty(len(rows), 0)  # (R, P): the slot of each cached key, -1 for none
        self.positions = rows.new_empty(len(rows), 0)  # (R, P): its position

    def __call__(
        self, plan: PlannedStep, tokens: Int[Tensor, "A L"], layout: Layout
    ) -> Float[Tensor, "A K V"]:
        rows, *_, num_candidates, _, _ = plan.on_device
        if len(rows) < len(self.rows):
            self.take(torch.isin(self.rows, rows))

        # The new slots. A row with fewer repeats its last.
        num_new = layout.num_shown - self.num_cached
        rank = torch.arange(int(num_new.max()), device=rows.device)
        new = self.num_cached[:, None] + rank.minimum(num_new[:, None] - 1)  # (A, Q)
        ids = self.method.input_ids(tokens, layout, self.net.mask_id).gather(1, new)
        positions = layout.positions.gather(1, new)

        # They attend by the rule to cached and new slots.
        keys = torch.cat([self.slots, new.masked_fill(rank >= num_new[:, None], -1)], dim=1)  # (A, P + Q)
        key_positions = torch.cat([self.positions, positions], dim=1)
        num_clean = layout.num_clean[:, None, None]
        num_shown = layout.num_shown[:, None, None]
        mask = visible(self.method.attention, new[:, :, None], keys[:, None, :], num_clean, num_shown)
        mask &= keys[:, None, :] >= 0

        # The candidates are the last slots. A row with fewer candidates repeats its last.
        candidate = torch.arange(int(num_candidates.max()), device=rows.device)
        at = (num_new - num_candidates)[:, None] + candidate.minimum(num_candidates[:, None] - 1)  # (A, K)
        columns, column_of = torch.unique(at, return_inverse=True)
        logits = self.net.logits_of(ids, positions, mask, key_positions, columns, self.cache)  # (A, C, V)
        logits = logits.gather(1, column_of[:, :, None].expand(-1, -1, logits.shape[-1]))

        # Of the cache, keep what never changes.
        num_fixed = layout.num_shown if self.method.readout == "shifted" else layout.num_clean
        num_kept = self.slots.shape[1] + int((num_fixed - self.num_cached).max())
        self.slots = keys[:, :num_kept].masked_fill(keys[:, :num_kept] >= num_fixed[:, None], -1)
        self.positions = key_positions[:, :num_kept]
        self.num_cached = num_fixed
        self.index_cache((slice(None), slice(None), slice(num_kept)))
        return exclude_mask_token(self.net.mask_id, logits).double()

    def take(self, lines: Bool[Tensor, " R"]) -> None:
        """Keep some rows only."""
        self.rows = self.rows[lines]
        self.num_cached = self.num_cached[lines]
        self.slots = self.slots[lines]
        self.positions = self.positions[lines]
        self.index_cache((lines,))

    def index_cache(self, index: tuple[slice | Tensor, ...]) -> None:
        """Keep a part of the keys and values, (R, H, P, C), of every layer."""
        layer: Any  # the type of `transformers` allows layers without keys
        for layer in self.cache.layers:
            layer.keys = layer.keys[index]
            layer.values = layer.values[index]
