"""Sampling: one loop for every method, order, number of candidates and number of latent tokens (Algorithms 1 to 5).

This is the reference: it shows the net exactly the slots that matter and reads like the algorithm box.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.attention import sees_later
from latent_tokens.checks import is_whole
from latent_tokens.confidence import Confidence, top_prob
from latent_tokens.layout import Layout, next_layout
from latent_tokens.methods import Denoiser, Method, most_latents, name_of
from latent_tokens.order import LatentPolicy, Order, Showing, any_order, arrange, first_order, left_to_right, nearest, promote, shuffle
from latent_tokens.partition import Partition, sizes_of_steps
from latent_tokens.streams import Streams


def growing(clean: int) -> int:
    """Return the number of clean tokens + 1: few candidates early, all of them late (D-33, adaptive candidates)."""
    return clean + 1


@dataclass(frozen=True)
class Decoding:
    """How to sample. Raises ValueError for a value out of range."""

    candidates: int | Literal["all"] | Callable[[int], int] = 1  # k, or number clean -> k: of the next k the most confident is decoded
    latents: int | Literal["all"] | Callable[[int], int] | None = None  # n, or number masked -> n; None = the method's own
    tokens_per_step: int | Partition = 1  # or equal_parts(T), reverse_process(T), a given_partition's (appendix C)
    order: Order | None = None  # None = the method's own
    confidence: Confidence = top_prob  # of the raw logits, before temperature (D-16, confidence)
    latent_policy: LatentPolicy = nearest  # which masked positions are the n, and in what order they stand
    refresh: bool = True  # reshuffle an any_order schedule after every step; False is Algorithm 5 as printed (D-14, schedule refresh)
    temperature: float | int = 1.0  # 0 = argmax
    top_p: float | int = 1.0  # draw from the smallest set of tokens that holds this much probability

    def __post_init__(self) -> None:
        if self.candidates != "all" and not callable(self.candidates) and not is_whole(self.candidates, 1):
            raise ValueError(f"candidates={self.candidates}: must be a whole number from 1, 'all', or a function of the number of clean tokens")
        if self.latents is not None and self.latents != "all" and not callable(self.latents) and not is_whole(self.latents, 0):
            raise ValueError(f"latents={self.latents!r}: must be a whole number from 0, 'all', a function of the number masked, or None")
        if not callable(self.tokens_per_step) and not is_whole(self.tokens_per_step, 1):
            raise ValueError(f"tokens_per_step={self.tokens_per_step}: must be a whole number from 1, or a partition")
        if self.order is not None and not callable(self.order):
            raise ValueError(f"order={self.order}: must be a function of known; given(schedule) makes one")
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature={self.temperature}: must be 0 (argmax) or more, and finite")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p}: must be above 0 and at most 1")


@dataclass(frozen=True)
class Generated:
    """What `generate` gives back, for B rows of L positions."""

    tokens: Int[Tensor, "B L"]
    order: Int[Tensor, "B L"]  # known positions first, then the others as they were decoded, then those past the length
    processed: Int[Tensor, " B"]  # slots shown, summed over steps
    forward_passes: int  # steps of the row that took most


@dataclass(frozen=True)
class Step:
    """One decoding step, as `on_step` receives it: all that is needed to draw it. A is the number of rows still decoding."""

    rows: Int[Tensor, " A"]  # which rows of the batch
    number: Int[Tensor, " A"]  # steps that each has taken before
    layout: Layout  # what they show: layout.positions, num_clean, num_shown
    num_candidates: Int[Tensor, " A"]
    chosen: Int[Tensor, "A T"]  # positions decoded in this step, the most confident first; -1 where a row decodes fewer
    tokens: Int[Tensor, "A T"]  # what was drawn there; -1 likewise
    look: Callable[[], Float[Tensor, "A S V"]]  # the logits of every slot

    @cached_property
    def probabilities(self) -> Float[Tensor, "A S V"]:
        """At every slot, before temperature and top-p; what clean and padding slots hold means nothing. Computed when first asked for."""
        with torch.no_grad():
            return self.look().softmax(-1)

    @property
    def candidates(self) -> list[list[int]]:
        """The candidate positions of each row, in the order of their slots."""
        return self._slots(self.layout.num_shown - self.num_candidates, self.layout.num_shown)

    @property
    def latents(self) -> list[list[int]]:
        """The latent positions of each row, in the order of their slots."""
        return self._slots(self.layout.num_clean, self.layout.num_shown - self.num_candidates)

    def _slots(self, start: Int[Tensor, " A"], stop: Int[Tensor, " A"]) -> list[list[int]]:
        rows = zip(self.layout.positions.tolist(), start.tolist(), stop.tolist(), strict=True)
        return [positions[a:b] for positions, a, b in rows]


@dataclass
class State:
    """Where each of B rows stands between two steps; `decode` changes it in place."""

    tokens: Int[Tensor, "B L"]  # MASK where undecoded
    order: Int[Tensor, "B L"]  # the first num_clean are known or decoded, those up to the length are to come
    num_clean: Int[Tensor, " B"]
    lengths: Int[Tensor, " B"]
    sizes: Int[Tensor, "B T"]  # how many tokens each step of a row decodes
    steps: Int[Tensor, " B"]  # steps taken
    processed: Int[Tensor, " B"]  # slots shown, summed over steps
    streams: Streams

    @property
    def left(self) -> Int[Tensor, " B"]:
        return self.lengths - self.num_clean


Look = Callable[[Int[Tensor, " A"], Int[Tensor, "A L"], Layout, Int[Tensor, " A"]], Float[Tensor, "A K V"]]
"""(rows, their tokens, what they show, number of candidates) -> the candidates' logits in float64; a row with fewer repeats its last."""


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
    Raises ValueError where the decoding does not suit the method, where shapes or values are off, or logits are not finite.
    """
    state = begin(net, method, tokens, known, decoding, seed, rows, lengths)
    decode(net, method, decoding, state, torch.arange(len(tokens), device=tokens.device), on_step=on_step)
    return finish(state)


def begin(
    net: Denoiser,
    method: Method,
    tokens: Int[Tensor, "B L"],
    known: Bool[Tensor, "B L"],
    decoding: Decoding,
    seed: int,
    rows: Int[Tensor, " B"] | None,
    lengths: Int[Tensor, " B"] | None,
) -> State:
    """The state before the first step: what is known shown, the first order and the sizes of the steps drawn. Raises as `generate`."""
    tokens, (batch, length) = tokens.long(), tokens.shape
    everyone = torch.arange(batch, device=tokens.device)
    lengths = torch.full_like(everyone, length) if lengths is None else lengths
    rows = everyone if rows is None else rows
    check_decoding(method, decoding)
    check_shapes(tokens, known, lengths, rows)
    inside = torch.arange(length, device=tokens.device) < lengths[:, None]
    known, open = known & inside, ~known & inside
    check_known(net, method, tokens, known)

    streams = Streams(seed, rows)
    draw_all = partial(streams.uniform, everyone, open.sum(1))
    order = first_order(order_of(method, decoding), known, lengths, draw_all)
    sizes = sizes_of_steps(decoding.tokens_per_step, open, draw_all)
    nothing = torch.zeros_like(lengths)
    return State(tokens.masked_fill(open, net.mask_id), order, known.sum(1), lengths, sizes, nothing, nothing.clone(), streams)


@torch.no_grad()
def decode(
    net: Denoiser,
    method: Method,
    decoding: Decoding,
    state: State,
    rows: Int[Tensor, " R"],
    *,
    look: Look | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> None:
    """Takes these rows of the state to their end. `look` gives the candidates' logits by another way than a call of the net on every slot."""
    while len(active := rows[state.left[rows] > 0]):
        tokens, order, clean, left = state.tokens[active], state.order[active], state.num_clean[active], state.left[active]
        count = state.sizes[active, state.steps[active]].minimum(left)
        num_candidates, num_latents = how_many(method, decoding, clean, left, count)
        draw_latents = partial(state.streams.uniform, active, left - num_candidates)
        shown = arrange(decoding.latent_policy, Showing(order, clean, left, num_candidates, num_latents, tokens), draw_latents)
        layout = next_layout(shown, clean, num_candidates, num_latents)
        if look is None:
            logits = method.logits(net, tokens, layout)  # (A, S, V)
            candidates = candidate_logits(logits, layout, num_candidates)  # (A, K, V)
        else:
            candidates = look(active, tokens, layout, num_candidates)  # (A, K, V)

        picks = most_confident(candidates, decoding.confidence, num_candidates, count)  # (A, T)
        drawn = draw_tokens(candidates, picks, decoding, state.streams.uniform(active, count))
        positions = order.gather(1, (clean[:, None] + picks).clamp(max=order.shape[1] - 1))
        holds = torch.arange(picks.shape[1], device=order.device) < count[:, None]
        state.tokens[active[:, None].expand_as(holds)[holds], positions[holds]] = drawn[holds]

        order, clean = promote(order, clean, clean[:, None] + picks, count), clean + count
        if decoding.refresh and order_of(method, decoding) is any_order:
            order = shuffle(order, clean, state.streams.uniform(active, left - count))
        state.order[active], state.num_clean[active] = order, clean
        number = state.steps[active]
        state.steps[active] += 1
        state.processed[active] += layout.num_shown
        if on_step is not None:
            chosen, tokens_there = positions.masked_fill(~holds, -1), drawn.masked_fill(~holds, -1)
            on_step(Step(active, number, layout, num_candidates, chosen, tokens_there, partial(method.logits, net, tokens, layout)))


def finish(state: State) -> Generated:
    """What a state holds when all of its rows are at their end."""
    return Generated(state.tokens, state.order, state.processed, max(state.steps.tolist(), default=0))


def order_of(method: Method, decoding: Decoding) -> Order:
    """The order that is decoded in: the decoding's, else the method's own."""
    return method.order if decoding.order is None else decoding.order


def how_many(
    method: Method, decoding: Decoding, clean: Int[Tensor, " A"], left: Int[Tensor, " A"], count: Int[Tensor, " A"]
) -> tuple[Int[Tensor, " A"], Int[Tensor, " A"]]:
    """How many candidates and latents each row shows, of its `left` masked tokens and no more than the method's window.

    Where n + k are more than that, the candidates stay and the latents shrink (D-13, last decoding steps).
    """
    room = method.room(left)
    if (count > room).any():
        raise ValueError(
            f"{int(count.max())} tokens in one step with a window of {method.window}: it shows no more masked tokens than that; use fewer a step"
        )
    num_candidates = asked(decoding.candidates, room, clean, "candidates", least=1).maximum(count)
    wanted = None if sees_later(method.attention) else method.latents if decoding.latents is None else decoding.latents
    num_latents = asked("all" if wanted is None else wanted, room - num_candidates, left, "latents", least=0)
    return num_candidates, num_latents


def asked(
    number: int | Literal["all"] | Callable[[int], int], room: Int[Tensor, " A"], counts: Int[Tensor, " A"], name: str, least: int
) -> Int[Tensor, " A"]:
    """How many of `room` tokens each row shows: all, a number at most, or what a rule gives for its count.

    Raises ValueError where a rule gives no whole number from `least`.
    """
    if not callable(number):
        return room if number == "all" else room.clamp(max=number)
    found = torch.tensor([number(count) for count in counts.tolist()], device=counts.device)
    if found.is_floating_point() or (found < least).any():
        raise ValueError(f"{name} gives {found.tolist()} for {counts.tolist()} tokens: must be whole numbers from {least}")
    return found.minimum(room)


def candidate_logits(logits: Float[Tensor, "A S V"], layout: Layout, num_candidates: Int[Tensor, " A"]) -> Float[Tensor, "A K V"]:
    """The logits of each row's last `num_candidates` shown slots, in float64; a row with fewer repeats its last."""
    rank = torch.arange(int(num_candidates.max()), device=logits.device)
    slots = (layout.num_shown - num_candidates)[:, None] + rank.minimum(num_candidates[:, None] - 1)
    return logits.gather(1, slots[:, :, None].expand(-1, -1, logits.shape[-1])).double()


def most_confident(
    candidates: Float[Tensor, "A K V"], confidence: Confidence, num_candidates: Int[Tensor, " A"], count: Int[Tensor, " A"]
) -> Int[Tensor, "A T"]:
    """Which candidates to decode, the most confident first and ties by order; in the order itself where all of them are decoded.

    The first count[a] of row a hold.
    """
    rank = torch.arange(candidates.shape[1], device=candidates.device)
    scores = confidence(candidates).masked_fill((count >= num_candidates)[:, None], 0).masked_fill(rank >= num_candidates[:, None], -torch.inf)
    return scores.argsort(dim=1, descending=True, stable=True)[:, : int(count.max())]


def draw_tokens(candidates: Float[Tensor, "A K V"], picks: Int[Tensor, "A T"], decoding: Decoding, noise: Float[Tensor, "A T"]) -> Int[Tensor, "A T"]:
    """A token for each pick: by inverse CDF from the tempered, top-p distribution, or its argmax at temperature 0 (D-18, token sampling)."""
    logits = candidates.gather(1, picks[:, :, None].expand(-1, -1, candidates.shape[-1]))  # (A, T, V)
    logits = logits - logits.amax(-1, keepdim=True)
    if logits.isnan().any():
        raise ValueError("the net's logits are not finite where a token is to be drawn: its weights have diverged, or are damaged")
    if decoding.temperature == 0:
        return logits.argmax(-1)
    probabilities = (logits / decoding.temperature).softmax(-1)
    if decoding.top_p < 1:
        ranked, ids = probabilities.sort(dim=-1, descending=True, stable=True)
        beyond = ranked.cumsum(-1) - ranked >= decoding.top_p
        probabilities = torch.zeros_like(ranked).scatter(-1, ids, ranked.masked_fill(beyond, 0))
    cdf = probabilities.cumsum(-1)
    return (cdf / cdf[..., -1:] <= noise[..., None]).sum(-1)


def check_decoding(method: Method, decoding: Decoding) -> None:
    """Raises ValueError, naming what to use, if the method cannot decode so."""
    name = "this method" if name_of(method) == "custom" else name_of(method)
    n = getattr(decoding.latents, "__name__", decoding.latents)
    if sees_later(method.attention) and n is not None and n != "all":
        trained = f"ar-mtp-window-{n + 1}" if isinstance(n, int) else "ar-mtp-window-N"
        reason = "its number of latent tokens is fixed when it is trained"
        raise ValueError(f"latents={n} is not supported by {name}: {reason}. Use latents=all, a scdm or esolm model, or train {trained}.")
    if most_latents(method) is None and n is not None and n != 0:
        raise ValueError(f"latents={n} is not supported by {name}: it has no latent tokens. Use latents=0, or a scdm, esolm or ar-mtp model.")
    if method.order is left_to_right and decoding.candidates != 1:
        k = getattr(decoding.candidates, "__name__", decoding.candidates)
        raise ValueError(f"candidates={k} is not supported by {name}: it decodes the next token. Use candidates=1, or a mdm or scdm model.")
    if method.readout == "shifted" and decoding.order not in (None, left_to_right):
        raise ValueError(f"order is not supported by {name}: it decodes from left to right only. Use order=left_to_right, or a mdm or scdm model.")
    if method.readout == "shifted" and decoding.tokens_per_step != 1:
        raise ValueError(
            f"tokens_per_step={decoding.tokens_per_step} is not supported by {name}: it predicts one token per step. Use tokens_per_step=1."
        )


def check_shapes(tokens: Tensor, known: Tensor, lengths: Tensor, rows: Tensor) -> None:
    """Raises ValueError where the rows to fill in do not fit together."""
    batch, length = tokens.shape
    if known.shape != tokens.shape or lengths.shape != (batch,) or rows.shape != (batch,):
        shapes = f"known {tuple(known.shape)}, lengths {tuple(lengths.shape)}, rows {tuple(rows.shape)}"
        raise ValueError(f"tokens {(batch, length)} with {shapes}: known must be of the shape of tokens, lengths and rows of its first")
    if ((lengths < 0) | (lengths > length)).any():
        raise ValueError(f"lengths={lengths.tolist()}: must lie in 0..{length}")


def check_known(net: Denoiser, method: Method, tokens: Tensor, known: Tensor) -> None:
    """Raises ValueError where a known position holds no token, or the method cannot take what is known."""
    wrong = known & ((tokens < 0) | (tokens == net.mask_id))
    if wrong.any():
        row, place = wrong.nonzero()[0].tolist()
        raise ValueError(f"row {row}, position {place}: token {int(tokens[row, place])} is no known token; mark it as unknown instead")
    method.check_known(known)
