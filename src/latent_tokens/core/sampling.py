"""Sampling: one loop for every method, order, number of candidates and of latent tokens (Algorithms 1 to 5).

This is the reference implementation. The input of the network is exactly the slots of the step, and
the loop reads like the algorithm. `generate` of examples/minimal.py is its short form.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.core.confidence import (
    CONFIDENCE_RTOL,
    Candidates,
    Confidence,
    annealed,
    last_slots,
    most_confident,
)
from latent_tokens.core.decoding import Decoding, blocks_of, follows_order, order_of
from latent_tokens.core.denoiser import Denoiser
from latent_tokens.core.distribution import Nucleus, nucleus, sample_tokens
from latent_tokens.core.generated import Generated, Step
from latent_tokens.core.layout import Layout
from latent_tokens.core.method import Method
from latent_tokens.core.order import Draw, is_refreshable, promote, restore, shuffle
from latent_tokens.core.policies import choose_latents
from latent_tokens.core.remasking import Decoded, Remask, probabilities_by_position, tokens_to_mask
from latent_tokens.core.selection import FixedCount, select
from latent_tokens.core.speculation import reference_step_logits, speculate
from latent_tokens.core.state import PlannedStep, Planner, State, Stop, first_state, write_tokens

CandidateLogits = Callable[[PlannedStep, Int[Tensor, "A L"], Layout], Float[Tensor, "A K V"]]
"""(step, tokens of its rows, their layout) -> the candidates' logits in float64.

The tokens are MASK where masked. A row with fewer candidates repeats its last.
"""


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
    stop: Stop | None = None,
) -> Generated:
    """Decode the unknown positions of each row (Algorithms 1 to 5; appendix C for several tokens per step).

    Args:
        net: the network.
        method: how it was trained.
        tokens: token ids. Ignored where `known` is false.
        known: true at given positions.
        decoding: the settings.
        seed: row b draws from the random stream (seed, rows[b]), so that it does not depend on its
            batch.
        rows: the number of each row, by default 0..B-1.
        lengths: the length of each row. Later positions take no part.
        on_step: called with every step.
        stop: called after every step. If it returns true, what is masked stays MASK.

    Raises:
        ValueError: the decoding does not suit the method, shapes or values are off, or logits are
            not finite.
    """
    state = first_state(net, method, tokens, known, decoding, seed, rows, lengths)
    every_row = torch.arange(len(tokens), device=tokens.device)
    if decoding.drafts:
        every_step = partial(reference_step_logits, net, method)
        speculate(method, decoding, state, every_row, every_step, nucleus, on_step, stop)
        return finish(state)
    every_slot = partial(reference_logits, net, method)
    loop = decode if decoding.remask is None else decode_and_remask
    loop(net, method, decoding, state, every_row, every_slot, nucleus, on_step, stop)
    return finish(state)


@torch.no_grad()
def decode_and_remask(
    net: Denoiser,
    method: Method,
    decoding: Decoding,
    state: State,
    rows: Int[Tensor, " R"],
    candidate_logits: CandidateLogits,
    nucleus: Nucleus,
    on_step: Callable[[Step], None] | None = None,
    stop: Stop | None = None,
) -> None:
    """Decode these rows to their end, and after each step mask again what `decoding.remask` says.

    Arguments are those of `decode`, which takes the steps one by one. `on_step` is called before
    tokens go back, `stop` after it.
    """
    refresh = decoding.refresh and is_refreshable(order_of(method, decoding))
    # What goes back takes its place in an order of positions again, or in its block.
    block = blocks_of(method, decoding)
    rank = state.order.argsort(1)
    if block is not None:
        rank = torch.arange(rank.shape[1], device=rank.device).expand_as(rank) // block
    is_ordered = block is not None or follows_order(method, decoding)
    num_given = state.num_clean.clone()
    to_decode = state.num_masked
    extra = to_decode if decoding.extra_passes is None else decoding.extra_passes
    most_passes = to_decode + extra
    then = torch.ones(state.tokens.shape, dtype=torch.float64, device=rows.device)
    while (state.num_masked[rows] > 0).any():
        steps: list[Step] = []
        # The loop is left after each step, because what is masked again is candidate of the next one.
        decode(
            net, method, decoding, state, rows, candidate_logits, nucleus,
            on_step=steps.append, stop=lambda rows, tokens: True,
        )  # fmt: skip
        (step,) = steps
        step_rows = step.rows
        tokens = state.tokens[step_rows]
        order = state.order[step_rows]
        clean = state.num_clean[step_rows, None]
        if on_step is not None:
            on_step(step)

        # The probability of each token when it was decoded, and if the rule asks for it, by this pass.
        then[step_rows] = write_tokens(
            then[step_rows],
            step.chosen.clamp(min=0),
            step.decoded_probabilities(),
            step.chosen >= 0,
        )
        entry = torch.arange(order.shape[1], device=rows.device)

        # Mask again what the rule says, as far as passes are left to decode it.
        decoded = Decoded(
            order,
            tokens.gather(1, order),
            then=then[step_rows].gather(1, order),
            look=partial(present, step, tokens, then[step_rows], order),
            number=state.steps[step_rows],
            is_decoded=(entry >= num_given[step_rows, None]) & (entry < clean),
        )
        spare_passes = most_passes[step_rows] - state.steps[step_rows] - state.num_masked[step_rows]
        masked_again = tokens_to_mask(cast(Remask, decoding.remask), decoded, spare_passes)
        state.mask_again(step_rows, masked_again, net.mask_id)
        if refresh:
            # A row draws only if its own tokens went back, so that its sample does not depend on its batch.
            moved = step_rows[masked_again.any(1)]
            keys = state.streams.uniform(moved, state.num_masked[moved])
            state.order[moved] = shuffle(state.order[moved], state.num_clean[moved], keys)
        elif is_ordered:
            again = (state.order[step_rows], state.num_clean[step_rows], rank[step_rows])
            state.order[step_rows] = restore(*again)
        if stop is not None and stop(step_rows, state.tokens[step_rows]):
            return


def present(
    step: Step,
    tokens: Int[Tensor, "A L"],
    otherwise: Float[Tensor, "A L"],
    order: Int[Tensor, "A L"],
) -> Float[Tensor, "A L"]:
    """Return the probability of each entry's token in the pass of a step, `otherwise` if it has no slot."""
    by_position = probabilities_by_position(
        step.probabilities, step.layout.positions, step.layout.shown, tokens, otherwise
    )
    return by_position.gather(1, order)


@torch.no_grad()
def decode(
    net: Denoiser,
    method: Method,
    decoding: Decoding,
    state: State,
    rows: Int[Tensor, " R"],
    candidate_logits: CandidateLogits,
    nucleus: Nucleus,
    on_step: Callable[[Step], None] | None = None,
    stop: Stop | None = None,
) -> None:
    """Decode these rows to their end (Algorithm 5 with refresh).

    Args:
        net: the network, for the probabilities that `on_step` may ask for.
        method: how it was trained.
        decoding: the settings.
        state: changed in place.
        rows: the rows to decode.
        candidate_logits: computes the candidates' logits of a step. The optimized implementation
            passes another function.
        nucleus: computes the nucleus of `top_p`, likewise.
        on_step: called with every step.
        stop: called after every step. If it returns true, the rows stay as they are.
    """
    refresh = decoding.refresh and is_refreshable(order_of(method, decoding))
    in_order = follows_order(method, decoding)
    uniform = state.streams.uniform
    # Of the first step: temperature and noise fall with the share of it that is left.
    num_to_decode = state.num_masked
    planner = Planner(method, decoding, state, rows)
    while (plan := planner.next_step()) is not None:
        # The same counts twice: shapes come from those of the host, so that nothing waits for the device.
        host, counts = plan.host, plan.on_device
        tokens = state.tokens[counts.rows]
        order = state.order[counts.rows]

        # Lines 6-9: choose the latent tokens, and arrange [clean | latents | candidates].
        draw_latents = partial(uniform, host.rows, host.num_masked - host.candidates)
        before = plan.policy_input(order, tokens)
        layout = plan.layout(choose_latents(decoding.policy, before, draw_latents))

        # Line 10: predict the candidates.
        logits = candidate_logits(plan, tokens, layout)  # (A, K, V)

        # Lines 11-13: choose the most confident candidates, sample their tokens.
        step = Candidates(
            logits, layout, counts.candidates, tokens, counts.number,
            draw=partial(uniform, host.rows, host.candidates), in_order=in_order,
        )  # fmt: skip
        picks, plan = choose(step, decoding, plan, num_to_decode)  # (A, T)
        host, counts = plan.host, plan.on_device  # a rule has decided how many
        # One number for each decoded token, drawn after the choice. The order of draws is part of a seed.
        noise = uniform(host.rows, host.count)
        temperature = decoding.temperature_at(
            counts.num_masked[:, None], num_to_decode[counts.rows, None]
        )
        drawn = sample_tokens(logits, picks, temperature, decoding.top_p, noise, nucleus)  # (A, T)
        entries = counts.num_clean[:, None] + picks
        # A row that decodes fewer than others has picks without a meaning, which may lie behind its end.
        positions = order.gather(1, entries.clamp(max=order.shape[1] - 1))
        is_decoded = torch.arange(picks.shape[1], device=order.device) < counts.count[:, None]

        # Line 14: promote them to clean; then reshuffle what is masked.
        tokens = write_tokens(tokens, positions, drawn, is_decoded)
        # Candidates that are all decoded are next in the order already.
        if not plan.keeps_order:
            order = promote(order, counts.num_clean, entries, counts.count)
        if refresh:
            keys = uniform(host.rows, host.num_masked - host.count)
            order = shuffle(order, counts.num_clean + counts.count, keys)
        state.update(counts.rows, tokens, order, counts.count, counts.num_shown)
        planner.advance(plan)

        if on_step is not None:
            # `look` is a second pass, only if the probabilities of latent tokens are asked for.
            on_step(Step(
                rows=counts.rows, number=counts.number, layout=layout, num_candidates=counts.candidates,
                chosen=positions.masked_fill(~is_decoded, -1), tokens=drawn.masked_fill(~is_decoded, -1),
                look=partial(method.logits, net, step.tokens, layout),
                decoded_probabilities=partial(probability_of, logits, picks, drawn),
            ))  # fmt: skip
        if stop is not None and stop(counts.rows, tokens):
            return


def choose(
    step: Candidates, decoding: Decoding, plan: PlannedStep, num_to_decode: Int[Tensor, " B"]
) -> tuple[Int[Tensor, "A T"], PlannedStep]:
    """Return which candidates a step decodes, the most confident first, and its plan (lines 11-12).

    A rule decides here how many of each row, which the plan then has. `num_to_decode` is the number
    of masked tokens of each row before the first step.
    """
    # A fixed number is known on the host. That of a rule is read from the device: it depends on predictions.
    count = plan.on_device.count
    if isinstance(decoding.select, FixedCount):
        confidence, tolerance = confidence_of_step(decoding, plan, num_to_decode, step.draw)
        most = int(plan.host.count.max())
        return most_confident(step, confidence, count, most, tolerance), plan
    picks, count = select(decoding.select, step, decoding.ranking, count)
    return picks, plan.decided(count)


def probability_of(
    logits: Float[Tensor, "A K V"], picks: Int[Tensor, "A T"], tokens: Int[Tensor, "A T"]
) -> Float[Tensor, "A T"]:
    """Return the probabilities of tokens at their candidates, before temperature and top-p.

    They are meaningless where a row decodes fewer tokens than others.
    """
    row = torch.arange(len(picks), device=picks.device)[:, None]
    return logits.softmax(-1)[row, picks, tokens.clamp(max=logits.shape[-1] - 1)]


def finish(state: State) -> Generated:
    """Return the samples of a state after the last step."""
    return Generated(state.tokens, state.order, state.processed, state.steps)


def reference_logits(
    net: Denoiser, method: Method, plan: PlannedStep, tokens: Int[Tensor, "A L"], layout: Layout
) -> Float[Tensor, "A K V"]:
    """Return the candidates' logits from a pass that computes those of every slot (line 10)."""
    logits = method.logits(net, tokens, layout)
    slots = last_slots(layout, plan.on_device.candidates, int(plan.host.candidates.max()))
    # In float64, so that rounding of the softmax does not decide between candidates.
    return logits.gather(1, slots[:, :, None].expand(-1, -1, logits.shape[-1])).double()


def confidence_of_step(
    decoding: Decoding, plan: PlannedStep, num_to_decode: Int[Tensor, " B"], draw: Draw
) -> tuple[Confidence, float]:
    """Return the confidence of a step, and the largest difference of equal ones, relative to their size.

    Noise falls linearly to 0 in the last step, and leaves no equal ones. It is drawn only if the
    decoding has any.
    """
    if not decoding.confidence_noise:
        return decoding.ranking, CONFIDENCE_RTOL
    counts = plan.on_device
    share_left = (counts.num_masked - counts.count).double() / num_to_decode[counts.rows]
    return annealed(decoding.ranking, decoding.confidence_noise * share_left, draw()), 0.0
