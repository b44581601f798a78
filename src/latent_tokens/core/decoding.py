"""The settings of a decode: how many candidates, latent tokens and tokens per step, and their confidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.checks import check_int, is_whole
from latent_tokens.configs import DEFAULT_CANDIDATES
from latent_tokens.core.layout import Layout
from latent_tokens.core.method import Method, check_left_shown, name_of
from latent_tokens.core.order import Noise, Order, block_of, given, is_left_to_right, is_refreshable
from latent_tokens.core.policies import LatentPolicy, nearest

Count = int | Literal["all"] | Callable[[int], int]
Function = Callable[[Float[Tensor, "A K V"]], Float[Tensor, "A K"]]
"""The candidates' logits -> their confidence."""


@dataclass(frozen=True)
class Candidates:
    """The candidates of a step with their predictions: what a confidence reads.

    A is the number of unfinished rows, K the largest number of candidates of a row. A row with fewer repeats
    its last.

    Example:
        >>> def rightmost(step: Candidates) -> torch.Tensor:
        ...     return step.positions.double()
        >>> Decoding(candidates=4, confidence=rightmost).candidates
        4
    """

    logits: Float[Tensor, "A K V"]  # float64, before temperature and top-p; that of MASK is -inf
    layout: Layout  # the input: [clean | latents | candidates]
    num_candidates: Int[Tensor, " A"]
    tokens: Int[Tensor, "A L"]  # by position; MASK where masked
    number: Int[Tensor, " A"]  # steps that each row has taken before
    draw: Callable[[], Noise]  # one number per candidate, uniform in [0, 1), from the row's own stream

    @cached_property
    def positions(self) -> Int[Tensor, "A K"]:
        """The positions of the candidates in the sequence."""
        slots = last_slots(self.layout, self.num_candidates, self.logits.shape[1])
        return self.layout.positions.gather(1, slots)


Confidence = Callable[[Candidates], Float[Tensor, "A K"]]
"""step -> the confidence of each candidate, larger = decoded earlier. `of_logits` makes one."""


def last_slots(layout: Layout, num_candidates: Int[Tensor, " A"], most: int) -> Int[Tensor, "A K"]:
    """Return the slots of the candidates, the last of a row's input. A row with fewer than `most` repeats."""
    rank = torch.arange(most, device=num_candidates.device)
    return (layout.num_shown - num_candidates)[:, None] + rank.minimum(num_candidates[:, None] - 1)


def of_logits(function: Function, *, noise_on_log: bool = False) -> Confidence:
    """Return the confidence that is a function of the candidates' logits.

    Args:
        function: logits (A, K, V) -> confidence (A, K). It stays as the attribute `__wrapped__`.
        noise_on_log: whether `Decoding.confidence_noise` is added to the log of the confidence.

    Example:
        >>> largest_logit = of_logits(lambda logits: logits.amax(-1))
        >>> Decoding(candidates=4, confidence=largest_logit).candidates
        4
    """

    @wraps(function)
    def confidence(step: Candidates) -> Float[Tensor, "A K"]:
        return function(step.logits)

    confidence.noise_on_log = noise_on_log  # type: ignore[attr-defined]
    return confidence


@partial(of_logits, noise_on_log=True)
def top_prob(logits: Float[Tensor, "A K V"]) -> Float[Tensor, "A K"]:
    """Return the largest probability of each candidate (equation of c_l, appendix D).

    Args:
        logits: of A rows and K candidates.

    Example:
        >>> Decoding(candidates=4, confidence=top_prob).candidates
        4
    """
    return logits.softmax(-1).amax(-1)


@partial(of_logits, noise_on_log=True)
def margin(logits: Float[Tensor, "A K V"]) -> Float[Tensor, "A K"]:
    """Return the difference between the largest and the second largest probability of each candidate.

    Args:
        logits: of A rows and K candidates.

    Example:
        >>> Decoding(candidates=4, confidence=margin).candidates
        4
    """
    first, second = logits.softmax(-1).topk(2, dim=-1).values.unbind(-1)
    return first - second


@of_logits
def entropy(logits: Float[Tensor, "A K V"]) -> Float[Tensor, "A K"]:
    """Return the negative entropy of each candidate, in nats. It is on the scale of logs already.

    Args:
        logits: of A rows and K candidates.

    Example:
        >>> Decoding(candidates=4, confidence=entropy).candidates
        4
    """
    terms: Tensor = torch.special.entr(logits.softmax(-1))
    return -terms.sum(-1)


def annealed(confidence: Confidence, scale: Float[Tensor, " A"], noise: Float[Tensor, "A K"]) -> Confidence:
    """Return log(confidence) + scale * Gumbel noise (MaskGIT, Chang et al., 2022, arXiv 2202.04200).

    The log is taken of `top_prob`, `margin` and others of `of_logits(noise_on_log=True)`. The noise is added
    to `entropy` itself, which is negative (D-41, annealed confidence noise).

    Args:
        confidence: the confidence without noise.
        scale: of the noise of each row.
        noise: uniform in [0, 1), one number per candidate. A 1 ends a row with fewer candidates.
    """
    smallest = torch.finfo(noise.dtype).tiny  # the log of 0 is not finite
    gumbel = -(-noise.clamp(min=smallest).log()).log()

    def noisy(step: Candidates) -> Float[Tensor, "A K"]:
        values = confidence(step)
        if getattr(confidence, "noise_on_log", False):
            values = values.log()
        return values + scale[:, None] * gumbel

    return noisy


def growing(clean: int) -> int:
    """Return the number of clean tokens + 1: few candidates early, many late (D-33, adaptive candidates).

    Args:
        clean: the number of clean tokens.

    Example:
        >>> Decoding(candidates=growing).candidates(3)
        4
    """
    return clean + 1


@dataclass(frozen=True)
class FixedCount:
    """The rule that a step decodes its `tokens` most confident candidates (appendix C).

    `Decoding(tokens_per_step=T)` is short for `Decoding(select=FixedCount(T))`.

    Example:
        >>> Decoding(select=FixedCount(2)).selection.tokens
        2
    """

    tokens: int | Partition = 1  # T, or the number of each step, as equal_parts(T)

    def __post_init__(self) -> None:
        if not callable(self.tokens) and not is_whole(self.tokens, 1):
            raise ValueError(f"tokens_per_step={self.tokens}: must be a whole number from 1, or a partition")


@dataclass(frozen=True)
class Decoding:
    """Settings of sampling. Raises ValueError for a value out of range.

    Example:
        >>> Decoding(candidates=4, latents=8).latents
        8
    """

    # k, or number of clean tokens -> k: decode the most confident of the next k; None: see `candidates_of`
    candidates: Count | None = None
    latents: Count | None = None  # n, or number of masked tokens -> n; None = the method's own
    tokens_per_step: int | Partition | None = None  # short for select=FixedCount(T); None = 1
    order: Order | None = None  # None = the method's own
    confidence: Confidence = top_prob  # of the raw logits, before temperature (D-16, confidence)
    latent_policy: LatentPolicy = nearest  # which masked tokens are the n, and in what order
    refresh: bool = True  # reshuffle after each step (D-14, schedule refresh); False is Algorithm 5
    temperature: float | int = 1.0  # 0 = argmax
    top_p: float | int = 1.0  # sample from the smallest set of tokens with this much probability
    off_distribution: bool = False  # allow any n for a method whose n is fixed in training
    confidence_noise: float | int = 0  # scale of the Gumbel noise (D-41, annealed confidence noise)
    select: FixedCount | None = None  # how many of the candidates a step decodes; None = FixedCount(1)

    def __post_init__(self) -> None:
        k = self.candidates
        if k is not None and k != "all" and not callable(k) and not is_whole(k, 1):
            allowed = "a whole number from 1, 'all', a function of the number of clean tokens, or None"
            raise ValueError(f"candidates={k}: must be {allowed}")
        n = self.latents
        if n is not None and n != "all" and not callable(n) and not is_whole(n, 0):
            allowed = "must be a whole number from 0, 'all', a function of the number masked, or None"
            raise ValueError(f"latents={n!r}: {allowed}")
        if self.select is not None and self.tokens_per_step is not None:
            raise ValueError(f"select with tokens_per_step={self.tokens_per_step}: leave one of the two out")
        if self.tokens_per_step is not None:
            FixedCount(self.tokens_per_step)  # which checks it
        if self.order is not None and not callable(self.order):
            raise ValueError(f"order={self.order}: must be a function of known. Use given(schedule).")
        if not 0 <= self.confidence_noise < float("inf"):
            raise ValueError(f"confidence_noise={self.confidence_noise}: must be 0 or more, and finite")
        if self.confidence_noise and self.candidates == 1:
            raise ValueError(
                f"confidence_noise={self.confidence_noise} with candidates=1: one candidate leaves no "
                "choice. Use candidates=8, or leave confidence_noise out."
            )
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature={self.temperature}: must be 0 (argmax) or more, and finite")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p}: must be above 0 and at most 1")

    @cached_property
    def selection(self) -> FixedCount:
        """How many of its candidates a step decodes."""
        if self.select is not None:
            return self.select
        return FixedCount(1 if self.tokens_per_step is None else self.tokens_per_step)


@dataclass(frozen=True)
class Generated:
    """The samples that `generate` returns: B rows of L positions.

    Example:
        >>> known = torch.zeros(1, 36, dtype=torch.bool)
        >>> generate(net, net.method, known.long(), known).forward_passes
        36
    """

    tokens: Int[Tensor, "B L"]
    order: Int[Tensor, "B L"]  # known positions first, then the others as decoded, then those past the length
    processed: Int[Tensor, " B"]  # tokens processed: slots of the input, cached or not, summed over steps
    passes: Int[Tensor, " B"]  # forward passes: how many times the row was in the network's input

    @property
    def forward_passes(self) -> int:
        """The largest number of passes of a row."""
        return max(self.passes.tolist(), default=0)


@dataclass(frozen=True)
class Step:
    """One decoding step, as `on_step` receives it: all that is needed to draw it.

    A is the number of unfinished rows.

    Example:
        >>> known = torch.zeros(1, 36, dtype=torch.bool)
        >>> steps = []
        >>> generate(net, net.method, known.long(), known, latents=4, on_step=steps.append).forward_passes
        36
        >>> len(steps[0].latents[0])
        4
    """

    rows: Int[Tensor, " A"]  # which rows of the batch
    number: Int[Tensor, " A"]  # steps that each row has taken before
    layout: Layout  # the input: layout.positions, num_clean, num_shown
    num_candidates: Int[Tensor, " A"]
    chosen: Int[Tensor, "A T"]  # positions decoded, the most confident first; -1 if a row decodes fewer
    tokens: Int[Tensor, "A T"]  # the tokens decoded there; -1 likewise
    look: Callable[[], Float[Tensor, "A S V"]]  # computes the logits of every slot

    @cached_property
    def probabilities(self) -> Float[Tensor, "A S V"]:
        """Predicted probabilities at every masked slot, before temperature and top-p.

        Computed on first use.
        """
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


def order_of(method: Method, decoding: Decoding) -> Order:
    """Return the decoding order: the decoding's, else the method's own."""
    return method.order if decoding.order is None else decoding.order


def candidates_of(method: Method, decoding: Decoding) -> Count:
    """Return k: the decoding's, else 8 in an order that leaves a choice (any order, also in blocks), and 1.

    An order of your own, `given` and `left_to_right` decode the next token by default. With k = 1, any order
    is uniform decoding.
    """
    if decoding.candidates is not None:
        return decoding.candidates
    order = order_of(method, decoding)
    return DEFAULT_CANDIDATES if is_refreshable(order) or block_of(order) is not None else 1


def blocks_of(method: Method, decoding: Decoding) -> int | None:
    """Return the size of the blocks that are decoded from left to right: the order's, else the rule's."""
    block = block_of(order_of(method, decoding))
    return block_of(method.attention) if block is None else block


def num_candidates_and_latents(
    method: Method,
    decoding: Decoding,
    num_clean: Int[Tensor, " A"],
    num_masked: Int[Tensor, " A"],
    step_size: Int[Tensor, " A"],
    in_block: Int[Tensor, " A"] | None = None,
) -> tuple[Int[Tensor, " A"], Int[Tensor, " A"]]:
    """Return k and n of each row, together at most the method's window.

    If fewer than n + k masked tokens are left, the candidates stay and the latent tokens shrink (D-13, last
    decoding steps). Of an order with blocks, candidates are among the masked tokens `in_block`. Under a rule
    with blocks, latent tokens are, too.
    """
    visible = method.max_visible(num_masked)
    in_block = visible if in_block is None else in_block.minimum(visible)
    if block_of(method.attention) is not None:
        visible = in_block
    if (step_size > visible).any():
        raise ValueError(
            f"tokens_per_step={int(step_size.max())} with a window of {method.window}: "
            f"the input has at most {method.window} masked tokens. Use tokens_per_step={method.window}."
        )
    k = candidates_of(method, decoding)
    num_candidates = resolve_count(k, in_block, num_clean, "candidates", least=1).maximum(step_size)
    latents = method.default_latents if decoding.latents is None else decoding.latents
    num_latents = resolve_count(latents, visible - num_candidates, num_masked, "latents", least=0)
    return num_candidates, num_latents


def resolve_count(
    number: Count, limit: Int[Tensor, " A"], counts: Int[Tensor, " A"], name: str, least: int
) -> Int[Tensor, " A"]:
    """Return a number of tokens per row, at most `limit`: all, fixed, or a function of the row's count.

    Raises:
        ValueError: the function does not return a whole number from `least`.
    """
    if not callable(number):
        return limit if number == "all" else limit.clamp(max=number)
    numbers = torch.tensor([number(count) for count in counts.tolist()], device=counts.device)
    if numbers.is_floating_point() or (numbers < least).any():
        raise ValueError(
            f"{name} gives {numbers.tolist()} for {counts.tolist()} tokens: "
            f"must be whole numbers from {least}"
        )
    return numbers.minimum(limit)


def check_decoding(method: Method, decoding: Decoding) -> None:
    """Raise ValueError, naming what to use, if the method cannot decode so."""
    check_num_latents(method, decoding.latents, decoding.off_distribution)
    name = named(method)
    if method.is_left_to_right and decoding.candidates not in (None, 1):
        k = getattr(decoding.candidates, "__name__", decoding.candidates)
        reason = "it decodes the next token"
        raise ValueError(
            f"candidates={k} is not supported by {name}: {reason}. Use candidates=1, or a mdm or scdm model."
        )
    reads_before = method.is_left_to_right and method.readout != "in_place"
    if reads_before and decoding.order is not None and not is_left_to_right(decoding.order):
        reason = "it decodes from left to right only"
        raise ValueError(
            f"order is not supported by {name}: {reason}. Use order=left_to_right, or a mdm or scdm model."
        )
    check_latent_policy(method, decoding.latent_policy)
    block = blocks_of(method, decoding)
    if block is not None and not isinstance(decoding.selection.tokens, int):
        raise ValueError(
            f"tokens_per_step with blocks of {block}: a partition does not end steps at blocks. Use a number."
        )
    if block_of(method.attention) not in (None, block):
        raise ValueError(
            f"order=blockwise({block}) is not supported by {name}: it has blocks of "
            f"{block_of(method.attention)}. Use order=blockwise({block_of(method.attention)})."
        )
    if method.readout == "shifted" and decoding.selection.tokens != 1:
        reason = "it predicts one token per step"
        tokens = decoding.selection.tokens
        raise ValueError(
            f"tokens_per_step={tokens} is not supported by {name}: {reason}. Use tokens_per_step=1."
        )


def check_num_latents(method: Method, latents: Count | None, off_distribution: bool) -> None:
    """Raise ValueError if the method cannot decode with this number of latent tokens."""
    n = getattr(latents, "__name__", latents)
    is_fixed = method.latent_control == "fixed"
    own = (None, "all") if method.window is None else (None, "all", method.window - 1)
    if is_fixed and n not in own and not off_distribution:
        reason = "its number of latent tokens is fixed when it is trained"
        raise ValueError(
            f"latents={n} is not supported by {named(method)}: {reason}. "
            f"Use latents=all, a scdm or esolm model, or train {trainable_with(method, latents)}. "
            "Use off_distribution=True to allow it."
        )
    if is_off_distribution(method, latents):
        check_left_shown(method.readout, method.is_left_to_right, str(n))
    if method.latent_control == "none" and n is not None and n != 0:
        reason = "it has no latent tokens"
        raise ValueError(
            f"latents={n} is not supported by {named(method)}: {reason}. "
            "Use latents=0, or a scdm, esolm or ar-mtp model."
        )


def named(method: Method) -> str:
    """Return the name of a method in a message."""
    return "this method" if name_of(method) == "custom" else name_of(method)


def check_latent_policy(method: Method, policy: LatentPolicy) -> None:
    """Raise ValueError if the rule decides which masked tokens are latent tokens."""
    block = block_of(method.attention)
    if policy is not nearest and block is not None:
        raise ValueError(
            f"latent_policy={getattr(policy, '__name__', policy)} with attention=block_causal({block}): "
            "its latent tokens are those of the current block. Use latent_policy=nearest."
        )


def is_off_distribution(method: Method, latents: Count | None) -> bool:
    """Return whether n leaves out masked tokens that each input of the method had in training.

    Those of a window of N are N - 1 latent tokens.
    """
    if method.latent_control != "fixed" or latents is None or latents == "all":
        return False
    return method.window is None or callable(latents) or latents < method.window - 1


def trainable_with(method: Method, latents: Count | None) -> str:
    """Return the name of a method with the same order that can be trained for n latent tokens."""
    if not method.is_left_to_right:
        return "mdm-depth"
    return f"ar-mtp-window-{latents + 1}" if isinstance(latents, int) else "ar-mtp-window-N"


Partition = Callable[[Bool[Tensor, "B L"], Noise], Int[Tensor, "B T"]]
"""(masked, noise) -> how many masked positions of a row each of T steps decodes. Steps of 0 are left out."""


def equal_parts(steps: int) -> Partition:
    """Return the partition into T = `steps` parts whose sizes differ by at most 1.

    Args:
        steps: the number of steps T.

    Raises:
        ValueError: `steps` is not a whole number from 1.

    Example:
        >>> equal_parts(2)(torch.ones(1, 5, dtype=torch.bool), torch.rand(1, 5)).tolist()
        [[2, 3]]
    """
    check_int("steps", steps, 1)

    def sizes(masked: Bool[Tensor, "B L"], noise: Noise) -> Int[Tensor, "B T"]:
        ends = masked.sum(1)[:, None] * torch.arange(steps + 1, device=masked.device) // steps
        return ends.diff(dim=1)

    return sizes


def reverse_process(steps: int) -> Partition:
    """Return the random partition of the reverse process with T = `steps`: each position has a uniform step.

    Args:
        steps: the number of steps T.

    Raises:
        ValueError: `steps` is not a whole number from 1.

    Example:
        >>> reverse_process(2)(torch.ones(1, 3, dtype=torch.bool), torch.tensor([[0.1, 0.6, 0.7]])).tolist()
        [[1, 2]]
    """
    check_int("steps", steps, 1)

    def sizes(masked: Bool[Tensor, "B L"], noise: Noise) -> Int[Tensor, "B T"]:
        drawn = (noise * steps).long()  # a 1 that pads the noise is `steps`, which has its own column
        counts = torch.zeros(len(noise), steps + 1, dtype=torch.int64, device=masked.device)
        return counts.scatter_add(1, drawn, torch.ones_like(drawn))[:, :steps]

    return sizes


def given_partition(sets: Sequence[Sequence[int]]) -> tuple[Order, Partition]:
    """Return `order` and `tokens_per_step` of a Decoding that decodes the positions of sets[t] at step t.

    Known positions are left out of their set. `candidates` stays at 1: a step with more candidates than its
    set has positions decodes the most confident, which may be of later sets.

    Args:
        sets: the positions that each step decodes.

    Raises:
        ValueError: the sets are not a partition of 0..L-1.

    Example:
        >>> order, sizes = given_partition([range(18, 36), range(18)])
        >>> known = torch.zeros(1, 36, dtype=torch.bool)
        >>> samples = generate(net, net.method, known.long(), known, order=order, tokens_per_step=sizes)
        >>> samples.forward_passes, samples.order[0, :3].tolist()
        (2, [18, 19, 20])
    """
    schedule = torch.tensor([position for part in sets for position in part])
    step_of = torch.repeat_interleave(torch.arange(len(sets)), torch.tensor([len(part) for part in sets]))

    def sizes(masked: Bool[Tensor, "B L"], noise: Noise) -> Int[Tensor, "B T"]:
        # (B, L): 1 at each masked entry of the schedule
        in_order = masked[:, schedule.to(masked.device)].long()
        counts = torch.zeros(len(masked), len(sets), dtype=torch.int64, device=masked.device)
        return counts.scatter_add(1, step_of.to(masked.device).expand_as(in_order), in_order)

    return given(schedule), sizes


def sizes_of_steps(
    tokens_per_step: int | Partition, masked: Bool[Tensor, "B L"], draw: Callable[[], Noise]
) -> Int[Tensor, "B T"]:
    """Return how many tokens each step of a row decodes, without steps of 0 tokens before others.

    Args:
        tokens_per_step: a number for every step, or a partition.
        masked: true at positions to decode.
        draw: returns the noise of a partition.

    Raises:
        ValueError: the steps of a row decode fewer tokens than are masked.
    """
    num_masked = masked.sum(1)
    if isinstance(tokens_per_step, int):
        steps = -(-max(num_masked.tolist(), default=0) // tokens_per_step)
        return torch.full((len(masked), steps), tokens_per_step, device=masked.device)
    sizes = tokens_per_step(masked, draw())
    if (sizes < 0).any() or (sizes.sum(1) < num_masked).any():
        raise ValueError(
            f"tokens_per_step gives steps of {sizes.tolist()} tokens: "
            "a row's steps must add up to its masked positions"
        )
    return sizes.gather(1, (sizes == 0).int().argsort(dim=1, stable=True))
