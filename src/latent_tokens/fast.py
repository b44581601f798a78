"""The same samples sooner: the candidates' logits of our Transformer from no more work than they depend on.

`generate` here is the public one. Every step of it is the reference's own (decoding.py); what differs is the look at the
network, which is tested equal to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens import decoding as reference
from latent_tokens.attention import Rule, causal, dense_mask, sees_later
from latent_tokens.decoding import Decoding, Generated, State, Step, begin, decode, finish
from latent_tokens.layout import Layout, of_like_length
from latent_tokens.memory import decoding_rows
from latent_tokens.methods import Denoiser, Method, rule_out
from latent_tokens.model import Transformer

TABLE_BYTES = 1 << 28  # the first layer's table may take so much


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
    """Fill in the unknown positions of each row: Algorithms 1 to 5, with several tokens a step as in appendix C.

    `tokens` is ignored where `known` is false. Row b draws from the stream (seed, rows[b]), rows = 0..B-1 by default, so a
    row with its number comes out the same alone, in any batch and in any order. Positions from lengths[b] on take no part.
    A batch of any size is decoded in parts that fit into memory, rows with as many known tokens together.

    For our Transformer in eval mode, without hooks, the logits are those of `decoding.generate` to rounding, and so are the samples, but
    where two choices were that close. Any other denoiser gets the reference itself. `on_step` sees the steps of one part after the other's.
    Raises ValueError where the decoding does not suit the method, where shapes or values are off, or logits are not finite.
    """
    if not isinstance(net, Transformer) or not net.reads or net.training or net._forward_hooks or net._forward_pre_hooks:
        return reference.generate(net, method, tokens, known, decoding, seed, rows=rows, lengths=lengths, on_step=on_step)
    state = begin(net, method, tokens, known, decoding, seed, rows, lengths)
    with torch.inference_mode():
        table = first_layer(net, *tokens.shape)
        for part in parts(net, method, state, decoding):
            decode(net, method, decoding, state, part, look=FastLook(net, method, part, tokens.shape[1], table), on_step=on_step)
    return finish(state)


def parts(net: Transformer, method: Method, state: State, decoding: Decoding) -> list[Int[Tensor, " R"]]:
    """The rows of a batch in parts that fit into memory, those together that show about as many slots in their first step."""
    length, most = state.tokens.shape[1], state.sizes.max() if state.sizes.numel() else 0
    candidates = min(max(decoding.candidates, int(most)), length) if isinstance(decoding.candidates, int) else length
    if method.attention is causal:
        shown = state.lengths  # each step computes as many slots in every row; those before are remembered
    elif sees_later(method.attention) or not isinstance(decoding.latents, int):
        shown = state.num_clean + method.room(state.left)
    else:
        shown = state.num_clean + state.left.clamp(max=min(candidates + decoding.latents, length))
    return [torch.tensor(part, device=shown.device) for part in of_like_length(shown.tolist(), partial(decoding_rows, net, candidates))]


def first_layer(net: Transformer, batch: int, length: int) -> Float[Tensor, "T W"] | None:
    """The net's table, or None where it would take more memory than it may, or more time than it saves."""
    size = net.table_rows * 3 * net.size.width * net.head.weight.element_size()
    return net.table() if size <= TABLE_BYTES and 8 * net.table_rows <= batch * length**2 else None


class FastLook:
    """Gives the candidates' logits of some rows, step after step (a `decoding.Look`)."""

    def __init__(self, net: Transformer, method: Method, rows: Int[Tensor, " R"], length: int, table: Float[Tensor, "T W"] | None) -> None:
        self.net, self.method, self.table = net, method, table
        self.cache = Cache(method, rows, length) if method.attention is causal else None

    def __call__(
        self, rows: Int[Tensor, " A"], tokens: Int[Tensor, "A L"], layout: Layout, num_candidates: Int[Tensor, " A"]
    ) -> Float[Tensor, "A K V"]:
        net, cache = self.net, self.cache
        slots = layout.slots.expand_as(layout.positions) if cache is None else cache.missing(rows, layout)  # (A, Q)
        ids, positions = self.method.fed(tokens, layout, net.mask_id).gather(1, slots), layout.positions.gather(1, slots)
        wanted = (slots >= (layout.num_shown - num_candidates)[:, None]) & (slots < layout.num_shown[:, None])
        wanted[:, 1:] &= slots[:, 1:] > slots[:, :-1]  # what pads a row repeats its last slot
        extend = None if cache is None else partial(cache.extend, slots)
        logits = net.read(ids, positions, seen(self.method.attention, layout, slots), wanted, self.table, extend)  # (N, V)
        rank = torch.arange(int(num_candidates.max()), device=rows.device)
        row_of = (num_candidates.cumsum(0) - num_candidates)[:, None] + rank.minimum(num_candidates[:, None] - 1)
        return rule_out(net.mask_id, logits).double()[row_of]


class Cache:
    """Keys and values of slots that no later step changes: under the causal rule the clean ones, with a shifted readout all that were shown.

    Latents and candidates are written behind them and overwritten at the next step.
    """

    def __init__(self, method: Method, rows: Int[Tensor, " R"], length: int) -> None:
        self.rows, self.length, self.keeps_shown = rows, length, method.readout == "shifted"
        self.held, self.layers = torch.zeros_like(rows), list[Tensor]()

    def missing(self, rows: Int[Tensor, " A"], layout: Layout) -> Int[Tensor, "A Q"]:
        """The slots that must be computed now: those shown and not held. A row with fewer repeats its last."""
        if len(rows) < len(self.rows):
            keep = torch.isin(self.rows, rows)
            self.rows, self.held, self.layers = rows, self.held[keep], [layer[:, keep] for layer in self.layers]
        held, self.held = self.held, layout.num_shown if self.keeps_shown else layout.num_clean
        count = layout.num_shown - held
        rank = torch.arange(int(count.max()), device=count.device)
        return held[:, None] + rank.minimum(count[:, None] - 1)

    def extend(self, slots: Int[Tensor, "A Q"], number: int, k: Float[Tensor, "A H Q C"], v: Float[Tensor, "A H Q C"]) -> tuple[Tensor, Tensor]:
        """Writes a layer's new keys and values, and gives those of all slots so far, (A, H, S, C)."""
        if number == len(self.layers):  # the first step: in the precision that the net computes in
            batch, heads, _, channels = v.shape
            self.layers.append(v.new_zeros(2, batch, heads, self.length, channels))
        layer, rows = self.layers[number], torch.arange(len(slots), device=slots.device)[:, None]
        layer[0][rows, :, slots], layer[1][rows, :, slots] = k.transpose(1, 2).to(v.dtype), v.transpose(1, 2)
        so_far = layer[:, :, :, : int(slots.max()) + 1]
        return so_far[0], so_far[1]


def seen(rule: Rule, layout: Layout, queries: Int[Tensor, "A Q"]) -> Bool[Tensor, "C 1 Q S"] | None:
    """The dense mask of these slots as attention takes it: one for all rows where they are alike, None where all is seen."""
    first = Layout(layout.positions[:1], layout.num_clean[:1], layout.num_shown[:1])
    alike = (layout.num_clean == first.num_clean).all() & (layout.num_shown == first.num_shown).all() & (queries == queries[:1]).all()
    mask = dense_mask(rule, *((first, queries[:1]) if alike else (layout, queries)))[:, None]
    return None if mask.all() else mask
