"""How many of its candidates a step decodes: a fixed count, or a rule that decides after the predictions.

Tokens of one step are independent of each other given the input, so decoding several saves forward
passes and costs quality. A fixed count is planned before the first prediction. A rule keeps the
candidates of which the network is sure, so a step decodes many tokens where the task is easy and
one where it is hard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.checks import check_int, check_min, function_name, is_whole, refuse
from latent_tokens.core.confidence import (
    CONFIDENCE_RTOL,
    SMALLEST,
    Candidates,
    Confidence,
    entropy,
    most_confident,
    top_prob,
)
from latent_tokens.core.order import Noise, Order, given

Selection = Callable[[Candidates], Int[Tensor, " A"] | Bool[Tensor, "A K"]]
"""step -> how many of the most confident candidates to decode, or which ones.

The most confident one is decoded in any case. From left to right, a rule that says which decodes
the candidates before the first that it leaves out.
"""


@dataclass(frozen=True)
class FixedCount:
    """The rule that a step decodes its `tokens` most confident candidates (appendix C).

    `Decoding(tokens_per_step=T)` is short for `Decoding(select=FixedCount(T))`.

    Example:
        >>> Decoding(tokens_per_step=2).select
        FixedCount(tokens=2)
    """

    tokens: int | Partition = 1  # T, or the number of each step, as equal_parts(T)

    def __post_init__(self) -> None:
        if not callable(self.tokens) and not is_whole(self.tokens, 1):
            raise ValueError(
                f"tokens_per_step={self.tokens!r}: must be a whole number from 1, or a partition"
            )


ONE_TOKEN = FixedCount(1)


@dataclass(frozen=True)
class Threshold:
    """The rule that keeps every candidate whose largest probability is at least `probability`.

    It is that of Fast-dLLM (Wu et al., 2025, arXiv 2505.22618). Above 1 it keeps one token per
    step.

    Example:
        >>> Decoding(candidates="all", threshold=0.9).select
        Threshold(probability=0.9)
    """

    probability: float | int

    def __post_init__(self) -> None:
        check_min("threshold", self.probability, 0)

    def __call__(self, step: Candidates) -> Bool[Tensor, "A K"]:
        """Return which candidates are kept. Probabilities as close as rounding are equal (D-43, ties)."""
        least = self.probability - CONFIDENCE_RTOL * max(self.probability, SMALLEST)
        return (step.score(top_prob) >= least) & (self.probability <= 1)


@dataclass(frozen=True)
class EntropyBound:
    """The rule that keeps candidates by rising entropy as long as their joint error is bounded.

    The sum of their entropies without the largest is an upper bound, in nats, on what is lost by
    decoding them independently. It may be at most `nats` (EB-Sampler, Ben-Hamu et al., 2025, arXiv
    2505.24857). At 0 it keeps one token per step.

    Example:
        >>> Decoding(candidates="all", entropy_bound=0.1).select
        EntropyBound(nats=0.1)
    """

    nats: float | int

    def __post_init__(self) -> None:
        check_min("entropy_bound", self.nats, 0)

    def __call__(self, step: Candidates) -> Int[Tensor, " A"]:
        """Return how many candidates are kept."""
        nats = (-step.score(entropy)).masked_fill(~step.is_candidate, torch.inf)
        if not step.in_order:
            nats = nats.sort(1).values
        lost = nats.cumsum(1) - nats.cummax(1).values  # not a number past the last candidate
        return ((lost <= self.nats * (1 + CONFIDENCE_RTOL)) & (self.nats > 0)).sum(1)


@dataclass(frozen=True)
class Factor:
    """The rule that keeps the largest number T of candidates with (T + 1)(1 - p) < `factor`.

    p is the smallest of the T largest probabilities (Fast-dLLM, theorem 1). At 0 it keeps one token
    per step.

    Example:
        >>> Decoding(candidates="all", factor=1.0).select
        Factor(factor=1.0)
    """

    factor: float | int

    def __post_init__(self) -> None:
        check_min("factor", self.factor, 0)

    def __call__(self, step: Candidates) -> Int[Tensor, " A"]:
        """Return how many candidates are kept."""
        least = ranked_probabilities(step).cummin(1).values
        count = torch.arange(1, least.shape[1] + 1, device=least.device)
        return ((count + 1) * (1 - least) < self.factor).sum(1)


@dataclass(frozen=True)
class FrechetBound:
    """The rule that keeps the most candidates whose joint probability must exceed that of a mistake.

    The Fréchet inequality bounds the joint probability of T tokens from below by max(0, sum(p) - T +
    1). It must exceed 1 - p, for the smallest p of their largest probabilities, by more than `bound`
    (arXiv 2606.02955). At 1 it keeps one token per step. Equal probabilities give `Factor(1 - bound)`.

    Example:
        >>> Decoding(candidates="all", frechet_bound=0.5).select
        FrechetBound(bound=0.5)
    """

    bound: float | int

    def __post_init__(self) -> None:
        check_min("frechet_bound", self.bound, 0)

    def __call__(self, step: Candidates) -> Int[Tensor, " A"]:
        """Return how many candidates are kept."""
        probability = ranked_probabilities(step)
        joint = (1 - (1 - probability).cumsum(1)).clamp(min=0)  # sum(p) - T + 1
        return (joint - (1 - probability.cummin(1).values) > self.bound).sum(1)


def ranked_probabilities(step: Candidates) -> Float[Tensor, "A K"]:
    """Return the candidates' largest probabilities in the order of decoding, and -inf after the last."""
    probability = step.score(top_prob).masked_fill(~step.is_candidate, -torch.inf)
    return probability if step.in_order else probability.sort(1, descending=True).values


RULES: dict[str, type[Threshold | EntropyBound | Factor | FrechetBound]] = {
    "threshold": Threshold,
    "entropy_bound": EntropyBound,
    "factor": Factor,
    "frechet_bound": FrechetBound,
}
"""The rules by the setting that is short for one."""


@dataclass(frozen=True)
class AtMost:
    """The rule that keeps what another keeps, at most `most` tokens per step.

    Example:
        >>> Decoding(threshold=0.9, tokens_per_step=4).select
        AtMost(rule=Threshold(probability=0.9), most=4)
    """

    rule: Selection
    most: int

    def __call__(self, step: Candidates) -> Int[Tensor, " A"] | Bool[Tensor, "A K"]:
        """Return what the rule keeps. `select` leaves out the least confident of too many."""
        return self.rule(step)


def rule_from(
    select: FixedCount | Selection,
    tokens_per_step: int | Partition | None,
    values: Mapping[str, float | int | None],
) -> FixedCount | Selection:
    """Return how many candidates a step decodes: `select`, or what its short forms say.

    Args:
        select: the rule. FixedCount(1) is the default, which a short form replaces.
        tokens_per_step: T, with a rule the most that it may keep.
        values: the value of each setting in RULES, or None.

    Raises:
        ValueError: they exclude each other, or a value is out of range.
    """
    short = {name: value for name, value in values.items() if value is not None}
    given = [f"{name}={value}" for name, value in short.items()]
    if select != ONE_TOKEN:
        given.insert(0, f"select={select}")
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)}: use one of them")
    for name, value in short.items():
        select = RULES[name](value)
    if tokens_per_step is None:
        return select
    fixed = FixedCount(tokens_per_step)
    if not given:
        return fixed
    if isinstance(select, FixedCount) or not isinstance(fixed.tokens, int):
        raise ValueError(f"{given[0]} with tokens_per_step: leave one of the two out")
    return AtMost(cast(Selection, bare_rule(select)), fixed.tokens)


def setting_of(rule: FixedCount | Selection) -> str:
    """Return a rule as the setting that is short for it, or as `select`."""
    short = short_form(rule)
    name, value = next(iter(short.items()), ("select", getattr(rule, "__name__", rule)))
    return f"{name}={value}"


def short_form(rule: FixedCount | Selection) -> dict[str, float | int]:
    """Return the setting that is short for a rule, with its value. It is empty for one of your own."""
    return {name: astuple(rule)[0] for name, kind in RULES.items() if type(rule) is kind}


def bare_rule(select: FixedCount | Selection) -> FixedCount | Selection:
    """Return a rule without the limit of `AtMost`."""
    return select.rule if isinstance(select, AtMost) else select


def select(
    rule: Selection, step: Candidates, confidence: Confidence, most: Int[Tensor, " A"]
) -> tuple[Int[Tensor, "A T"], Int[Tensor, " A"]]:
    """Return which candidates a rule decodes, the most confident first, and how many of each row.

    Args:
        rule: decides how many.
        step: the candidates.
        confidence: decides which.
        most: the largest number that each row may decode.

    Raises:
        ValueError: the rule returns neither a number per row nor a bool per candidate.
    """
    kept = rule(step)
    of_rows, of_candidates = step.num_candidates.shape, step.is_candidate.shape
    if not isinstance(kept, Tensor):
        name = getattr(rule, "__name__", rule)
        problem = f"returns {type(kept).__name__}, not a tensor"
        fix = "torch.full_like(step.num_candidates, 2) for two tokens of each row"
        refuse(f"select={name}", problem, fix)
    if not (kept.dtype == torch.bool and kept.shape == of_candidates):
        if kept.dtype.is_floating_point or kept.dtype == torch.bool or kept.shape != of_rows:
            name = getattr(rule, "__name__", rule)
            raise ValueError(
                f"select={name}: returns {tuple(kept.shape)} of {kept.dtype} for {tuple(of_candidates)} "
                "candidates. Return how many of each row, or a bool for each candidate."
            )
        among = step.is_candidate
        count = kept
    elif step.in_order:
        among = step.is_candidate
        count = (kept & among).int().cumprod(1).sum(1)
    else:
        one = torch.ones_like(most)
        first = most_confident(step, confidence, one, 1)
        among = (kept & step.is_candidate).scatter(1, first, True)
        count = among.sum(1)
    count = count.clamp(min=1).minimum(most)
    largest = int(count.max())  # waits for the predictions
    if step.in_order:
        return torch.arange(largest, device=count.device).expand(len(count), -1), count
    return most_confident(step, confidence, count, largest, among=among), count


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

    sizes.__name__ = f"equal_parts({steps})"
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
        drawn = (noise * steps).long()  # a 1 that pads the noise is `steps`, a column of its own
        counts = torch.zeros(len(noise), steps + 1, dtype=torch.int64, device=masked.device)
        return counts.scatter_add(1, drawn, torch.ones_like(drawn))[:, :steps]

    sizes.__name__ = f"reverse_process({steps})"
    return sizes


def given_partition(sets: Sequence[Sequence[int]]) -> tuple[Order, Partition]:
    """Return `order` and `tokens_per_step` of a Decoding that decodes the positions of sets[t] at step t.

    Known positions are left out of their set. `candidates` stays at 1: a step with more candidates
    than its set has positions decodes the most confident, which may be of later sets.

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
    step_of = torch.repeat_interleave(
        torch.arange(len(sets)), torch.tensor([len(part) for part in sets])
    )

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

    Raises:
        ValueError: the steps of a row decode fewer tokens than are masked.
    """
    num_masked = masked.sum(1)
    if isinstance(tokens_per_step, int):
        steps = -(-max(num_masked.tolist(), default=0) // tokens_per_step)
        return torch.full((len(masked), steps), tokens_per_step, device=masked.device)
    sizes = tokens_per_step(masked, draw())
    if not isinstance(sizes, Tensor) or sizes.is_floating_point() or sizes.dim() != 2:
        returned = type(sizes).__name__
        if isinstance(sizes, Tensor):
            returned = f"{tuple(sizes.shape)} of {sizes.dtype}"
        setting = f"tokens_per_step={function_name(tokens_per_step)}"
        refuse(f"{setting} returns {returned}", "must be whole numbers (B, T)", "equal_parts(4)")
    if (sizes < 0).any() or (sizes.sum(1) < num_masked).any():
        raise ValueError(
            f"tokens_per_step gives steps of {sizes.tolist()} tokens: "
            "a row's steps must add up to its masked positions"
        )
    return sizes.gather(1, (sizes == 0).int().argsort(dim=1, stable=True))
