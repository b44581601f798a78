"""Confidence: which candidates of a step are decoded first.

A confidence is a function of the step. It receives the candidates' predictions and the input of the
step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial, wraps

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.checks import first_line, function_name
from latent_tokens.core.layout import Layout
from latent_tokens.core.order import Noise

# Smaller relative differences are rounding in float32, and depend on the batch (D-43, ties).
CONFIDENCE_RTOL = 1e-5
SMALLEST = 0.1  # a smaller confidence has the tolerance of this one
LARGEST = 1e300  # replaces infinity. Minus infinity is that of decoded candidates only

FunctionOfLogits = Callable[[Float[Tensor, "A K V"]], Float[Tensor, "A K"]]
"""The candidates' logits -> their confidence."""


@dataclass(eq=False)
class Candidates:
    """The candidates of a step with their predictions: what a confidence reads.

    A is the number of unfinished rows, K the largest number of candidates of a row. A row with
    fewer repeats its last.

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
    draw: Callable[[], Noise]  # one number per candidate, uniform in [0, 1), from the row's stream
    in_order: bool = False  # whether they are decoded in the order of their slots
    scores: list[tuple[Confidence, Tensor]] = field(default_factory=list)  # those of `score` so far

    @cached_property
    def is_candidate(self) -> Bool[Tensor, "A K"]:
        """False where a row with fewer candidates repeats its last."""
        rank = torch.arange(self.logits.shape[1], device=self.logits.device)
        return rank < self.num_candidates[:, None]

    @cached_property
    def positions(self) -> Int[Tensor, "A K"]:
        """The positions of the candidates in the sequence."""
        slots = last_slots(self.layout, self.num_candidates, self.logits.shape[1])
        return self.layout.positions.gather(1, slots)

    def score(self, confidence: Confidence) -> Float[Tensor, "A K"]:
        """Return the confidence of each candidate in float64. It is computed once per function.

        Raises:
            ValueError: the function does not take a step, or does not return a number per candidate.
        """
        known = next((scores for other, scores in self.scores if other is confidence), None)
        if known is not None:
            return known
        try:
            scores = confidence(self).double()
        except (AttributeError, TypeError) as error:
            if type(self).__name__ not in str(error):  # another error of the function
                raise
            name = function_name(confidence)
            problem = f"confidence={name}: fails on a step ({first_line(error)})"
            fix = f"A function of logits is passed as confidence=of_logits({name})."
            raise ValueError(f"{problem}. {fix}") from error
        if scores.shape != self.logits.shape[:2]:
            shapes = f"{tuple(scores.shape)} for logits {tuple(self.logits.shape)}"
            problem = f"confidence={function_name(confidence)}: returns {shapes}"
            raise ValueError(f"{problem}. Return one number per candidate.")
        # The built-in ones are numbers if the logits are.
        is_own = confidence not in (top_prob, margin, entropy)
        is_nan = is_own and (scores.isnan() & self.is_candidate).any()
        if is_nan and self.logits.amax().isfinite():
            problem = f"confidence={function_name(confidence)}: is not a number for a candidate"
            fix = "The logit of MASK is -inf: torch.special.entr(p) instead of -p log p."
            raise ValueError(f"{problem}. {fix}")
        self.scores.append((confidence, scores))
        return scores


Confidence = Callable[[Candidates], Float[Tensor, "A K"]]
"""step -> the confidence of each candidate, larger = decoded earlier. `of_logits` makes one."""


def last_slots(layout: Layout, num_candidates: Int[Tensor, " A"], most: int) -> Int[Tensor, "A K"]:
    """Return the slots of the candidates, the last of a row's input. A row with fewer than `most` repeats."""
    rank = torch.arange(most, device=num_candidates.device)
    return (layout.num_shown - num_candidates)[:, None] + rank.minimum(num_candidates[:, None] - 1)


def of_logits(function: FunctionOfLogits, *, noise_on_log: bool = False) -> Confidence:
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
    """Return the largest probability of each candidate (equation of c_l, appendix E).

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
    probabilities = logits.softmax(-1)
    if probabilities.shape[-1] == 1:  # the only token, ahead of none
        return probabilities[..., 0]
    first, second = probabilities.topk(2, dim=-1).values.unbind(-1)
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


def annealed(
    confidence: Confidence, scale: Float[Tensor, " A"], noise: Float[Tensor, "A K"]
) -> Confidence:
    """Return log(confidence) + scale * Gumbel noise (MaskGIT, Chang et al., 2022, arXiv 2202.04200).

    The log is taken of `top_prob`, `margin` and others of `of_logits(noise_on_log=True)`. The noise
    is added to `entropy` itself, which is negative (D-41, annealed confidence noise). A noise of 1
    ends a row with fewer candidates.
    """
    smallest = torch.finfo(noise.dtype).tiny  # the log of 0 is not finite
    gumbel = -(-noise.clamp(min=smallest).log()).log()

    def noisy(step: Candidates) -> Float[Tensor, "A K"]:
        values = step.score(confidence)
        if getattr(confidence, "noise_on_log", False):
            values = values.log()
        return values + scale[:, None] * gumbel

    return noisy


def most_confident(
    step: Candidates,
    confidence: Confidence,
    count: Int[Tensor, " A"],
    most: int,
    tolerance: float = CONFIDENCE_RTOL,
    among: Bool[Tensor, "A K"] | None = None,
) -> Int[Tensor, "A T"]:
    """Return which candidates to decode, the most confident first. Row a decodes its first count[a].

    Of equal ones the first in the order is taken. Confidences that differ by less than rounding are
    equal (D-43, ties): networks with rotary positions predict the same at many masked slots, and
    which of them is larger would depend on the batch. If a row decodes all of its candidates, they
    keep their order.

    Args:
        step: the candidates.
        confidence: their confidence.
        count: how many of them each row decodes.
        most: the largest count.
        tolerance: the largest difference of equal confidences, relative to their size.
        among: the candidates to choose from, at least `count`. None is all.
    """
    among = step.is_candidate if among is None else among
    if step.logits.shape[1] == 1:
        return torch.zeros_like(count)[:, None]
    scores = step.score(confidence).masked_fill((count >= step.num_candidates)[:, None], 0)
    scores = scores.clamp(-LARGEST, LARGEST).masked_fill(~among, -torch.inf)
    least = scores.new_full((), SMALLEST)
    if confidence is margin:  # it is rounded as the probabilities that it is a difference of
        least = step.score(top_prob).amax(1, keepdim=True).clamp(min=SMALLEST)
    picks = []
    for _ in range(most):
        largest = scores.amax(1, keepdim=True)
        is_largest = scores >= largest - tolerance * largest.abs().maximum(least)
        picks.append(is_largest.byte().argmax(1, keepdim=True))  # (A, 1): the first of them
        scores = scores.scatter(1, picks[-1], -torch.inf)
    return torch.cat(picks, dim=1)
