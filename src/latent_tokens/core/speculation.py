"""Speculation: discarded predictions are drafts of the next steps, which the next pass verifies.

A pass predicts the next token of the order and, at its latent slots, the tokens after it. These
are drafts. The next pass takes them as clean and computes the step after each of them. Drafts are
accepted from the first on by the rule of speculative sampling (Leviathan et al., 2023, arXiv
2211.17192; Chen et al., 2023, arXiv 2302.01318), so samples have the distribution of one token per
step with as many latent tokens, and at temperature 0 they are equal.

A pass can verify several steps because no slot attends to a later one: a clean token means the same
whatever is decoded after it. So the methods are those with the causal rule (`esolm`,
`ar-latents`), and the order is fixed before the first step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.checks import refuse
from latent_tokens.core.attention import Rule, allows
from latent_tokens.core.decoding import Decoding, num_candidates_and_latents
from latent_tokens.core.denoiser import Denoiser, token_logits
from latent_tokens.core.distribution import Nucleus, inverse_cdf, token_probabilities
from latent_tokens.core.method import Method
from latent_tokens.core.state import State, Stop, write_tokens


@dataclass(frozen=True)
class StepsInOne:
    """The input of G consecutive steps in one pass: their clean slots once, then the masked ones of each.

    Step g has c + g clean tokens, of which the last g are drafts, and its masked slots are
    [latents | candidate | further drafts]. The further ones come after the candidate, which does
    not attend to them. They are there if the step has fewer latent tokens than drafts are wanted.

    Example:
        >>> order, one = torch.arange(6)[None], torch.tensor([1])
        >>> StepsInOne.of(order, one, one, torch.tensor([[1, 1]]), torch.tensor([[1, 1]])).positions
        tensor([[0, 1, 2, 1, 3, 2]])
    """

    positions: Int[Tensor, "A S"]  # the position in the sequence that each slot holds; 0 in padding
    slots: Int[Tensor, "A S"]  # the number of the slot in the input of its own step
    num_clean: Int[Tensor, "A S"]  # the clean slots that this step has
    step: Int[Tensor, " S"]  # g; -1 for clean slots
    shown: Bool[Tensor, "A S"]  # the rest is padding
    num_steps: int  # G

    @classmethod
    def of(
        cls,
        order: Int[Tensor, "A L"],
        num_clean: Int[Tensor, " A"],
        num_drafts: Int[Tensor, " A"],
        latents: Int[Tensor, "A G"],
        wanted: Int[Tensor, "A G"],
    ) -> StepsInOne:
        """Arrange the steps of some rows.

        Args:
            order: a permutation of the positions per row.
            num_clean: the number of tokens that are decoded.
            num_drafts: how many drafts follow them.
            latents: the number of latent tokens of each step.
            wanted: how many drafts each step is to make.
        """
        steps = latents.shape[1]
        width = int(torch.maximum(latents, wanted).max()) + 1
        clean = torch.arange(int((num_clean + num_drafts).max()), device=order.device)
        g = torch.arange(steps, device=order.device).repeat_interleave(width)  # (G W)
        w = torch.arange(width, device=order.device).repeat(steps)
        prefix = num_clean[:, None] + g  # (A, G W)
        n, most = latents[:, g], torch.maximum(latents, wanted)[:, g]
        ahead = torch.where(w < n, w + 1, torch.where(w == n, 0, w))  # of the candidate's entry
        is_shown = (g <= num_drafts[:, None]) & (w <= most)
        every = (num_clean + num_drafts)[:, None]
        entry = torch.cat([clean.expand(len(order), -1), prefix + ahead], dim=1)
        shown = torch.cat([clean < every, is_shown], dim=1)
        positions = order.gather(1, entry.masked_fill(~shown, 0)).masked_fill(~shown, 0)
        return cls(
            positions,
            slots=torch.cat([clean.expand(len(order), -1), prefix + w], dim=1),
            num_clean=torch.cat([every.expand(-1, len(clean)), prefix], dim=1),
            step=torch.cat([torch.full_like(clean, -1), g]),
            shown=shown,
            num_steps=steps,
        )

    def ids(self, tokens: Int[Tensor, "A L"], mask_id: int) -> Int[Tensor, "A S"]:
        """Return the token id that every slot receives: its token if clean, else MASK."""
        return tokens.gather(1, self.positions).masked_fill((self.step >= 0) | ~self.shown, mask_id)

    def mask(self, rule: Rule, queries: Int[Tensor, "A Q"] | None = None) -> Bool[Tensor, "A Q S"]:
        """Return which slots each query attends to: those that it attends to in the input of its step.

        A padding slot attends to itself only. By default, every slot is a query.
        """
        slot = torch.arange(len(self.step), device=self.step.device)
        q = slot.expand_as(self.slots) if queries is None else queries
        num_clean = self.num_clean.gather(1, q)[:, :, None]
        keys = self.slots[:, None, :]
        in_step = self.step[q][:, :, None] == self.step
        in_prefix = (self.step < 0) & (keys < num_clean)
        shown = self.shown.gather(1, q)[:, :, None] & self.shown[:, None, :]
        allowed = allows(rule, self.slots.gather(1, q)[:, :, None], keys, num_clean)
        return allowed & (in_step | in_prefix) & shown | (q[:, :, None] == slot)


StepLogits = Callable[[StepsInOne, Int[Tensor, "A L"], Int[Tensor, " A"]], Float[Tensor, "A G W V"]]
"""(input, tokens with drafts, rows) -> the logits of the masked slots of each step, in float64."""


def reference_step_logits(
    net: Denoiser, method: Method, steps: StepsInOne, tokens: Int[Tensor, "A L"], rows: Tensor
) -> Float[Tensor, "A G W V"]:
    """Return the logits of the masked slots from a pass that computes those of every slot."""
    logits = net(steps.ids(tokens, net.mask_id), steps.positions, steps.mask(method.attention))
    masked = token_logits(net, logits[:, steps.step >= 0]).double()
    return masked.view(len(masked), steps.num_steps, -1, masked.shape[-1])


@torch.no_grad()
def speculate(
    method: Method,
    decoding: Decoding,
    state: State,
    rows: Int[Tensor, " R"],
    step_logits: StepLogits,
    nucleus: Nucleus,
    on_step: object = None,
    stop: Stop | None = None,
) -> None:
    """Decode these rows to their end, in each pass the accepted drafts and one token more.

    Arguments are those of `sampling.decode`. `step_logits` computes the logits of a pass.

    Raises:
        ValueError: `on_step` is set.
    """
    if on_step is not None:
        setting = f"on_step with drafts={decoding.drafts}"
        refuse(setting, "a pass decodes tokens of several steps", "drafts=0")
    uniform = state.streams.uniform
    num_to_decode = state.num_masked
    drafts = Drafts.none(rows)

    def distribution(logits: Tensor, num_masked: Tensor) -> Tensor:
        temperature = decoding.temperature_at(num_masked, num_to_decode[rows, None])
        drawn_from = token_probabilities(logits, temperature, decoding.top_p, nucleus)
        return drawn_from / drawn_from.sum(-1, keepdim=True)

    while (state.num_masked[rows] > 0).any():
        is_unfinished = state.num_masked[rows] > 0
        rows = rows[is_unfinished]
        drafts = drafts.take(is_unfinished)
        order = state.order[rows]
        clean = state.num_clean[rows]
        masked = state.num_masked[rows]

        # One pass computes the step after the clean tokens, and the one after each draft.
        latents, wanted = counts_of_steps(method, decoding, clean, masked, drafts.count)
        steps = StepsInOne.of(order, clean, drafts.count, latents, wanted)
        positions = next_positions(order, clean, drafts.tokens.shape[1] + 1)
        before = state.tokens[rows]
        tokens = write_tokens(before, positions[:, :-1], drafts.tokens, drafts.exist)
        logits = step_logits(steps, tokens, rows)  # (A, G, W, V)
        at_candidate = latents[:, :, None, None].expand(-1, -1, 1, logits.shape[-1])
        num_masked = masked[:, None] - torch.arange(logits.shape[1], device=rows.device)  # (A, G)
        p = distribution(logits.gather(2, at_candidate)[:, :, 0], num_masked)  # (A, G, V)

        # Accept drafts, and draw the token after them.
        noise = uniform(rows, drafts.count + 1)
        accepted, rest = accept(p, drafts, noise)
        token = inverse_cdf(rest[:, None], noise.gather(1, drafts.count[:, None]))  # (A, 1)
        new = torch.cat([drafts.tokens, token], dim=1).scatter(1, accepted[:, None], token)
        is_new = torch.arange(new.shape[1], device=rows.device) <= accepted[:, None]
        tokens = write_tokens(before, positions, new, is_new)
        state.update(rows, tokens, order, accepted + 1, steps.shown.sum(1))

        # The discarded predictions of the step that drew the token are the next drafts.
        width = int(wanted.max())
        ahead = torch.arange(width, device=rows.device)
        n = latents.gather(1, accepted[:, None])
        w = (ahead + (ahead >= n)).clamp(max=logits.shape[2] - 1)  # behind the candidate one later
        step = logits[torch.arange(len(rows), device=rows.device)[:, None], accepted[:, None], w]
        q = distribution(step, num_masked.gather(1, accepted[:, None]) - 1 - ahead)
        count = wanted.gather(1, accepted[:, None])[:, 0]
        drafts = Drafts.drawn(q, count, partial(uniform, rows))
        if stop is not None and stop(rows, tokens):
            return


def next_positions(
    order: Int[Tensor, "A L"], num_clean: Int[Tensor, " A"], count: int
) -> Int[Tensor, "A N"]:
    """Return the next positions of an order. After the last, it is repeated."""
    entries = num_clean[:, None] + torch.arange(count, device=order.device)
    return order.gather(1, entries.clamp(max=order.shape[1] - 1))


@dataclass(frozen=True)
class Drafts:
    """The drafts of some rows: tokens of the next positions of their order."""

    tokens: Int[Tensor, "A J"]
    q: Float[Tensor, "A J V"]  # the distributions that they were drawn from; 0 where there is none
    count: Int[Tensor, " A"]

    @classmethod
    def none(cls, rows: Int[Tensor, " A"]) -> Drafts:
        """Return no drafts."""
        empty = rows.new_zeros(len(rows), 0)
        return cls(empty, empty[:, :, None].double(), torch.zeros_like(rows))

    @classmethod
    def drawn(
        cls, q: Float[Tensor, "A J V"], count: Int[Tensor, " A"], uniform: Callable[..., Tensor]
    ) -> Drafts:
        """Draw the first `count` tokens of each row."""
        width = int(count.max()) if len(count) else 0
        exist = torch.arange(width, device=q.device) < count[:, None]
        q = q[:, :width]
        tokens = inverse_cdf(q, uniform(count)).masked_fill(~exist, 0)
        return cls(tokens, q * exist[:, :, None], count)

    @property
    def exist(self) -> Bool[Tensor, "A J"]:
        """Which of the entries are drafts."""
        index = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return index < self.count[:, None]

    def take(self, which: Bool[Tensor, " A"]) -> Drafts:
        """Return those of some rows."""
        count = self.count[which]
        width = int(count.max()) if len(count) else 0
        return Drafts(self.tokens[which, :width], self.q[which, :width], count)


def accept(
    p: Float[Tensor, "A G V"], drafts: Drafts, noise: Float[Tensor, "A G"]
) -> tuple[Int[Tensor, " A"], Float[Tensor, "A V"]]:
    """Return how many drafts each row accepts, and the distribution of the token after them.

    Draft x is accepted with probability min(1, p(x) / q(x)). After the first that is not, the token
    is drawn from what p has more than q, and after the last draft from p.

    Args:
        p: the distributions of one token per step, at each draft and after the last.
        drafts: the drafts.
        noise: numbers in [0, 1), one for each draft.
    """
    num = drafts.tokens.shape[1]
    index = drafts.tokens[:, :, None]
    p_of_draft, q_of_draft = (each.gather(2, index)[:, :, 0] for each in (p[:, :num], drafts.q))
    is_accepted = drafts.exist & (noise[:, :num] * q_of_draft < p_of_draft)
    accepted = is_accepted.int().cumprod(1).sum(1)
    q = torch.zeros_like(p)
    q[:, :num] = drafts.q
    p_here, q_here = (each[torch.arange(len(p), device=p.device), accepted] for each in (p, q))
    more = (p_here - q_here).clamp(min=0)
    # Of equal distributions, a draft is rejected by rounding only, and nothing is more.
    return accepted, torch.where(more.sum(1, keepdim=True) > 0, more, p_here)


def counts_of_steps(
    method: Method,
    decoding: Decoding,
    num_clean: Int[Tensor, " A"],
    num_masked: Int[Tensor, " A"],
    num_drafts: Int[Tensor, " A"],
) -> tuple[Int[Tensor, "A G"], Int[Tensor, "A G"]]:
    """Return the number of latent tokens of the step after each draft, and of the drafts that it makes.

    The last token has no draft: it is drawn after the others are verified.
    """
    g = np.arange(int(num_drafts.max()) + 1)
    clean = num_clean.cpu().numpy()[:, None] + g
    masked = np.maximum(num_masked.cpu().numpy()[:, None] - g, 1)
    counts = (clean.ravel(), masked.ravel(), np.ones(masked.size, np.int64))
    _, latents = num_candidates_and_latents(method, decoding, *counts)
    wanted = np.clip(masked - 2, 0, decoding.drafts)
    on_device = (torch.from_numpy(each.reshape(masked.shape)) for each in (latents, wanted))
    latents_, wanted_ = (each.to(num_clean.device) for each in on_device)
    return latents_, wanted_
