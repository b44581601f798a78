"""A method: how a model is trained, and its input at inference. METHODS has those of the paper.

It draws training layouts and computes logits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.checks import Registry, check_choice, check_int, check_label, is_whole
from latent_tokens.core.attention import (
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
    semi_causal,
)
from latent_tokens.core.denoiser import Denoiser, exclude_mask_token, supports_slots
from latent_tokens.core.layout import Layout, next_layout
from latent_tokens.core.order import (
    Order,
    any_order,
    block_of,
    blockwise,
    first_order,
    is_left_to_right,
    left_to_right,
    rest_of_block,
    shuffle_masked,
)

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
    window: int | None = None  # the largest number of masked tokens in the input; None = all
    targets: Literal["all", "next"] = "all"  # which masked tokens of the input training scores
    weight: Literal["elbo", "flat"] = "elbo"  # divide by targets or by unknowns (D-4, loss weight)
    # shifted: slot j receives the token before it; left: position i is read at the slot of i - 1
    readout: Literal["in_place", "shifted", "left"] = "in_place"
    latents: int | None = 0  # n if it is free and Decoding.latents is None; None = all
    depth: str = "all"  # or "none:SHARE" or "uniform:SHARE" of the rows (D-38, depth of training)
    # the masked tokens of a training input, in the decoding order or shuffled
    # (D-40, shuffled slots)
    masked_slots: Literal["in_order", "shuffled"] = "in_order"
    # in results, if it is not an entry of METHODS
    name: str | None = field(default=None, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        if self.name is not None:
            check_label("name", self.name)
        if self.latents is not None:
            check_int("latents", self.latents, 0)
        if self.window is not None and not is_whole(self.window, 1):
            raise ValueError(
                f"window={self.window}: must be at least 1. Use None for all masked tokens."
            )
        if self.readout == "shifted" and not self.is_left_to_right:
            raise ValueError(
                "readout=shifted: each slot receives the token to its left, so order must be left_to_right"
            )
        if self.readout == "shifted" and self.targets == "next":
            raise ValueError(
                "targets=next with readout=shifted: one pass trains every step, so its targets are all. "
                "Use targets=all, or ar-ntp-N."
            )
        check_choice("targets", self.targets, ("all", "next"))
        check_choice("weight", self.weight, ("elbo", "flat"))
        check_choice("readout", self.readout, ("in_place", "shifted", "left"))
        if self.readout == "left":
            check_left(self.is_left_to_right, self.attention, self.window, self.depth)
        check_rule(self.attention, self.order, self.is_left_to_right)
        if self.depth != "all":
            check_depth(self.depth, self._attends_to_masked, self.targets)
        check_choice("masked_slots", self.masked_slots, ("in_order", "shuffled"))
        if self.masked_slots == "shuffled":
            check_shuffled(self.is_left_to_right, self.readout, self.targets)
        if self.latents:
            check_latents(self.latents, self.latent_control, self.window, self.attention)

    @property
    def _attends_to_masked(self) -> bool:
        if self.readout == "left" and self.is_left_to_right:
            return clean_attends_to_masked(self.attention)
        is_shifted = self.readout == "shifted"
        return not is_shifted and (attends_later(self.attention) or attends_earlier(self.attention))

    @property
    def is_left_to_right(self) -> bool:
        """Whether the method decodes the first masked position next."""
        return is_left_to_right(self.order)

    @property
    def latent_control(self) -> LatentControl:
        """How n is set: "none" (there is no latent token), "fixed" (in training) or "free" (at inference)."""
        if not self._attends_to_masked:
            return "none"
        if attends_later(self.attention) and read_depth(self.depth)[0] != "uniform":
            return "fixed"
        return "free"

    @property
    def default_latents(self) -> int | Literal["all"]:
        """The number of latent tokens if `Decoding.latents` is None."""
        if self.latent_control == "none":
            return 0
        return "all" if self.latents is None or self.latent_control == "fixed" else self.latents

    def draw(
        self,
        known: Bool[Tensor, "B L"],
        lengths: Int[Tensor, " B"],
        generator: torch.Generator,
        ends: Int[Tensor, " B"] | None = None,
    ) -> Layout:
        """Draw a training layout: an order and a number of clean tokens per row.

        The number of clean tokens is uniform on {#known .. end-1}, and stratified over the batch.
        The end of a row is its length unless `ends` is set.

        With targets="next" the target is the last slot, as at inference: behind all other masked
        tokens of the input, or behind a uniform number of them if the number is free. A shifted
        readout trains every step at once: its clean slots are the known ones, its masked slots all
        others. The depth is drawn after orders and numbers of clean tokens, which do not depend on
        it, and shuffled slots at the end.
        """

        def uniform(*shape: int) -> Tensor:
            noise = torch.rand(
                shape, generator=generator, device=generator.device, dtype=torch.float64
            )
            return noise.to(known.device)

        order = first_order(self.order, known, lengths, lambda: uniform(*known.shape))
        num_clean = known.sum(1)
        ends = lengths if ends is None else ends
        if self.readout != "shifted":
            stratum = (torch.arange(len(known), device=known.device) / len(known) + uniform(1)) % 1
            num_clean = num_clean + (stratum * (ends - num_clean)).long()
        num_masked = self.num_visible(order, num_clean, lengths)
        if self.targets == "all":
            kind, share = read_depth(self.depth)
            rows = None if kind == "all" else draw_rows(share, len(known), uniform)
            if rows is not None and kind == "uniform":
                num_masked = draw_visible(num_masked, rows, uniform)
            if self.masked_slots == "shuffled":
                order = shuffle_masked(order, num_clean, num_masked, uniform(*known.shape))
            layout = next_layout(order, num_clean, num_masked, torch.zeros_like(num_masked))
            return replace(layout, is_independent=rows) if kind == "none" else layout
        latents = num_masked - 1
        if self.latent_control == "free":
            latents = (uniform(len(known)) * num_masked).long().minimum(latents)
        return next_layout(
            order, num_clean, candidates=torch.ones_like(num_masked), latents=latents
        )

    def check_known(self, known: Bool[Tensor, "B L"]) -> None:
        """Raise ValueError if `known` is not bool, or the readout cannot take the known positions of a row.

        A shifted one takes a prefix. The readout "left" needs the first position.
        """
        if known.dtype != torch.bool:
            raise ValueError(f"known of {known.dtype}: must be torch.bool. Use known.bool().")
        if self.readout == "left":
            check_first_known(known)
        gap = known[:, 1:] & ~known[:, :-1]
        if self.readout == "shifted" and gap.any():
            row = int(gap.any(1).nonzero()[0])
            raise ValueError(
                f"row {row}: its known positions are not a prefix, and a shifted readout only continues one. "
                "Use scdm or mdm to infill."
            )

    def max_visible(self, num_masked: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Return how many of a row's masked tokens the input may contain: all, or the window."""
        return num_masked if self.window is None else num_masked.clamp(max=self.window)

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
        logits = exclude_mask_token(net.mask_id, logits)
        return read_left(logits, layout) if self.readout == "left" else logits

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
        if self.readout != "left":
            return exclude_mask_token(
                net.mask_id, cast(Any, net)(ids, layout.positions, mask, slots)
            )
        read, number = left_of(slots, layout)
        return exclude_mask_token(net.mask_id, cast(Any, net)(ids, layout.positions, mask, read))[
            number
        ]

    def input_ids(
        self, tokens: Int[Tensor, "B L"], layout: Layout, mask_id: int
    ) -> Int[Tensor, "B S"]:
        """Return the token id that every slot receives: its token if clean, else MASK.

        With a shifted readout it is the token before.
        """
        tokens_at = tokens.gather(1, layout.positions)  # (B, S)
        if self.readout == "shifted":
            return tokens_at.roll(1, dims=1).masked_fill(
                ~layout.shown | (layout.slots == 0), mask_id
            )
        return tokens_at.masked_fill(~layout.clean, mask_id)


LatentControl = Literal["none", "fixed", "free"]


def check_latents(
    latents: int, control: LatentControl, window: int | None, attention: Rule
) -> None:
    """Raise ValueError if decoding cannot use the number of latent tokens of a method.

    Args:
        latents: the number, above 0.
        control: how the method sets it.
        window: the largest number of masked tokens in the input. None is all.
        attention: the attention rule.
    """
    if control == "none":
        raise ValueError(
            f"latents={latents}: this method has no latent tokens. "
            "Use latents=0, or attention=semi_causal with readout=in_place."
        )
    if control == "fixed" and window != latents + 1:
        name = getattr(attention, "__name__", "custom")
        raise ValueError(
            f"latents={latents} with attention={name}: every masked token of the input is attended to, "
            "so their number is fixed when it is trained. "
            f"Use window={latents + 1}, attention=semi_causal or depth=uniform:0.5."
        )


def check_left(is_left_to_right: bool, attention: Rule, window: int | None, depth: str) -> None:
    """Raise ValueError if an input of a method with this readout may lack the slot to the left of a target.

    It is there if the input has all masked tokens, or if decoding is from left to right.
    """
    shows_all = attends_later(attention) and window is None
    if depth != "all" or not (is_left_to_right or shows_all):
        raise ValueError(
            "readout=left: a prediction is read at the slot to its left, which must be in the input. "
            "Use attention=bidirectional without window and depth, or order=left_to_right."
        )


def check_first_known(known: Bool[Tensor, "B L"]) -> None:
    """Raise ValueError if the first position of a row is not known."""
    if not known[:, :1].all():
        row = int(known[:, 0].int().argmin())
        raise ValueError(
            f"row {row}: position 0 is masked, and readout=left reads no prediction for it. "
            "Give the first token, as BOS."
        )


def check_left_shown(readout: str, is_left_to_right: bool, latents: str) -> None:
    """Raise ValueError if predictions are read at a slot to the left that n latent tokens may leave out."""
    if readout == "left" and not is_left_to_right:
        raise ValueError(
            f"latents={latents} with readout=left: a prediction is read at the slot to its left, "
            "which must be in the input. Use latents=all."
        )


def left_slots(layout: Layout) -> Int[Tensor, "B S"]:
    """Return the slot of the position to the left of each slot's.

    It is the slot itself for position 0, for padding and if that position is not in the input.
    """
    positions = layout.positions
    slots = layout.slots.expand_as(positions)
    # Padding goes to an extra column behind all positions.
    length = int(positions.max()) + 1 if positions.numel() else 1
    column = positions.masked_fill(~layout.shown, length)
    # (B, L + 1)
    slot_of = slots.new_full((len(positions), length + 1), -1).scatter(1, column, slots)
    left = slot_of.gather(1, (positions - 1).clamp(min=0))
    return torch.where((left >= 0) & (positions > 0) & layout.shown, left, slots)


def read_left(logits: Float[Tensor, "B S V"], layout: Layout) -> Float[Tensor, "B S V"]:
    """Return the logits of every slot, each read at the slot to its left."""
    return logits.gather(1, left_slots(layout)[:, :, None].expand_as(logits))


def left_of(
    slots: Bool[Tensor, "B S"], layout: Layout
) -> tuple[Bool[Tensor, "B S"], Int[Tensor, " N"]]:
    """Return which slots the predictions of `slots` are read at, and the number among them of each.

    Both `slots` and those are counted row by row.
    """
    left = left_slots(layout)
    width = slots.shape[1]
    column = left.masked_fill(~slots, width)  # the others go to an extra column, which is cut off
    read = torch.zeros(len(slots), width + 1, dtype=torch.bool, device=slots.device)
    read = read.scatter(1, column, True)[:, :width]
    number = read.flatten().cumsum(0).view_as(read) - 1  # (B, S)
    return read, number.gather(1, left)[slots]


DepthKind = Literal["all", "none", "uniform"]


KINDS = ("none", "uniform")


Uniform = Callable[..., Tensor]
"""Sizes -> uniform random numbers in [0, 1)."""


def read_depth(depth: str) -> tuple[DepthKind, float]:
    """Return the word of a depth, and its share of the rows (D-38, depth of training).

    Raises:
        ValueError: it is neither all, nor none or uniform with a share above 0 and at most 1.

    Example:
        >>> read_depth("uniform:0.5")
        ('uniform', 0.5)
    """
    if depth == "all":
        return "all", 0.0
    kind, _, text = depth.partition(":") if isinstance(depth, str) else ("", "", "")
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if kind not in KINDS or not 0 < share <= 1:
        raise ValueError(
            f"depth={depth}: must be all, none:SHARE or uniform:SHARE, "
            "with a share of the rows above 0 and at most 1, such as uniform:0.5"
        )
    return cast(DepthKind, kind), share


def check_depth(depth: str, attends_to_masked: bool, targets: Literal["all", "next"]) -> None:
    """Raise ValueError if a depth cannot be read, or if the method that it is for has none to draw.

    Args:
        depth: the depth, as `read_depth` takes it.
        attends_to_masked: whether a masked token of the method attends to another one.
        targets: the masked tokens that the method scores.
    """
    if read_depth(depth)[0] == "all":
        return
    if not attends_to_masked:
        raise ValueError(
            f"depth={depth}: a masked token of this method attends to no other one, "
            "so there is no depth to draw. Use depth=all, or mdm or scdm."
        )
    if targets == "next":
        raise ValueError(
            f"depth={depth} with targets=next: the scored token comes last and attends to all, "
            "so its depth is the number of latents. Use targets=all, or a method without depth, such as mdm."
        )


def draw_rows(share: float, batch: int, uniform: Uniform) -> Bool[Tensor, " B"]:
    """Draw a share of the rows of a batch. Each row has the same probability.

    If the share is no whole number of rows, the number is the one below or above, at random.
    """
    rank = uniform(batch).argsort().argsort()
    return (rank + uniform(1)) < share * batch


def draw_visible(
    num_masked: Int[Tensor, " B"], rows: Bool[Tensor, " B"], uniform: Uniform
) -> Int[Tensor, " B"]:
    """Draw the number of masked tokens in the input of some rows, uniform on 1 to all. Others keep all."""
    drawn = 1 + (uniform(len(num_masked)) * num_masked).long().minimum(num_masked - 1)
    return torch.where(rows, drawn, num_masked)


def check_shuffled(is_left_to_right: bool, readout: str, targets: str) -> None:
    """Raise ValueError if a method cannot have masked_slots=shuffled."""
    if is_left_to_right and readout == "in_place" and targets == "all":
        return
    raise ValueError(
        f"masked_slots=shuffled with readout={readout} and targets={targets}: needs order=left_to_right, "
        "readout=in_place and targets=all. Use masked_slots=in_order."
    )


def check_rule(attention: Rule, order: Order, is_left_to_right: bool) -> None:
    """Raise ValueError if a rule has blocks, and an order does not decode these from left to right."""
    block = block_of(attention)
    if block is not None and block_of(order) != block and not is_left_to_right:
        name = getattr(attention, "__name__", "custom")
        raise ValueError(
            f"attention={name}: its blocks are decoded from left to right. "
            f"Use order=blockwise({block}), or left_to_right."
        )


def windowed(window: int, targets: Literal["all", "next"]) -> Method:
    """Return AR-MTP-Window-n (targets="all") or AR-NTP-n (targets="next") for n = window (section 5.3).

    It has n - 1 latent tokens.
    """
    return Method(
        left_to_right, bidirectional, window=window, targets=targets, weight="flat", latents=None
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
    number = int(match[2])
    if match[1] == "block-mdm":
        return Method(blockwise(number), block_causal(number), latents=None)
    return windowed(number, "all" if match[1] == "ar-mtp-window" else "next")


# fmt: off
METHODS: Registry[Method] = Registry("method", {
    "mdm":              Method(any_order, bidirectional, latents=None),
    "sidm":             Method(any_order, independent),
    "scdm":             Method(any_order, semi_causal),
    "esolm":            Method(any_order, causal),
    "arm":              Method(left_to_right, causal, weight="flat", readout="shifted"),
    "ar-mtp":           Method(left_to_right, bidirectional, weight="flat", latents=None),
    "ar-mtp-window-16": windowed(16, "all"),
    "ar-ntp-16":        windowed(16, "next"),
    "mdm-depth":        Method(any_order, bidirectional, latents=None, depth="uniform:0.5"),
    "scdm-depth":       Method(any_order, semi_causal, depth="none:0.5"),
    "ar-latents":       Method(left_to_right, causal, weight="flat", masked_slots="shuffled"),
}, derived, also=("ar-mtp-window-N", "ar-ntp-N", "block-mdm-N", "mdm-left"))
# fmt: on


def name_of(method: Method) -> str:
    """Return the name of a method in results.

    It is that of METHODS, else the method's own, else that of METHODS with weight, targets or depth
    if only these differ, else "custom".
    """
    names = [
        *METHODS,
        *(f"{kind}-{method.window}" for kind in ("ar-mtp-window", "ar-ntp") if method.window),
    ]
    names += ["mdm-left"] if method.readout == "left" else []
    names += [f"block-mdm-{block_of(method.attention)}"] if block_of(method.attention) else []
    for changed in (
        (),
        ("weight",),
        ("targets",),
        ("weight", "targets"),
        ("depth",),
        ("weight", "depth"),
    ):
        if changed and method.name is not None:
            return method.name
        for name in names:
            if differences(METHODS[name], method) <= set(changed):
                values = ", ".join(getattr(method, field) for field in changed)
                return f"{name} ({values})" if changed else name
    return "custom"


def differences(first: Method, second: Method) -> set[str]:
    """Return the names of the fields in which two methods differ, apart from `name`."""
    names = [field.name for field in fields(first) if field.compare]
    return {name for name in names if getattr(first, name) != getattr(second, name)}
