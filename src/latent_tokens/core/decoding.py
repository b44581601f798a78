"""The settings of a decode: how many candidates, latent tokens and tokens per step, and their confidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
from jaxtyping import Int
from torch import Tensor

from latent_tokens.checks import (
    Registry,
    block_in,
    check_choice,
    check_function,
    check_int,
    check_plain,
    function_name,
    is_number,
    is_whole,
    refuse,
)
from latent_tokens.core.attention import PROBED_SLOTS, is_cacheable
from latent_tokens.core.confidence import Confidence, entropy, margin, top_prob
from latent_tokens.core.distribution import Temperature
from latent_tokens.core.method import Method, named
from latent_tokens.core.order import (
    Order,
    any_order,
    block_of,
    blockwise,
    is_left_to_right,
    is_refreshable,
    left_to_right,
)
from latent_tokens.core.policies import LatentPolicy, nearest, random
from latent_tokens.core.remasking import (
    Remask,
    check_remask_method,
    remask_from,
    short_form_of_remask,
)
from latent_tokens.core.selection import (
    ONE_TOKEN,
    RULES,
    EntropyBound,
    FixedCount,
    Partition,
    Selection,
    bare_rule,
    rule_from,
    setting_of,
)

Count = int | Literal["all"] | Callable[[int], int]
DEFAULT_CANDIDATES = 8
"""The paper's k (appendix E.2)."""
MOST_PASSES = 1_000_000_000  # whose sum with a length is far from the largest integer
RowCounts = npt.NDArray[np.integer[Any]]  # one number per row, on the host


def growing(clean: int) -> int:
    """Return the number of clean tokens + 1: few candidates early, many late (D-33, adaptive candidates).

    Args:
        clean: the number of clean tokens.

    Example:
        >>> Decoding(candidates=growing).candidates(3)
        4
    """
    return clean + 1


def check_count(name: str, value: object, least: int) -> None:
    """Raise ValueError if a setting is not a `Count`, or None."""
    is_word = value is None or (isinstance(value, str) and value == "all")
    if not is_word and not callable(value) and not is_whole(value, least):
        raise ValueError(f"{name}={value!r}: must be a whole number from {least}, or 'all'")


CONFIDENCES: Registry[Confidence] = Registry(
    "confidence", {"top_prob": top_prob, "margin": margin, "entropy": entropy}
)
ORDERS: Registry[Order] = Registry(
    "order",
    {"uniform": any_order, "left_to_right": left_to_right},
    lambda name: None if (block := block_in(name)) is None else blockwise(block),
    also=(*CONFIDENCES, "blockwise:N"),
)
POLICIES: Registry[LatentPolicy] = Registry("latent_policy", {"nearest": nearest, "random": random})


@dataclass(frozen=True)
class Decoding:
    """Settings of sampling, explained in docs/concepts.md. Raises ValueError for a value out of range.

    A built-in confidence, order or latent policy may be given by its name. `tokens_per_step`,
    `threshold`, `entropy_bound`, `factor` and `frechet_bound` are short for a `select`, and are None
    afterwards.

    Example:
        >>> Decoding(candidates=4, latents=8).latents
        8
    """

    # k, or number of clean tokens -> k: decode the most confident of the next k; None: `candidates_of`
    candidates: Count | None = None
    latents: Count | None = None  # n, or number of masked tokens -> n; None = the method's own
    tokens_per_step: InitVar[int | Partition | None] = None  # T of FixedCount; of a rule the most
    order: Order | str | None = None  # None = the method's own
    # Of the raw logits (D-16, confidence); None = top_prob, and entropy for its bound
    confidence: Confidence | str | None = None
    # Which masked tokens are the n, and in what order
    latent_policy: LatentPolicy | str | None = nearest
    refresh: bool = True  # reshuffle after each step (D-14, schedule refresh); False is Algorithm 5
    temperature: float | int = 1.0  # 0 = argmax
    # A temperature that falls linearly with the share of the tokens to decode that are masked
    t_max: float | int | None = None  # of the first step
    t_min: float | int | None = None  # that of the last step is just above
    top_p: float | int = 1.0  # sample from the smallest set of tokens with this much probability
    off_distribution: bool = False  # allow any n for a method whose n is fixed in training
    confidence_noise: float | int = 0  # scale of the Gumbel noise (D-41, annealed confidence noise)
    select: FixedCount | Selection = ONE_TOKEN  # how many candidates a step decodes
    drafts: int = 0  # how many discarded predictions the next pass verifies (speculation.py)
    threshold: InitVar[float | int | None] = None  # short for select=Threshold(threshold)
    # Short for select=EntropyBound(entropy_bound)
    entropy_bound: InitVar[float | int | None] = None
    factor: InitVar[float | int | None] = None  # short for select=Factor(factor)
    # Short for select=FrechetBound(frechet_bound)
    frechet_bound: InitVar[float | int | None] = None
    remask: Remask | None = None  # which decoded tokens a step masks again (core/remasking.py)
    # Short for remask=BelowBound(remask_below)
    remask_below: InitVar[float | int | None] = None
    remask_every: InitVar[int | None] = None  # short for remask=LeastConfident(remask_every)
    # Passes beyond one per token that remasking may take; None: as many as there are tokens
    extra_passes: int | None = None

    def __post_init__(
        self,
        tokens_per_step: int | Partition | None,
        threshold: float | int | None,
        entropy_bound: float | int | None,
        factor: float | int | None,
        frechet_bound: float | int | None,
        remask_below: float | int | None,
        remask_every: int | None,
    ) -> None:
        """Resolve names and short forms, check each setting, then those that exclude each other."""
        values = (threshold, entropy_bound, factor, frechet_bound)
        rules = dict(zip(RULES, values, strict=True))
        of_steps = {"tokens_per_step": tokens_per_step, **rules}
        of_remasking = {"remask_below": remask_below, "remask_every": remask_every}
        for name, value in {**vars(self), **of_steps, **of_remasking}.items():
            check_plain(name, value)
        check_count("candidates", self.candidates, least=1)
        check_count("latents", self.latents, least=0)
        check_int("drafts", self.drafts, 0)
        for name in ("refresh", "off_distribution"):
            check_choice(name, getattr(self, name), (True, False))
        resolve_names(self)
        select = ONE_TOKEN if self.select is None else self.select
        functions = {"confidence": "margin", "latent_policy": "random", "order": "given(schedule)"}
        for name, fix in {**functions, "select": "Threshold(0.9)"}.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, FixedCount):
                check_function(name, value, f"{name}={fix}")
        for name in ("temperature", "confidence_noise"):
            value = getattr(self, name)
            if not is_number(value) or not 0 <= value < float("inf"):
                raise ValueError(f"{name}={value!r}: must be 0 or more, and finite")
        check_schedule(self)
        if not is_number(self.top_p) or not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p!r}: must be above 0 and at most 1")
        object.__setattr__(self, "select", rule_from(select, tokens_per_step, rules))
        check_selection(self)
        object.__setattr__(self, "remask", remask_from(self.remask, remask_below, remask_every))
        check_remasking(self)

    def temperature_at(
        self, num_masked: Int[Tensor, "A T"], num_to_decode: Int[Tensor, "A 1"]
    ) -> Temperature:
        """Return the temperature of steps: `t_min` + (`t_max` - `t_min`) times the share still masked."""
        if self.t_max is None or self.t_min is None:
            return self.temperature
        share = num_masked.double() / num_to_decode
        return (self.t_min + (self.t_max - self.t_min) * share)[..., None]

    @property
    def policy(self) -> LatentPolicy:
        """The latent policy, whose name has been resolved."""
        return cast(LatentPolicy, self.latent_policy)

    @property
    def ranking(self) -> Confidence:
        """The confidence by which candidates are decoded."""
        if self.confidence is not None:
            return cast(Confidence, self.confidence)
        return entropy if isinstance(bare_rule(self.select), EntropyBound) else top_prob


def check_schedule(decoding: Decoding) -> None:
    """Raise ValueError unless both ends of a falling temperature are set, and no constant one is."""
    t_max, t_min = decoding.t_max, decoding.t_min
    if t_max is None and t_min is None:
        return
    setting = f"t_max={t_max} with t_min={t_min}"
    if not (is_number(t_max) and is_number(t_min) and 0 <= t_min < t_max < float("inf")):
        refuse(setting, "the temperature falls from t_max to t_min", "t_max=0.8, t_min=0.4")
    if decoding.temperature != 1:
        refuse(
            f"temperature={decoding.temperature} with t_max={t_max}",
            "it is constant",
            "one of them",
        )


def check_remasking(decoding: Decoding) -> None:
    """Raise ValueError if a setting of remasking is out of range, or another setting excludes it."""
    if decoding.extra_passes is not None:
        check_int("extra_passes", decoding.extra_passes, 1, MOST_PASSES)
        if decoding.remask is None:
            refuse(
                f"extra_passes={decoding.extra_passes}",
                "nothing is masked again",
                "remask_below=0.1",
            )
    if decoding.remask is None:
        return
    check_function("remask", decoding.remask, "remask_below=0.1")
    tokens = getattr(decoding.select, "tokens", 1)
    excluded = {"confidence_noise": decoding.confidence_noise, "t_max": decoding.t_max}
    excluded |= {"drafts": decoding.drafts, "tokens_per_step": callable(tokens) and tokens}
    ((rule, of_rule),) = short_form_of_remask(decoding.remask).items()
    for name, value in excluded.items():
        if value:
            shown = function_name(value) if callable(value) else value
            problem = "it needs a number of masked tokens that only falls"
            refuse(f"{name}={shown} with {rule}={of_rule}", problem, "one of the two")


def resolve_names(decoding: Decoding) -> None:
    """Replace the names of built-in functions in a new `Decoding` by what they are on the command line.

    An order that is the name of a confidence sets the confidence. Uniform order has one candidate.

    Raises:
        ValueError: a name is unknown, or the order sets what another setting has.
    """
    values: dict[str, Any] = {}
    order: object = decoding.order
    if isinstance(order, str):
        is_confidence = order in CONFIDENCES
        values["order"] = None if is_confidence else ORDERS[order]
        if is_confidence:
            values["confidence"] = CONFIDENCES[order]
        if order == "uniform":
            values["candidates"] = 1
            if decoding.confidence is not None:
                problem = "one candidate leaves no choice"
                refuse("order=uniform with confidence", problem, "one of the two")
        for name in values.keys() - {"order"}:
            if getattr(decoding, name) not in (None, values[name], order):
                refuse(f"order={order} with {name}", f"it sets {name}", "one of the two")
    if decoding.latent_policy is None:
        values["latent_policy"] = nearest
    for name, known in (("confidence", CONFIDENCES), ("latent_policy", POLICIES)):
        if isinstance(getattr(decoding, name), str):
            values.setdefault(name, known[getattr(decoding, name)])
    for name, value in values.items():
        object.__setattr__(decoding, name, value)


def check_selection(decoding: Decoding) -> None:
    """Raise ValueError if the rule of selection excludes the confidence, its noise or the candidates."""
    select, k = decoding.select, decoding.candidates
    rule = bare_rule(select)
    noise = f"confidence_noise={decoding.confidence_noise}"
    if not isinstance(rule, FixedCount) and decoding.confidence_noise:
        raise ValueError(f"{setting_of(rule)} with {noise}: leave one of the two out")
    if isinstance(rule, EntropyBound) and decoding.confidence not in (None, entropy):
        name = function_name(decoding.confidence)
        problem = "it decodes by entropy. Leave confidence out"
        raise ValueError(f"{setting_of(rule)} with confidence={name}: {problem}.")
    step = getattr(select, "tokens", None)
    if isinstance(k, int) and isinstance(step, int) and 1 < k < step:
        problem = "a step decodes at most its candidates"
        refuse(f"tokens_per_step={step} with candidates={k}", problem, f"candidates={step}")
    ruled = setting_of(rule) if isinstance(rule, tuple(RULES.values())) else ""
    if k == 1 and (setting := noise if decoding.confidence_noise else ruled):
        fix = "order=top_prob" if decoding.order is ORDERS["uniform"] else "candidates=8"
        refuse(f"{setting} with candidates=1", "one candidate leaves no choice", fix)


def order_of(method: Method, decoding: Decoding) -> Order:
    """Return the decoding order: the decoding's, else the method's own."""
    return method.order if decoding.order is None else cast(Order, decoding.order)


def candidates_of(method: Method, decoding: Decoding) -> Count:
    """Return k: the decoding's, else 8 if the order or the rule of selection leaves a choice, and 1.

    If a step decodes more than 8 tokens, as many are candidates. `any_order` and `blockwise` leave a
    choice. `left_to_right`, `given` and an order of your own decode the next token. With k = 1,
    `any_order` is uniform decoding.
    """
    if decoding.candidates is not None:
        return decoding.candidates
    is_fixed = isinstance(decoding.select, FixedCount)
    if is_fixed and follows_order(method, decoding):
        return 1
    size = getattr(decoding.select, "tokens", 1)
    return max(DEFAULT_CANDIDATES, size if isinstance(size, int) else 1)


def follows_order(method: Method, decoding: Decoding) -> bool:
    """Return whether a decode follows its order: that of `left_to_right`, `given` or your own."""
    order = order_of(method, decoding)
    return not is_refreshable(order) and block_of(order) is None


def blocks_of(method: Method, decoding: Decoding) -> int | None:
    """Return the size of the blocks that are decoded from left to right: the order's, else the rule's."""
    block = block_of(order_of(method, decoding))
    return block_of(method.attention) if block is None else block


def num_candidates_and_latents(
    method: Method,
    decoding: Decoding,
    num_clean: RowCounts,
    num_masked: RowCounts,
    step_size: RowCounts,
    in_block: RowCounts | None = None,
) -> tuple[RowCounts, RowCounts]:
    """Return k and n of each row, together at most the method's window.

    If fewer than n + k masked tokens are left, the candidates stay and the latent tokens shrink
    (D-13, last decoding steps). Of an order with blocks, candidates are among the masked tokens
    `in_block`. Under a rule with blocks, latent tokens are, too.
    """
    visible = num_masked if method.window == "all" else np.minimum(num_masked, method.window)
    in_block = visible if in_block is None else np.minimum(in_block, visible)
    if block_of(method.attention) is not None:
        visible = in_block
    if (step_size > visible).any():
        setting = f"tokens_per_step={step_size.max()} with a window of {method.window}"
        refuse(setting, "the input has fewer masked tokens", f"tokens_per_step={method.window}")
    candidates = candidates_of(method, decoding)
    k = np.maximum(resolve_count(candidates, in_block, num_clean, "candidates", least=1), step_size)
    latents = method.default_latents if decoding.latents is None else decoding.latents
    return k, resolve_count(latents, visible - k, num_masked, "latents", least=0)


def resolve_count(
    number: Count, limit: RowCounts, counts: RowCounts, name: str, least: int
) -> RowCounts:
    """Return a number of tokens per row, at most `limit`: all, fixed, or a function of the row's count.

    Raises:
        ValueError: the function does not return a whole number from `least`.
    """
    if not callable(number):
        return limit if number == "all" else np.minimum(limit, number)
    numbers: RowCounts = np.array([number(count) for count in counts.tolist()])
    if numbers.dtype.kind != "i" or (numbers < least).any():
        setting = f"{name} gives {numbers.tolist()} for {counts.tolist()} tokens"
        raise ValueError(f"{setting}: must be whole numbers from {least}")
    return np.minimum(numbers, limit)


def check_decoding(method: Method, decoding: Decoding) -> None:
    """Raise ValueError, naming what to use, if the method cannot decode so."""
    # Latent tokens.
    check_num_latents(method, decoding.latents, decoding.off_distribution)
    check_latent_policy(method, decoding.policy)

    # Candidates and confidence: an order that is followed leaves no choice.
    unsupported = f"is not supported by {named(method)}"
    select = decoding.select
    is_fixed = isinstance(select, FixedCount)
    k = candidates_of(method, decoding)
    if is_fixed and method.is_left_to_right and k != 1:
        shown = function_name(k) if callable(k) else k
        fix = "candidates=1, or a mdm or scdm model"
        refuse(f"candidates={shown} {unsupported}", "it decodes the next token", fix)
    is_next = not is_fixed or decoding.candidates is None  # a confidence would be ignored
    if is_next and follows_order(method, decoding):
        for name in ("confidence", "confidence_noise"):
            if value := getattr(decoding, name):
                setting = f"{name}={function_name(value) if callable(value) else value}"
                fix = "a mdm or scdm model, without an order of positions"
                refuse(setting, "the order decodes its next token", fix)

    # A readout of the token before needs the order from left to right.
    reads_before = method.is_left_to_right and method.readout != "in_place"
    if (
        reads_before
        and decoding.order is not None
        and not is_left_to_right(order_of(method, decoding))
    ):
        fix = "order=left_to_right, or a mdm or scdm model"
        refuse(f"order {unsupported}", "it decodes from left to right only", fix)
    if method.readout == "shifted" and select != ONE_TOKEN:
        rule = setting_of(bare_rule(select))
        fix = "a mdm or scdm model"
        if isinstance(select, FixedCount):
            size = function_name(select.tokens) if callable(select.tokens) else select.tokens
            rule = f"tokens_per_step={size}"
            fix = "tokens_per_step=1"
        refuse(f"{rule} {unsupported}", "it predicts one token per step", fix)

    # Drafts, remasking and blocks.
    if decoding.drafts:
        check_drafts(method, decoding)
    if decoding.remask is not None:
        check_remask_method(method)
    block = blocks_of(method, decoding)
    own = block_of(method.attention)
    if own not in (None, block):
        fix = f"order=blockwise({own})"
        refuse(f"order=blockwise({block}) {unsupported}", f"it has blocks of {own}", fix)
    if block is not None and isinstance(select, FixedCount) and callable(select.tokens):
        problem = "a partition does not end steps at blocks"
        refuse(f"tokens_per_step with blocks of {block}", problem, "a number")


def check_drafts(method: Method, decoding: Decoding) -> None:
    """Raise ValueError if a pass cannot verify several steps, or drafts do not suit a setting."""
    setting = f"drafts={decoding.drafts}"
    if method.readout != "in_place" or not is_cacheable(method.attention, PROBED_SLOTS):
        problem = "its clean tokens attend to masked or later ones, so a pass verifies one step"
        if method.readout == "shifted":
            problem = "it has no latent predictions to draft with"
        fix = "drafts=0, or an esolm or ar-latents model"
        refuse(f"{setting} is not supported by {named(method)}", problem, fix)
    order = order_of(method, decoding)
    is_shuffled = is_refreshable(order) and decoding.refresh
    if candidates_of(method, decoding) != 1 or block_of(order) is not None or is_shuffled:
        fix = "order=left_to_right, or order=uniform with refresh=False"
        refuse(setting, "drafts need an order that is fixed before the first step", fix)
    if decoding.select != ONE_TOKEN:
        refuse(
            f"{setting} with {setting_of(decoding.select)}", "a step decodes one token", "drafts=0"
        )
    if decoding.policy is not nearest:
        policy = f"latent_policy={function_name(decoding.policy)}"
        refuse(f"{setting} with {policy}", "drafts are the next tokens", "latent_policy=nearest")


def check_num_latents(method: Method, latents: Count | None, off_distribution: bool) -> None:
    """Raise ValueError if the method cannot decode with this number of latent tokens."""
    n = getattr(latents, "__name__", latents)
    unsupported = f"latents={n} is not supported by {named(method)}"
    if method.latent_control == "none" and latents not in (None, 0):
        fix = "latents=0, or a scdm, esolm or ar-mtp model"
        refuse(unsupported, "it has no latent tokens", fix)
    own = (None, "all") if method.window == "all" else (None, "all", method.window - 1)
    if method.latent_control == "fixed" and latents not in own and not off_distribution:
        fix = f"latents=all, a scdm or esolm model, or train {trainable_with(method, latents)}"
        fix += ". Use off_distribution=True to allow it"
        refuse(unsupported, "its number of latent tokens is fixed when it is trained", fix)
    needs_left = method.readout == "left" and not method.is_left_to_right
    if needs_left and is_off_distribution(method, latents):
        problem = "the slot to the left of a target must be in the input"
        refuse(f"latents={n} with readout=left", problem, "latents=all")


def check_latent_policy(method: Method, policy: LatentPolicy) -> None:
    """Raise ValueError if blocks or a window decide which masked tokens are latent tokens."""
    if policy is nearest:
        return
    setting, fix = f"latent_policy={function_name(policy)}", "latent_policy=nearest"
    block = block_of(method.attention)
    if block is not None:
        setting += f" with attention=block_causal({block})"
        refuse(setting, "its latent tokens are those of its block", fix)
    if method.window != "all":
        refuse(
            f"{setting} is not supported by {named(method)}", "a window has the next tokens", fix
        )


def is_off_distribution(method: Method, latents: Count | None) -> bool:
    """Return whether n leaves out masked tokens that each input of the method had in training.

    Those of a window of N are N - 1 latent tokens.
    """
    if method.latent_control != "fixed" or latents is None or latents == "all":
        return False
    return method.window == "all" or callable(latents) or latents < method.window - 1


def trainable_with(method: Method, latents: Count | None) -> str:
    """Return the name of a method with the same order that can be trained for n latent tokens."""
    if not method.is_left_to_right:
        return "mdm-depth"
    return f"ar-mtp-window-{latents + 1}" if isinstance(latents, int) else "ar-mtp-window-N"
