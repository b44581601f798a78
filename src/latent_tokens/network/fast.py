"""The optimized implementation of sampling: the same loop, with only the work that candidates depend on.

`generate` here is the public one. The loop is that of core/sampling.py. Only the function that computes the
candidates' logits differs, and it is tested equal to the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.core import sampling as reference
from latent_tokens.core.attention import Rule, dense_mask, is_cacheable
from latent_tokens.core.decoding import Decoding, Generated, Step
from latent_tokens.core.layout import Layout
from latent_tokens.core.methods import Denoiser, Method, exclude_mask_token, supports_slots
from latent_tokens.core.sampling import decode, finish
from latent_tokens.core.state import State, start
from latent_tokens.network.buckets import bucket_by_length
from latent_tokens.network.memory import decoding_rows
from latent_tokens.network.transformer import Transformer

TABLE_BYTES = 1 << 28  # the size limit of the first layer's table


def generate(
    net: Denoiser,
    method: Method,
    tokens: Int[Tensor, "B L"],
    known: Bool[Tensor, "B L"],
    decoding: Decoding,
    seed: int,
    *,
    rows: Int[Tensor, " B"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> Generated:
    """Decode the unknown positions of each row (Algorithms 1 to 5; appendix C for several tokens per step).

    Sample i depends on (seed, rows[i]) only: it is the same alone, in any batch and in any order. A batch of
    any size is split into parts that fit into memory. `on_step` receives the steps of one part after those of
    another.

    For our Transformer in eval mode, without hooks, the logits equal those of the reference implementation up
    to rounding, and so do the samples, unless two choices are that close. Any other network runs the
    reference implementation.

    Args:
        net: the network.
        method: how it was trained.
        tokens: token ids. Ignored where `known` is false.
        known: true at given positions.
        decoding: the settings.
        seed: row b draws from the random stream (seed, rows[b]).
        rows: the number of each row, by default 0..B-1.
        lengths: the length of each row. Later positions take no part.
        on_step: called with every step.

    Raises:
        ValueError: the decoding does not suit the method, shapes or values are off, or logits are not finite.

    Example:
        >>> known = torch.zeros(2, 36, dtype=torch.bool)
        >>> decoding = Decoding(candidates=4, latents=8)
        >>> generate(net, net.method, known.long(), known, decoding, seed=0).tokens.shape
        torch.Size([2, 36])
    """
    if not isinstance(net, Transformer) or not is_plain(net):
        return reference.generate(
            net, method, tokens, known, decoding, seed, rows=rows, lengths=lengths, on_step=on_step
        )
    state = start(net, method, tokens, known, decoding, seed, rows, lengths)
    with torch.inference_mode():
        table = qkv_table(net, *tokens.shape)
        for part in microbatches(net, method, state, decoding):
            candidate_logits = FastCandidateLogits(net, method, part, tokens.shape[1], table)
            decode(net, method, decoding, state, part, candidate_logits, on_step)
    return finish(state)


def is_plain(net: Transformer) -> bool:
    """Return whether the parts of a network may be called one by one.

    It must be in eval mode, without hooks, and not a subclass whose forward does not take slots.
    """
    return supports_slots(net) and not (net.training or net._forward_hooks or net._forward_pre_hooks)


def microbatches(
    net: Transformer, method: Method, state: State, decoding: Decoding
) -> list[Int[Tensor, " R"]]:
    """Split the rows of a batch into parts that fit into memory.

    Rows of a part have about as many slots in their first step.
    """
    length = state.tokens.shape[1]
    k = length
    if isinstance(decoding.candidates, int):
        largest_step = int(state.sizes.max()) if state.sizes.numel() else 0
        k = min(max(decoding.candidates, largest_step), length)
    if is_cacheable(method.attention):
        # Keys and values are cached, so a step computes the same number of slots in every row.
        slots = state.lengths
    elif method.latent_control == "fixed" or not isinstance(decoding.latents, int):
        slots = state.num_clean + method.max_visible(state.num_masked)
    else:
        slots = state.num_clean + state.num_masked.clamp(max=min(k + decoding.latents, length))
    parts = bucket_by_length(slots.tolist(), partial(decoding_rows, net, k))
    return [torch.tensor(part, device=slots.device) for part in parts]


def qkv_table(net: Transformer, batch: int, length: int) -> Float[Tensor, "T W"] | None:
    """Return the first layer's table, or None if it takes too much memory, or more time than it saves."""
    size = net.table_rows * 3 * net.size.width * net.head.weight.element_size()
    if size > TABLE_BYTES or 8 * net.table_rows > batch * length**2:
        return None
    return net.qkv_table()


class FastCandidateLogits:
    """Computes the candidates' logits of some rows, step after step (a `sampling.CandidateLogits`)."""

    def __init__(
        self,
        net: Transformer,
        method: Method,
        rows: Int[Tensor, " R"],
        length: int,
        table: Float[Tensor, "T W"] | None,
    ) -> None:
        self.net = net
        self.method = method
        self.table = table
        self.cache = KVCache(method, rows, length) if is_cacheable(method.attention) else None

    def __call__(
        self,
        rows: Int[Tensor, " A"],
        tokens: Int[Tensor, "A L"],
        layout: Layout,
        num_candidates: Int[Tensor, " A"],
    ) -> Float[Tensor, "A K V"]:
        # Compute all slots, or those that are not cached.
        if self.cache is None:
            slots = layout.slots.expand_as(layout.positions)
            append = None
        else:
            slots = self.cache.uncached(rows, layout)  # (A, Q)
            append = partial(self.cache.append, slots)
        ids = self.method.input_ids(tokens, layout, self.net.mask_id).gather(1, slots)
        positions = layout.positions.gather(1, slots)

        # The candidates among them need logits. Padding repeats a row's last slot, which counts once.
        first = layout.num_shown - num_candidates
        is_candidate = (slots >= first[:, None]) & (slots < layout.num_shown[:, None])
        is_candidate[:, 1:] &= slots[:, 1:] > slots[:, :-1]
        mask = query_mask(self.method.attention, layout, slots)
        logits = self.net.forward_at(ids, positions, mask, is_candidate, self.table, append)  # (N, V)

        # Return one line per row. A row with fewer candidates repeats its last.
        rank = torch.arange(int(num_candidates.max()), device=rows.device)
        before = (num_candidates.cumsum(0) - num_candidates)[:, None]
        index = before + rank.minimum(num_candidates[:, None] - 1)  # (A, K)
        return exclude_mask_token(self.net.mask_id, logits).double()[index]


class KVCache:
    """Keys and values that no later step changes: of clean slots, and with a shifted readout of all slots.

    Those of latent tokens and candidates are written behind them and overwritten at the next step.
    """

    def __init__(self, method: Method, rows: Int[Tensor, " R"], length: int) -> None:
        self.rows = rows
        self.length = length
        self.keeps_all = method.readout == "shifted"
        self.cached = torch.zeros_like(rows)  # the number of slots of each row
        self.layers: list[Tensor] = []

    def uncached(self, rows: Int[Tensor, " A"], layout: Layout) -> Int[Tensor, "A Q"]:
        """Return the slots of the input that are not cached. A row with fewer repeats its last."""
        if len(rows) < len(self.rows):
            keep = torch.isin(self.rows, rows)
            self.rows = rows
            self.cached = self.cached[keep]
            self.layers = [layer[:, keep] for layer in self.layers]
        cached = self.cached
        self.cached = layout.num_shown if self.keeps_all else layout.num_clean
        count = layout.num_shown - cached
        rank = torch.arange(int(count.max()), device=count.device)
        return cached[:, None] + rank.minimum(count[:, None] - 1)

    def append(
        self, slots: Int[Tensor, "A Q"], number: int, k: Float[Tensor, "A H Q C"], v: Float[Tensor, "A H Q C"]
    ) -> tuple[Tensor, Tensor]:
        """Write a layer's new keys and values, and return those of all slots so far, (A, H, S, C)."""
        if number == len(self.layers):  # at the first step, when the precision of the network is known
            batch, heads, _, channels = v.shape
            self.layers.append(v.new_zeros(2, batch, heads, self.length, channels))
        layer = self.layers[number]
        rows = torch.arange(len(slots), device=slots.device)[:, None]
        layer[0][rows, :, slots] = k.transpose(1, 2).to(v.dtype)
        layer[1][rows, :, slots] = v.transpose(1, 2)
        so_far = layer[:, :, :, : int(slots.max()) + 1]
        return so_far[0], so_far[1]


def query_mask(rule: Rule, layout: Layout, queries: Int[Tensor, "A Q"]) -> Bool[Tensor, "C 1 Q S"] | None:
    """Return the dense mask of some slots: one for all rows if these are equal, None if it is all true."""
    first = Layout(layout.positions[:1], layout.num_clean[:1], layout.num_shown[:1])
    equal = (layout.num_clean == first.num_clean).all() & (layout.num_shown == first.num_shown).all()
    equal = equal & (queries == queries[:1]).all() & (layout.is_independent is None)
    mask = dense_mask(rule, first, queries[:1]) if equal else dense_mask(rule, layout, queries)
    mask = mask[:, None]
    return None if mask.all() else mask
