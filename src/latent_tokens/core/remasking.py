"""Remasking: which decoded tokens become MASK again after a step, to be decoded once more.

The order of a row is [clean | masked], so a token goes back by `demote`, the inverse of
`promote`. A rule says which. The loop is `sampling.decode_and_remask`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.checks import check_int, check_min, function_name, refuse
from latent_tokens.core.attention import clean_attends_to_clean
from latent_tokens.core.confidence import CONFIDENCE_RTOL, SMALLEST
from latent_tokens.core.method import Method, named


@dataclass(frozen=True)
class Decoded:
    """The tokens of A unfinished rows after a step, as a rule of remasking reads them.

    Example:
        >>> def doubtful(step: Decoded) -> torch.Tensor:
        ...     return step.now < 0.1
        >>> Decoding(remask=doubtful).remask is doubtful
        True
    """

    order: Int[Tensor, "A L"]  # the positions: given, decoded, masked
    tokens: Int[Tensor, "A L"]  # of these positions; MASK where masked
    then: Float[Tensor, "A L"]  # the probability of the token when it was decoded
    number: Int[Tensor, " A"]  # the steps that each row has taken
    is_decoded: Bool[Tensor, "A L"]  # which entries may go back: neither given nor masked
    look: Callable[[], Float[Tensor, "A L"]]  # computes `now`

    @cached_property
    def now(self) -> Float[Tensor, "A L"]:
        """The probability at the token's own slot in the pass of this step. Of a new token it is `then`.

        Computed on first use, by another pass.
        """
        return self.look()


Remask = Callable[[Decoded], Bool[Tensor, "A L"]]
"""step -> which of its decoded tokens become MASK. Of more than the budget allows, the least probable do."""


@dataclass(frozen=True)
class BelowBound:
    """The rule that a token goes back if its probability has fallen below `probability`.

    It is token-to-mask (arXiv 2604.18738). A new token stays, however improbable.

    Example:
        >>> Decoding(remask_below=0.1).remask
        BelowBound(probability=0.1)
    """

    probability: float | int

    def __post_init__(self) -> None:
        check_min("remask_below", self.probability, 0)

    def __call__(self, step: Decoded) -> Bool[Tensor, "A L"]:
        """Return which tokens go back."""
        bound = step.then.clamp(max=self.probability)
        return step.now < bound - tolerance_of(bound)


@dataclass(frozen=True)
class LeastConfident:
    """The rule that after every `steps`-th step the least probable token goes back.

    It ranks by the probability at the time of decoding, as the confidence schedule of ReMDM does
    (Wang et al., 2025, arXiv 2503.00307), which draws the tokens by it.

    Example:
        >>> Decoding(remask_every=2).remask
        LeastConfident(steps=2)
    """

    steps: int

    def __post_init__(self) -> None:
        check_int("remask_every", self.steps, 2)

    def __call__(self, step: Decoded) -> Bool[Tensor, "A L"]:
        """Return which tokens go back."""
        ranked = step.then.masked_fill(~step.is_decoded, torch.inf)
        least = torch.zeros_like(step.is_decoded).scatter(1, least_probable(ranked), True)
        return least & (step.number % self.steps == 0)[:, None]


def tolerance_of(probability: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the largest difference of equal probabilities (D-43, ties)."""
    return CONFIDENCE_RTOL * probability.clamp(min=SMALLEST)


def least_probable(probabilities: Float[Tensor, "A L"]) -> Int[Tensor, "A 1"]:
    """Return the entry of the smallest probability, of equal ones the first."""
    least = probabilities.amin(1, keepdim=True)
    return (probabilities <= least + tolerance_of(least)).byte().argmax(1, keepdim=True)


def short_form_of_remask(rule: Remask | None) -> dict[str, float | int | str | None]:
    """Return the setting that is short for a rule of remasking, or its name as `remask`."""
    if rule is None:
        return {"remask": None}
    if isinstance(rule, BelowBound):
        return {"remask_below": rule.probability}
    if isinstance(rule, LeastConfident):
        return {"remask_every": rule.steps}
    return {"remask": function_name(rule)}


def remask_from(rule: Remask | None, below: float | int | None, every: int | None) -> Remask | None:
    """Return the rule of remasking: `rule`, or what one of its short forms says.

    Raises:
        ValueError: more than one is set.
    """
    short = {"remask_below": below, "remask_every": every, "remask": rule}
    given = [f"{name}={value}" for name, value in short.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)}: use one of them")
    if below is not None:
        return BelowBound(below)
    return rule if every is None else LeastConfident(every)


def check_remask_method(method: Method) -> None:
    """Raise ValueError if a clean token's own prediction does not depend on all other clean ones."""
    if method.readout != "in_place" or not clean_attends_to_clean(method.attention):
        problem = "its clean tokens do not attend to later ones"
        refuse(f"remask is not supported by {named(method)}", problem, "a mdm or scdm model")


def tokens_to_mask(rule: Remask, step: Decoded, most: Int[Tensor, " A"]) -> Bool[Tensor, "A L"]:
    """Return which tokens go back: those that the rule says, at most `most` of a row, the least probable.

    Raises:
        ValueError: the rule does not return a bool for each entry.
    """
    chosen = rule(step)
    shape = step.tokens.shape
    if not isinstance(chosen, Tensor) or chosen.dtype != torch.bool or chosen.shape != shape:
        returned = f"{chosen!r:.40}"
        if isinstance(chosen, Tensor):
            returned = f"{tuple(chosen.shape)} of {chosen.dtype}"
        problem = f"returns {returned}, not a bool for each of {tuple(shape)} tokens"
        refuse(f"remask={function_name(rule)}", problem, "step.now < 0.1")
    chosen = chosen & step.is_decoded
    if (chosen.sum(1) <= most).all():
        return chosen

    # Of more than `most` the least probable go back, one by one.
    remaining = step.now.masked_fill(~chosen, torch.inf)
    is_masked = torch.zeros_like(chosen)
    for number in range(int(torch.minimum(chosen.sum(1), most).max())):
        least = least_probable(remaining)
        is_masked |= torch.zeros_like(chosen).scatter(1, least, most[:, None] > number)
        remaining = remaining.scatter(1, least, torch.inf)
    return chosen & is_masked


def probabilities_by_position(
    probabilities: Float[Tensor, "A S V"],
    positions: Int[Tensor, "A S"],
    is_shown: Bool[Tensor, "A S"],
    tokens: Int[Tensor, "A L"],
    otherwise: Float[Tensor, "A L"],
) -> Float[Tensor, "A L"]:
    """Return the probability of each position's token at its slot, and another value if it has none.

    It is meaningless for masked tokens.
    """
    length = tokens.shape[1]
    ids = tokens.gather(1, positions).clamp(max=probabilities.shape[2] - 1)
    own = probabilities.double().gather(2, ids[:, :, None])[:, :, 0]
    # Padding goes to an extra column, which is cut off.
    column = positions.masked_fill(~is_shown, length)
    return F.pad(otherwise, (0, 1)).scatter(1, column, own)[:, :length]
