"""The optimized implementation of sampling: the same loop, with only the work that candidates depend on.

`generate` here is the public one. The loop is that of core/sampling.py. Only the function that
computes the candidates' logits differs, and it is tested equal to the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Unpack

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latent_tokens.checks import changed, refuse
from latent_tokens.core.attention import BlockCausal, agree, bidirectional, dense_mask, is_cacheable
from latent_tokens.core.decoding import Decoding, candidates_of
from latent_tokens.core.denoiser import Denoiser, as_denoiser, check_length, supports_slots, unwrap
from latent_tokens.core.generated import Generated, Step
from latent_tokens.core.layout import Layout
from latent_tokens.core.method import Method, checked_method
from latent_tokens.core.order import any_order, block_of
from latent_tokens.core.sampling import (
    CandidateLogits,
    decode,
    decode_and_remask,
    finish,
    reference_logits,
)
from latent_tokens.core.speculation import reference_step_logits, speculate
from latent_tokens.core.state import PlannedStep, State, Stop, first_state
from latent_tokens.keywords import DecodingKeywords
from latent_tokens.network.block import output_slots
from latent_tokens.network.cached import CachedLogits
from latent_tokens.network.check import check_once
from latent_tokens.network.kernels import fast_nucleus, has_hooks, packed_weights
from latent_tokens.network.memory import bucket_by_length, decoding_rows
from latent_tokens.network.transformer import Transformer

TABLE_BYTES = 1 << 28  # the size limit of the first layer's table


def generate(
    net: Denoiser | nn.Module,
    method: Method | None = None,
    tokens: Int[Tensor, "B L"] | None = None,
    known: Bool[Tensor, "B L"] | None = None,
    decoding: Decoding | None = None,
    seed: int = 0,
    *,
    rows: Int[Tensor, " B"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
    on_step: Callable[[Step], None] | None = None,
    stop: Stop | None = None,
    **settings: Unpack[DecodingKeywords],
) -> Generated:
    """Decode the unknown positions of each row (Algorithms 1 to 5; appendix C for several tokens per step).

    Sample i depends on (seed, rows[i]) only: it is the same alone, in any batch and in any order. A
    batch of any size is split into parts that fit into memory. `on_step` receives the steps of one
    part after those of another.

    For our Transformer in eval mode, without hooks, the logits equal those of the reference
    implementation up to rounding, and so do the samples, unless two choices are that close. So they
    do for a decoder of `transformers` under a causal rule, with a KV cache. Any other network, a
    subclass, or the readout "left" runs the reference implementation. A network that is not ours is
    tested by `check_network` at its first call. Only our Transformer splits a batch.

    Args:
        net: the network, also in a wrapper: DDP, torch.compile or PEFT.
        method: how it was trained. None is `net.method`.
        tokens: token ids. Ignored where `known` is false.
        known: true at given positions.
        decoding: the settings. None is `Decoding()`.
        seed: row b draws from the random stream (seed, rows[b]).
        rows: the number of each row, by default 0..B-1.
        lengths: the length of each row. Later positions take no part.
        on_step: called with every step.
        stop: called after every step with the numbers of unfinished rows and their tokens, MASK
            where masked. If it returns true, the decoding of these rows ends, and their masked
            tokens stay MASK.
        **settings: fields of `Decoding` that replace those of `decoding` (`latents=4`). A name or a
            short form that sets a field, as `order="margin"`, does not replace another one.

    Returns:
        The decoded tokens, their order and their cost.

    Raises:
        ValueError: the decoding does not suit the method, shapes or values are off, logits are not
            finite, or the network does not pass `check_network`.

    Example:
        >>> known = torch.zeros(2, 36, dtype=torch.bool)
        >>> generate(net, net.method, known.long(), known, candidates=4, latents=8).tokens.shape
        torch.Size([2, 36])
    """
    inner = unwrap(net)
    method = checked_method(inner, method)
    tokens = check_tensor("tokens", tokens)
    known = check_tensor("known", known)
    decoding = Decoding() if decoding is None else decoding
    if not isinstance(decoding, Decoding):
        refuse(
            f"decoding={type(decoding).__name__}",
            "must be a Decoding",
            "keywords, or Decoding(...)",
        )
    if "order" in settings and decoding.order is any_order and decoding.candidates == 1:
        settings.setdefault("candidates", None)  # that of order=uniform, which is replaced
    decoding = changed(decoding, settings)
    length = tokens.shape[-1]
    check_length(inner, length)
    state = first_state(inner, method, tokens, known, decoding, seed, rows, lengths)
    every_row = torch.arange(len(tokens), device=tokens.device)
    others = (fast_nucleus, on_step, stop)
    loop = decode if decoding.remask is None else decode_and_remask
    # Drafts need the logits of several steps from one pass, which the cache of a network has not.
    cached = None if decoding.drafts else own_cache(inner, method, length, every_row)
    # A network with a KV cache of its own, such as a decoder of transformers.
    if cached is not None:
        with torch.inference_mode():
            loop(inner, method, decoding, state, every_row, cached, *others)
    elif isinstance(inner, Transformer) and is_plain(inner) and method.readout != "left":
        # Ours: its parts are called one by one, and only what the candidates depend on is computed.
        with torch.inference_mode(), packed_weights():
            table = qkv_table(inner, *tokens.shape)
            for part in decoding_microbatches(inner, method, state, decoding):
                order = state.order[part]
                if decoding.drafts:
                    slots = most_slots(method, decoding, length)
                    cache = CachedLogits(inner, method, part, order, table, slots)
                    speculate(method, decoding, state, part, cache.of_steps, *others)
                else:
                    fast = FastCandidateLogits(inner, method, part, order, table)
                    loop(inner, method, decoding, state, part, fast, *others)
    else:
        # Any other: the reference, once the network has passed the checks of its contract.
        check_once(inner, method, length)
        whole = as_denoiser(net)
        if decoding.drafts:
            every_step = partial(reference_step_logits, whole, method)
            speculate(method, decoding, state, every_row, every_step, *others)
        else:
            every_slot = partial(reference_logits, whole, method)
            loop(whole, method, decoding, state, every_row, every_slot, *others)
    return finish(state)


def most_slots(method: Method, decoding: Decoding, length: int) -> int:
    """Return the largest number of slots of an input: the length, and the masked slots of its drafts."""
    if not decoding.drafts:
        return length
    latents = method.default_latents if decoding.latents is None else decoding.latents
    n = min(latents, length) if isinstance(latents, int) else length
    return length + (decoding.drafts + 1) * (max(n, decoding.drafts) + 1)


def own_cache(
    net: Denoiser | nn.Module, method: Method, length: int, rows: Int[Tensor, " R"]
) -> CandidateLogits | None:
    """Return what computes some rows' logits with a KV cache of the network's own, or None.

    Such a network has a method `cached_logits`. It returns None if its cache is not exact.
    """
    cached_logits = getattr(net, "cached_logits", None)
    return None if cached_logits is None else cached_logits(method, length, rows)


def is_plain(net: Transformer) -> bool:
    """Return whether the parts of a network may be called one by one.

    It must be in eval mode, without hooks on it or inside it, and no subclass, whose forward may do
    more.
    """
    return type(net) is Transformer and supports_slots(net) and not (net.training or has_hooks(net))


def decoding_microbatches(
    net: Transformer, method: Method, state: State, decoding: Decoding
) -> list[Int[Tensor, " R"]]:
    """Split the rows of a batch into parts that fit into memory.

    Rows of a part have about as many slots in their first step.
    """
    length = state.tokens.shape[1]
    k = length
    candidates = candidates_of(method, decoding)
    latents = method.default_latents if decoding.latents is None else decoding.latents
    if isinstance(candidates, int):
        largest_step = int(state.sizes.max()) if state.sizes.numel() else 0
        k = min(max(candidates, largest_step), length)
    if is_cacheable(method.attention, length):
        # Keys and values are cached, so a step computes the same number of slots in every row.
        slots = state.lengths + (most_slots(method, decoding, length) - length)
    elif isinstance(latents, int):
        slots = state.num_clean + state.num_masked.clamp(max=min(k + latents, length))
    else:
        # All, or decided step by step: as many as the method shows at most.
        slots = state.num_clean + method.max_visible(state.num_masked)
    parts = bucket_by_length(slots.tolist(), partial(decoding_rows, net, k))
    return [torch.tensor(part, device=slots.device) for part in parts]


def qkv_table(net: Transformer, batch: int, length: int) -> Float[Tensor, "T W"] | None:
    """Return the first layer's table, or None if it takes too much memory, or more time than it saves."""
    size = net.table_rows * 3 * net.size.width * net.embedding.weight.element_size()
    # A decode looks up at most batch * length rows in each of length steps. The table computes each
    # of its own rows once, so it saves time if these are far fewer.
    if size > TABLE_BYTES or 8 * net.table_rows > batch * length**2:
        return None
    return net.qkv_table()


def keeps_keys(method: Method, length: int) -> bool:
    """Return whether keys and values can be cached: of clean slots, or of finished blocks."""
    return is_cacheable(method.attention, length) or isinstance(method.attention, BlockCausal)


class FastCandidateLogits:
    """Computes the candidates' logits of some rows, step after step (a `sampling.CandidateLogits`)."""

    def __init__(
        self,
        net: Transformer,
        method: Method,
        rows: Int[Tensor, " R"],
        order: Int[Tensor, "R L"],
        table: Float[Tensor, "T W"] | None,
    ) -> None:
        self.net = net
        self.method = method
        self.table = table
        self.sees_all = agree(method.attention, bidirectional, order.shape[1])
        is_cached = keeps_keys(method, order.shape[1])
        self.cache = CachedLogits(net, method, rows, order, table) if is_cached else None

    def __call__(
        self, plan: PlannedStep, tokens: Int[Tensor, "A L"], layout: Layout
    ) -> Float[Tensor, "A K V"]:
        of_candidates = self.without_cache if self.cache is None else self.cache
        logits = of_candidates(plan, tokens, layout).double()  # (N, V)
        # MASK may be an output of the network, and is never decoded.
        logits[:, self.net.mask_id :] = -torch.inf

        # Return one line per row. A row with fewer candidates repeats its last.
        k = plan.host.candidates
        if (k == k[0]).all():
            return logits.view(len(k), -1, logits.shape[-1])
        rank = np.minimum(np.arange(k.max()), k[:, None] - 1)
        index = torch.from_numpy((k.cumsum() - k)[:, None] + rank)  # (A, K)
        return logits[index.to(logits.device, non_blocking=True)]

    def without_cache(
        self, plan: PlannedStep, tokens: Int[Tensor, "A L"], layout: Layout
    ) -> Float[Tensor, "N V"]:
        """Return the candidates' logits, row by row, without a cache."""
        slots = np.arange(layout.positions.shape[1])
        stop = plan.host.num_shown[:, None]
        is_candidate = (slots >= stop - plan.host.candidates[:, None]) & (slots < stop)
        if not plan.is_even or block_of(self.method.attention) is not None:
            # Blocks are of positions, which differ between rows of equal counts.
            mask = dense_mask(self.method.attention, layout)[:, None]
        elif self.sees_all:
            # Attention without a mask has faster kernels.
            mask = None
        else:
            # All rows have the same counts, so the mask of one row is that of each.
            one = Layout(layout.positions[:1], layout.num_clean[:1], layout.num_shown[:1])
            mask = dense_mask(self.method.attention, one)[:, None]
        ids = self.method.input_ids(tokens, layout, self.net.mask_id)
        slots_of_candidates = output_slots(is_candidate, ids.device)
        length = tokens.shape[1]
        return self.net.forward_at(
            ids, layout.positions, mask, slots_of_candidates, self.table, length
        )


def check_tensor(name: str, value: object) -> Tensor:
    """Return a tensor. Raise ValueError if it is not one."""
    if not isinstance(value, Tensor):
        use = "torch.as_tensor, net.method before tokens and known, or load(NAME).generate(PROMPT)"
        refuse(f"{name}={type(value).__name__}", "must be a tensor", use)
    return value
