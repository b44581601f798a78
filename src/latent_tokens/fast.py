"""The same samples sooner: the candidates' logits of our Transformer from no more work than they depend on.

`generate` here is the public one. Every step of it is the reference's own (decoding.py); what differs is the look at the
network, which is tested equal to it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens import decoding as reference
from latent_tokens.attention import Rule, causal, dense_mask
from latent_tokens.decoding import Decoding, Generated, State, Step, begin, candidate_slots, decode, finish
from latent_tokens.layout import Layout
from latent_tokens.methods import Denoiser, Method, rule_out
from latent_tokens.model import Transformer, rotate

TABLE_BYTES = 1 << 28  # the first layer's table may take so much
PART_BYTES = 1 << 28  # on a CPU, what one step of a part of a batch may take: more does not make it faster
DEVICE_SHARE = 0.5  # elsewhere, the share of the device's free memory


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

    For our Transformer in eval mode the logits are those of `decoding.generate` to rounding, and so are the samples, but
    where two choices were that close. Any other denoiser, and a watcher (`on_step`), gets the reference itself.
    Raises ValueError where the decoding does not suit the method, where shapes or values are off, or logits are not finite.
    """
    if on_step is not None or not isinstance(net, Transformer) or net.training:
        return reference.generate(net, method, tokens, known, decoding, seed, rows=rows, lengths=lengths, on_step=on_step)
    state = begin(net, method, tokens, known, decoding, seed, rows, lengths)
    with torch.no_grad():
        table = first_layer(net, *tokens.shape)
        for part in parts(net, state, decoding):
            decode(net, method, decoding, state, part, look=FastLook(net, method, part, tokens.shape[1], table))
    return finish(state)


def parts(net: Transformer, state: State, decoding: Decoding) -> list[Int[Tensor, " R"]]:
    """The rows of a batch in parts that fit into memory, those of one length and one number of known tokens together."""
    order = (state.lengths * (state.lengths.max() + 1) + state.num_clean).argsort(stable=True) if len(state.lengths) else state.lengths
    return list(order.split(rows_a_part(net, state.tokens.shape[1], decoding)))


def rows_a_part(net: Transformer, length: int, decoding: Decoding) -> int:
    """How many rows of `length` fit into memory at once, at least one: hidden states, mask, cache, and logits in float64."""
    width, element = net.size.width, net.head.weight.element_size()
    candidates = length if decoding.candidates == "all" else min(decoding.candidates, length)
    row = length * (16 * width * element + 8 * length + 2 * net.size.layers * width * element) + 40 * candidates * net.head.out_features
    device = net.head.weight.device
    room = DEVICE_SHARE * torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else PART_BYTES
    return max(1, int(room // row))


def first_layer(net: Transformer, batch: int, length: int) -> Float[Tensor, "N W"] | None:
    """The first block's queries, keys and values for all it can be fed, or None where computing that would not pay.

    Row `token`, or `token * length + position` where positions are learned: rotary ones turn what comes out.
    """
    places = 1 if net.place is None else length
    count, weight = (net.vocab_size + 1) * places, net.blocks[0].qkv.weight
    if 8 * count > batch * length**2 or count * weight.shape[0] * weight.element_size() > TABLE_BYTES:
        return None
    ids = torch.arange(net.vocab_size + 1, device=weight.device)[:, None].expand(-1, places)
    positions = torch.arange(places, device=weight.device).expand_as(ids)
    block = net.blocks[0]
    return block.qkv(block.attention_norm(net.embed(ids, positions))).flatten(0, 1)


class FastLook:
    """Gives the candidates' logits of some rows, step after step (a `decoding.Look`).

    The first layer is looked up; the last has queries, MLP and head for the candidates alone, which is exact under every
    rule; under the causal one, what is decoded is remembered.
    """

    def __init__(self, net: Transformer, method: Method, rows: Int[Tensor, " R"], length: int, table: Float[Tensor, "N W"] | None) -> None:
        self.net, self.method, self.length, self.table = net, method, length, table
        self.cache = Cache(net, method, rows, length) if method.attention is causal else None
        turns = net.rotation(torch.arange(length, device=rows.device)[None], net.head.weight.dtype)
        self.turns = None if net.positions == "learned" else tuple(turn[0, 0] for turn in turns)  # each (L, C/2)

    def __call__(
        self, rows: Int[Tensor, " A"], tokens: Int[Tensor, "A L"], layout: Layout, num_candidates: Int[Tensor, " A"]
    ) -> Float[Tensor, "A K V"]:
        net, cache, last = self.net, self.cache, len(self.net.blocks) - 1
        slots = layout.slots.expand_as(layout.positions) if cache is None else cache.missing(rows, layout)  # (A, Q)
        ids, positions = self.method.fed(tokens, layout, net.mask_id).gather(1, slots), layout.positions.gather(1, slots)
        asked = candidate_slots(layout, num_candidates)
        wanted = asked - slots[:, :1]  # (A, K), which of the slots they are

        x, mask, rotation = net.embed(ids, positions), seen(self.method.attention, layout, slots), self.rotation(positions)
        for number, block in enumerate(net.blocks):
            q, k, v = self.project(number, x, ids, positions, wanted if number == last else None)
            k = k if rotation is None else rotate(k, *rotation)
            if cache is not None:
                k, v = cache.extend(number, slots, k, v)
            if number == last:
                x, mask, rotation = at(x, wanted), seen(self.method.attention, layout, asked), self.rotation(at(positions, wanted))
            q = q if rotation is None else rotate(q, *rotation)
            x = block.finish(x, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
        return rule_out(net.mask_id, net.head(net.norm(x))).double()

    def project(self, number: int, x: Tensor, ids: Tensor, positions: Tensor, wanted: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """A block's queries, at the wanted slots where they are named, and its keys and values, each (A, H, ., C)."""
        block, width = self.net.blocks[number], self.net.size.width
        if number == 0 and self.table is not None:
            index = ids if self.net.place is None else ids * self.length + positions
            q, kv = self.table.index_select(0, index.flatten()).unflatten(0, ids.shape).split([width, 2 * width], dim=-1)
            q = q if wanted is None else at(q, wanted)
        elif wanted is None:
            q, kv = block.qkv(block.attention_norm(x)).split([width, 2 * width], dim=-1)
        else:
            normed, weight = block.attention_norm(x), block.qkv.weight
            q, kv = F.linear(at(normed, wanted), weight[:width]), F.linear(normed, weight[width:])
        return *block.split(q, 1), *block.split(kv, 2)

    def rotation(self, positions: Int[Tensor, "A Q"]) -> tuple[Tensor, Tensor] | None:
        """Cosine and sine for each position, (A, 1, Q, C/2), where positions are rotary."""
        return None if self.turns is None else (self.turns[0][positions][:, None], self.turns[1][positions][:, None])


class Cache:
    """Keys and values of slots that no later step changes: under the causal rule the clean ones, with a shifted readout all that were shown.

    Latents and candidates are written behind them and overwritten at the next step.
    """

    def __init__(self, net: Transformer, method: Method, rows: Int[Tensor, " R"], length: int) -> None:
        self.rows, self.keeps_shown = rows, method.readout == "shifted"
        self.held, self.next_held = torch.zeros_like(rows), torch.zeros_like(rows)
        size = net.size
        shape = (2, len(rows), length, size.heads, size.width // size.heads)
        self.layers = [torch.zeros(shape, dtype=net.head.weight.dtype, device=rows.device) for _ in net.blocks]

    def missing(self, rows: Int[Tensor, " A"], layout: Layout) -> Int[Tensor, "A Q"]:
        """The slots that must be computed: those shown and not held. A row with fewer repeats its last."""
        if len(rows) < len(self.rows):
            keep = torch.isin(self.rows, rows)
            self.rows, self.next_held, self.layers = rows, self.next_held[keep], [layer[:, keep] for layer in self.layers]
        self.held, self.next_held = self.next_held, layout.num_shown if self.keeps_shown else layout.num_clean
        count = layout.num_shown - self.held
        rank = torch.arange(int(count.max()), device=count.device)
        return self.held[:, None] + rank.minimum(count[:, None] - 1)

    def extend(self, number: int, slots: Int[Tensor, "A Q"], k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes a layer's new keys and values, (A, H, Q, C), and gives those of all slots so far, (A, H, S, C)."""
        layer, rows = self.layers[number], torch.arange(len(slots), device=slots.device)[:, None]
        layer[0, rows, slots], layer[1, rows, slots] = k.transpose(1, 2), v.transpose(1, 2)
        so_far = layer[:, :, : int(slots.max()) + 1].transpose(2, 3)
        return so_far[0], so_far[1]


def seen(rule: Rule, layout: Layout, queries: Int[Tensor, "A Q"]) -> Bool[Tensor, "C 1 Q S"] | None:
    """The dense mask for these slots as attention takes it: one for all rows where they are alike, None where all is seen."""
    first = Layout(layout.positions[:1], layout.num_clean[:1], layout.num_shown[:1])
    alike = (layout.num_clean == first.num_clean).all() & (layout.num_shown == first.num_shown).all() & (queries == queries[:1]).all()
    mask = dense_mask(rule, *((first, queries[:1]) if alike else (layout, queries)))[:, None]
    return None if mask.all() else mask


def at(x: Tensor, index: Int[Tensor, "A K"]) -> Tensor:
    """x[b, index[b, i]], of x (A, Q, ...)."""
    return x[torch.arange(len(x), device=x.device)[:, None], index]
