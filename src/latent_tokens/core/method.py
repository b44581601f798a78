"""A method: how a model is trained, and its input at inference. METHODS has those of the paper.

It draws training layouts and computes logits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import product
from typing import Literal, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.checks import (
    Registry,
    check_choice,
    check_function,
    check_label,
    function_name,
    is_whole,
    refuse,
)
from latent_tokens.core.attention import (
    PROBED_SLOTS,
    Rule,
    attends_earlier,
    attends_later,
    bidirectional,
    block_causal,
    block_mask,
    causal,
    clean_attends_to_masked,
    dense_mask,
    independent,
    is_cacheable,
    semi_causal,
)
from latent_tokens.core.denoiser import Denoiser, supports_slots, token_logits
from latent_tokens.core.layout import Layout, left_of, left_slots, next_layout
from latent_tokens.core.order import (
    Order,
    any_order,
    block_of,
    blockwise,
    draw_uniform,
    first_order,
    is_left_to_right,
    left_to_right,
    rest_of_block,
    shuffle,
)

Depth = Literal["all"] | tuple[Literal["none", "uniform"], float | int]
"""Of a share of the rows of a batch: no masked token is attended to, or a uniform number of them."""
BLOCK_MASK_FROM = 1_024  # slots: on an accelerator, longer inputs get their mask in blocks


@dataclass(frozen=True)
class Method:
    """A model: how it is trained, and its input at inference (sections 3 to 5; table in docs/concepts.md).

    Example:
        >>> Method(any_order, semi_causal, latents=4).latent_control
        'free'
    """

    order: Order  # the decoding order
    attention: Rule  # which slots each slot attends to
    window: int | Literal["all"] = "all"  # the largest number of masked tokens in the input
    targets: Literal["all", "next"] = "all"  # which masked tokens of the input training scores
    weight: Literal["elbo", "flat"] = "elbo"  # divide by targets or by unknowns (D-4, loss weight)
    # shifted: slot j receives the token before it; left: position i is read at the slot of i - 1
    readout: Literal["in_place", "shifted", "left"] = "in_place"
    latents: int | Literal["all"] = 0  # n if it is free and Decoding.latents is None
    depth: Depth = "all"  # (D-38, depth of training)
    # The masked tokens of a training input: in the decoding order, or shuffled
    # (D-40, shuffled slots)
    masked_slots: Literal["in_order", "shuffled"] = "in_order"
    name: str | None = field(default=None, kw_only=True, compare=False)  # in results

    def __post_init__(self) -> None:
        check_method(self)

    @cached_property
    def attends_to_masked(self) -> bool:
        """Whether the prediction of a masked token depends on other masked tokens."""
        if self.readout == "left" and self.is_left_to_right:
            return clean_attends_to_masked(self.attention)
        is_shifted = self.readout == "shifted"
        return not is_shifted and (attends_later(self.attention) or attends_earlier(self.attention))

    @cached_property
    def is_left_to_right(self) -> bool:
        """Whether the method decodes the first masked position next."""
        return is_left_to_right(self.order)

    def __hash__(self) -> int:
        # A rule or an order of your own may have no hash. Equality compares them.
        return hash((self.window, self.targets, self.weight, self.readout, self.latents))

    @cached_property
    def latent_control(self) -> Literal["none", "fixed", "free"]:
        """How n is set: "none" (there is no latent token), "fixed" (in training) or "free" (at inference)."""
        if not self.attends_to_masked:
            return "none"
        is_drawn = self.depth != "all" and self.depth[0] == "uniform"
        return "fixed" if attends_later(self.attention) and not is_drawn else "free"

    @property
    def default_latents(self) -> int | Literal["all"]:
        """The number of latent tokens if `Decoding.latents` is None."""
        if self.latent_control == "none":
            return 0
        return "all" if self.latent_control == "fixed" else self.latents

    def draw(
        self,
        known: Bool[Tensor, "B L"],
        lengths: Int[Tensor, " B"],
        generator: torch.Generator,
        ends: Int[Tensor, " B"] | None = None,
    ) -> Layout:
        """Draw a training layout: an order and a number of clean tokens per row.

        The number of clean tokens is uniform on {#known .. end-1}, and stratified over the batch.
        The end of a row is its length unless `ends` is set. A shifted readout trains every step at
        once: its clean slots are the known ones, its masked slots all others.

        With targets="next" the target is the last slot, as at inference: behind all other masked
        tokens of the input, or behind a uniform number of them if the number is free.
        """
        uniform = partial(draw_uniform, generator, known.device)
        order = first_order(self.order, known, lengths, partial(uniform, *known.shape))
        num_clean = known.sum(1)
        ends = lengths if ends is None else ends
        if self.readout != "shifted":
            stratum = (torch.arange(len(known), device=known.device) / len(known) + uniform(1)) % 1
            num_clean = num_clean + (stratum * (ends - num_clean)).long()
        num_visible = self.num_visible(order, num_clean, lengths)
        if self.targets == "next":
            latents = num_visible - 1
            if self.latent_control == "free":
                latents = (uniform(len(known)) * num_visible).long().minimum(latents)
            return next_layout(order, num_clean, torch.ones_like(latents), latents)

        # Drawn after the order and the counts, so that a method without them has the same draws under a seed.
        independent_rows = None
        if self.depth != "all":
            kind, share = self.depth
            rows = draw_rows(share, len(known), uniform)
            if kind == "uniform":
                num_visible = draw_visible_masks(num_visible, rows, uniform)
            else:
                independent_rows = rows
        if self.masked_slots == "shuffled":
            # Only the masked tokens of the input change places (D-40, shuffled slots).
            # Entry j of the noise is that of masked token j, and a 1 leaves it where it is.
            later = torch.arange(order.shape[1], device=order.device) >= num_visible[:, None]
            order = shuffle(order, num_clean, uniform(*known.shape).masked_fill(later, 1.0))
        layout = next_layout(order, num_clean, num_visible, torch.zeros_like(num_clean))
        return replace(layout, is_independent=independent_rows)

    def check_known(self, known: Bool[Tensor, "B L"]) -> None:
        """Raise ValueError if `known` is not bool, or the readout cannot take the known positions."""
        if known.dtype != torch.bool:
            raise ValueError(f"known of {known.dtype}: must be torch.bool. Use known.bool().")
        if self.readout == "left" and not known[:, :1].all():
            row = int(known[:, 0].int().argmin())
            raise ValueError(
                f"row {row}: position 0 is masked, and readout=left reads no prediction for it. "
                "Give the first token, as BOS."
            )
        gap = known[:, 1:] & ~known[:, :-1]
        if self.readout == "shifted" and gap.any():
            raise ValueError(
                f"row {int(gap.any(1).nonzero()[0])}: its known positions are not a prefix, "
                "and a shifted readout only continues one. Use scdm or mdm to infill."
            )

    def max_visible(self, num_masked: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Return how many of a row's masked tokens the input may contain: all, or the window."""
        return num_masked if self.window == "all" else num_masked.clamp(max=self.window)

    def num_visible(
        self, order: Int[Tensor, "B L"], num_clean: Int[Tensor, " B"], lengths: Int[Tensor, " B"]
    ) -> Int[Tensor, " B"]:
        """Return `max_visible` of a row, and under a rule with blocks no more than the rest of its block."""
        most = self.max_visible(lengths - num_clean)
        block = block_of(self.attention)
        return most if block is None else most.minimum(rest_of_block(order, num_clean, block))

    def logits(
        self, net: Denoiser, tokens: Int[Tensor, "B L"], layout: Layout
    ) -> Float[Tensor, "B S V"]:
        """Return the network's logits at every slot of the layout, with MASK excluded (D-2, MASK token)."""
        ids = self.input_ids(tokens, layout, net.mask_id)
        logits = net(ids, layout.positions, dense_mask(self.attention, layout))
        if self.readout == "left":
            logits = logits.gather(1, left_slots(layout)[:, :, None].expand_as(logits))
        return token_logits(net, logits)

    def logits_at(
        self, slots: Bool[Tensor, "B S"], net: Denoiser, tokens: Int[Tensor, "B L"], layout: Layout
    ) -> Float[Tensor, "N V"]:
        """Return `logits` at the given slots only, row by row.

        A denoiser with `supports_slots` computes no others.
        """
        if not supports_slots(net):
            return self.logits(net, tokens, layout)[slots]
        ids = self.input_ids(tokens, layout, net.mask_id)
        is_long = layout.positions.shape[1] >= BLOCK_MASK_FROM and tokens.is_cuda
        mask = block_mask(self.attention, layout) if is_long else dense_mask(self.attention, layout)
        some_logits = cast(Callable[..., Tensor], net)
        if self.readout == "left":
            read, number = left_of(slots, layout)
            logits = some_logits(ids, layout.positions, mask, read)[number]
        else:
            logits = some_logits(ids, layout.positions, mask, slots)
        return token_logits(net, logits)

    def input_ids(
        self, tokens: Int[Tensor, "B L"], layout: Layout, mask_id: int
    ) -> Int[Tensor, "B S"]:
        """Return the token id that every slot receives: its token if clean, else MASK.

        With a shifted readout it is the token before.
        """
        tokens_at = tokens.gather(1, layout.positions)  # (B, S)
        if self.readout == "shifted":
            has_no_token_before = ~layout.shown | (layout.slots == 0)
            return tokens_at.roll(1, dims=1).masked_fill(has_no_token_before, mask_id)
        return tokens_at.masked_fill(~layout.clean, mask_id)


def check_method(method: Method) -> None:
    """Raise ValueError if a field of a method has another value, or does not suit the others."""
    if method.name is not None:
        check_label("name", method.name)
    check_function("order", method.order, "order=any_order")
    check_function("attention", method.attention, "attention=semi_causal")
    for name, least in (("latents", 0), ("window", 1)):
        value = getattr(method, name)
        if value != "all" and not is_whole(value, least):
            raise ValueError(f"{name}={value}: must be a whole number from {least}, or 'all'")
    check_choice("targets", method.targets, ("all", "next"))
    check_choice("weight", method.weight, ("elbo", "flat"))
    check_choice("readout", method.readout, ("in_place", "shifted", "left"))
    check_choice("masked_slots", method.masked_slots, ("in_order", "shuffled"))
    attention = f"attention={function_name(method.attention)}"
    check_depth(method.depth)
    has_depth = method.depth != "all"
    depth = f"depth={depth_text(method.depth)}"
    shows_all = method.window == "all" and attends_later(method.attention)
    if method.readout == "shifted":
        check_shifted(method)
    if method.readout == "left" and (has_depth or not (method.is_left_to_right or shows_all)):
        fix = "attention=bidirectional without window and depth, or order=left_to_right"
        refuse("readout=left", "the slot to the left of a target must be in the input", fix)
    block = block_of(method.attention)
    if block not in (None, block_of(method.order)) and not method.is_left_to_right:
        fix = f"order=blockwise({block}), or left_to_right"
        refuse(attention, "its blocks have an order", fix)
    if has_depth and not method.attends_to_masked:
        refuse(depth, "a masked token attends to no other one", "depth=all")
    if has_depth and method.targets == "next":
        problem = "the target attends to all"
        refuse(f"{depth} with targets=next", problem, "targets=all")
    in_place = method.readout == "in_place" and method.targets == "all"
    if method.masked_slots == "shuffled" and not (method.is_left_to_right and in_place):
        needs = "needs order=left_to_right, readout=in_place and targets=all"
        refuse("masked_slots=shuffled", needs, "masked_slots=in_order")
    num_latents = 0 if method.latents == "all" else method.latents
    if num_latents and method.latent_control == "none":
        refuse(f"latents={method.latents}", "this method has no latent tokens", "latents=0")
    if num_latents and method.latent_control == "fixed" and method.window != num_latents + 1:
        fix = f"window={num_latents + 1}, attention=semi_causal or depth=('uniform', 0.5)"
        problem = "every masked token is attended to, so training fixes their number"
        refuse(f"latents={method.latents} with {attention}", problem, fix)


def check_shifted(method: Method) -> None:
    """Raise ValueError if a method cannot train and score every step in one pass, as `arm` does."""
    if not method.is_left_to_right:
        problem = "a slot receives the token to its left"
        refuse("readout=shifted", problem, "order=left_to_right")
    if not is_cacheable(method.attention, PROBED_SLOTS):
        problem = "a slot attends to the tokens that it is trained to predict"
        attention = f"attention={function_name(method.attention)}"
        refuse(f"readout=shifted with {attention}", problem, "attention=causal")
    if method.targets == "next":
        refuse("targets=next with readout=shifted", "a pass trains every step", "targets=all")


def check_depth(depth: object) -> None:
    """Raise ValueError if a depth is neither all, nor none or uniform with a share above 0 and at most 1."""
    match depth:
        case "all":
            return
        case ("none" | "uniform", int() | float() as share) if 0 < share <= 1:
            return
    raise ValueError(
        f"depth={depth}: must be 'all', ('none', SHARE) or ('uniform', SHARE), "
        "with a share of the rows above 0 and at most 1, such as ('uniform', 0.5)"
    )


def depth_text(depth: Depth) -> str:
    """Return a depth as results and files have it, such as uniform:0.5."""
    if depth == "all":
        return depth
    kind, share = depth
    return f"{kind}:{np.format_float_positional(share, trim='-')}"


def draw_rows(share: float | int, batch: int, uniform: Callable[..., Tensor]) -> Bool[Tensor, " B"]:
    """Draw a share of the rows of a batch. Each row has the same probability.

    If the share is no whole number of rows, the number is the one below or above, at random.
    """
    rank = uniform(batch).argsort().argsort()
    return (rank + uniform(1)) < share * batch


def draw_visible_masks(
    num_masked: Int[Tensor, " B"], rows: Bool[Tensor, " B"], uniform: Callable[..., Tensor]
) -> Int[Tensor, " B"]:
    """Draw the number of masked tokens in the input of some rows, uniform on 1 to all. Others keep all."""
    drawn = 1 + (uniform(len(num_masked)) * num_masked).long().minimum(num_masked - 1)
    return torch.where(rows, drawn, num_masked)


def windowed(window: int, targets: Literal["all", "next"]) -> Method:
    """Return AR-MTP-Window-n (targets="all") or AR-NTP-n (targets="next") for n = window (section 5.3).

    It has n - 1 latent tokens.
    """
    return Method(
        left_to_right, bidirectional, window=window, targets=targets, weight="flat", latents="all"
    )


def derived(name: str) -> Method | None:
    """Return the method that ar-mtp-window-N, ar-ntp-N or block-mdm-N, N >= 1, or mdm-left names, else None.

    block-mdm-N is an MDM of each block of N positions given the earlier ones (BD3-LM). Its latent
    tokens are the rest of the block. mdm-left is an MDM that predicts the next position, as Dream.
    """
    if name == "mdm-left":
        return replace(METHODS["mdm"], readout="left")
    match = re.fullmatch(r"(ar-mtp-window|ar-ntp|block-mdm)-([1-9][0-9]*)", name)
    if match is None:
        return None
    kind, number = match[1], int(match[2])
    if kind == "block-mdm":
        return Method(blockwise(number), block_causal(number), latents="all")
    return windowed(number, "all" if kind == "ar-mtp-window" else "next")


# fmt: off
METHODS: Registry[Method] = Registry("method", {
    "mdm":              Method(any_order, bidirectional, latents="all"),
    "sidm":             Method(any_order, independent),
    "scdm":             Method(any_order, semi_causal),
    "esolm":            Method(any_order, causal),
    "arm":              Method(left_to_right, causal, weight="flat", readout="shifted"),
    "ar-mtp":           Method(left_to_right, bidirectional, weight="flat", latents="all"),
    "ar-mtp-window-16": windowed(16, "all"),
    "ar-ntp-16":        windowed(16, "next"),
    "mdm-depth":        Method(any_order, bidirectional, latents="all", depth=("uniform", 0.5)),
    "scdm-depth":       Method(any_order, semi_causal, depth=("none", 0.5)),
    "ar-latents":       Method(left_to_right, causal, weight="flat", masked_slots="shuffled"),
}, derived, also=("ar-mtp-window-N", "ar-ntp-N", "block-mdm-N", "mdm-left"))
# fmt: on


def named(method: Method) -> str:
    """Return the name of a method in a message."""
    return "this method" if name_of(method) == "custom" else name_of(method)


def checked_method(net: object, method: object) -> Method:
    """Return the method, by default that of the net.

    Raises:
        ValueError: it is not a `Method`, or the net has none.
    """
    method = getattr(net, "method", None) if method is None else method
    if method is None:
        refuse("method=None", "the net has no method", "one of METHODS")
    if isinstance(method, str) and method in METHODS:
        refuse(f"method={method}", "must be a Method", f"METHODS[{method!r}]")
    if not isinstance(method, Method):
        use = "generate(net, net.method, tokens, known), or load(NAME).generate(PROMPT)"
        refuse(f"method={type(method).__name__}", "must be a Method", use)
    return method


def name_of(method: Method) -> str:
    """Return the name of a method in results.

    It is that of METHODS, else the method's own, else that of METHODS with weight, targets or depth
    if only these differ, else "custom".
    """
    block = block_of(method.attention)
    names = [*METHODS]
    names += [
        f"{kind}-{method.window}" for kind in ("ar-mtp-window", "ar-ntp") if method.window != "all"
    ]
    names += ["mdm-left"] if method.readout == "left" else []
    names += [f"block-mdm-{block}"] if block else []
    differing = {name: differences(METHODS[name], method) for name in names}
    if not all(differing.values()):
        return next(name for name in names if not differing[name])
    if method.name is not None:
        return method.name
    may_differ = (["weight"], ["targets"], ["weight", "targets"], ["depth"], ["weight", "depth"])
    for changed, name in product(may_differ, names):
        if differing[name] <= set(changed):
            values = {**vars(method), "depth": depth_text(method.depth)}
            return f"{name} ({', '.join(values[field] for field in changed)})"
    return "custom"


def differences(first: Method, second: Method) -> set[str]:
    """Return the names of the fields in which two methods differ, apart from `name`."""
    names = [field.name for field in fields(first) if field.compare]
    return {name for name in names if getattr(first, name) != getattr(second, name)}
