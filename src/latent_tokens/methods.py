"""Every model of the paper as one row of METHODS, and the two things a row can do: draw a training layout, give logits."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.attention import Rule, bidirectional, block_mask, causal, dense_mask, independent, sees_earlier, sees_later, semi_causal
from latent_tokens.checks import Names, is_whole, one_of, whole
from latent_tokens.layout import Layout, next_layout
from latent_tokens.order import Order, any_order, first_order, left_to_right

BLOCKS_FROM = 1_024  # slots: on an accelerator, masks of so many are given as blocks


@runtime_checkable
class Denoiser(Protocol):
    """Any callable (ids, positions, mask) -> logits with an integer `mask_id`.

    ids, positions: Int[B, S]; mask: Bool[B, S, S]; logits: Float[B, S, V]. Where V has a column `mask_id`, it is never chosen.
    One with `reads = True` takes a fourth argument, wanted Bool[B, S], and gives the logits of these slots alone, (N, V), row by
    row; on an accelerator its mask may be a FlexAttention BlockMask.
    """

    mask_id: int

    def __call__(self, ids: Tensor, positions: Tensor, mask: Tensor, /) -> Tensor: ...


@dataclass(frozen=True)
class Method:
    """One model: what it is trained on and what its input is when it decodes (sections 3 to 5 of the paper; the table in docs/concepts.md)."""

    order: Order
    attention: Rule
    window: int | None = None  # masked tokens shown at most; None = all
    targets: Literal["all", "next"] = "all"  # which of the shown masked tokens are scored in training
    weight: Literal["elbo", "flat"] = "elbo"  # divide by the number of targets, or of unknown positions (D-4, loss weight; D-5, AR-MTP normalization)
    readout: Literal["in_place", "shifted"] = "in_place"  # shifted: slot j is fed the token before it, and MASK at slot 0
    latents: int | None = 0  # n where Decoding.latents is None; None = all that may be shown, as always where rule sees what is later

    def __post_init__(self) -> None:
        if self.latents is not None:
            whole("latents", self.latents, 0)
        if self.window is not None and not (is_whole(self.window, 1) and self.window < 1 << 63):
            raise ValueError(f"window={self.window}: a window shows at least 1 masked token; None shows all")
        if self.readout == "shifted" and self.order is not left_to_right:
            raise ValueError("readout=shifted: each slot is fed the token to its left, so order must be left_to_right")
        if self.readout == "shifted" and self.targets == "next":
            raise ValueError("targets=next with readout=shifted: it learns every step at once, so its targets are all; use targets=all, or ar-ntp-N")
        one_of("targets", self.targets, ("all", "next"))
        one_of("weight", self.weight, ("elbo", "flat"))
        one_of("readout", self.readout, ("in_place", "shifted"))

    def draw(self, known: Bool[Tensor, "B L"], lengths: Int[Tensor, " B"], generator: torch.Generator) -> Layout:
        """A training layout: an order, then the number of clean tokens uniform on {#known .. length-1}, stratified over the batch.

        Where the next token alone is learned it stands last, as when it is decoded: behind all the others that are shown, or where the
        attention leaves their number free, behind a number that is uniform too.
        A shifted readout trains every step at once: its clean slots are the known ones, its masked slots all the rest.
        """

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64).to(known.device)

        order = first_order(self.order, known, lengths, lambda: uniform(*known.shape))
        num_clean = known.sum(1)
        if self.readout == "in_place":
            stratum = (torch.arange(len(known), device=known.device) / len(known) + uniform(1)) % 1
            num_clean = num_clean + (stratum * (lengths - num_clean)).long()
        shown = self.room(lengths - num_clean)
        if self.targets == "all":
            return next_layout(order, num_clean, candidates=shown, latents=torch.zeros_like(shown))
        latents = shown - 1
        if sees_earlier(self.attention) and not sees_later(self.attention):
            latents = (uniform(len(known)) * shown).long().minimum(latents)
        return next_layout(order, num_clean, candidates=torch.ones_like(shown), latents=latents)

    def check_known(self, known: Bool[Tensor, "B L"]) -> None:
        """Raises ValueError where a shifted readout is given known positions that are no prefix."""
        gap = known[:, 1:] & ~known[:, :-1]
        if self.readout == "shifted" and gap.any():
            row = int(gap.any(1).nonzero()[0])
            raise ValueError(f"row {row}: its known positions are no prefix, and a shifted readout only continues one; use scdm or mdm to infill")

    def room(self, num_masked: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
        """How many of a row's masked tokens may be shown: all, or the window."""
        return num_masked if self.window is None else num_masked.clamp(max=self.window)

    def logits(self, net: Denoiser, tokens: Int[Tensor, "B L"], layout: Layout) -> Float[Tensor, "B S V"]:
        """The net's logits for every slot of the layout, with MASK ruled out (D-2, MASK token)."""
        return rule_out(net.mask_id, net(self.fed(tokens, layout, net.mask_id), layout.positions, dense_mask(self.attention, layout)))

    def logits_at(self, wanted: Bool[Tensor, "B S"], net: Denoiser, tokens: Int[Tensor, "B L"], layout: Layout) -> Float[Tensor, "N V"]:
        """`logits` at the wanted slots alone, row by row. A net whose `reads` is true is told which, and need not compute the others."""
        if not getattr(net, "reads", False):
            return self.logits(net, tokens, layout)[wanted]
        ids, long = self.fed(tokens, layout, net.mask_id), layout.positions.shape[1] >= BLOCKS_FROM and tokens.is_cuda
        mask = (block_mask if long else dense_mask)(self.attention, layout)
        return rule_out(net.mask_id, cast(Any, net)(ids, layout.positions, mask, wanted))

    def fed(self, tokens: Int[Tensor, "B L"], layout: Layout, mask_id: int) -> Int[Tensor, "B S"]:
        """What the net is fed at every slot: the token where it is clean, else MASK; with a shifted readout the token before."""
        shown_tokens = tokens.gather(1, layout.positions)  # (B, S)
        if self.readout == "shifted":
            return shown_tokens.roll(1, dims=1).masked_fill(~layout.shown | (layout.slots == 0), mask_id)
        return shown_tokens.masked_fill(~layout.clean, mask_id)


def rule_out(mask_id: int, logits: Float[Tensor, "*N V"]) -> Float[Tensor, "*N V"]:
    """The logits with MASK at minus infinity, where they have a column for it."""
    if logits.shape[-1] > mask_id:
        return logits.index_fill(-1, torch.tensor([mask_id], device=logits.device), -torch.inf)
    return logits


def windowed(window: int, targets: Literal["all", "next"]) -> Method:
    """AR-MTP-Window-n (targets="all") or AR-NTP-n (targets="next"), n = window: n-1 latents, trained (section 5.3)."""
    return Method(left_to_right, bidirectional, window=window, targets=targets, weight="flat", latents=None)


def windowed_by_name(name: str) -> Method | None:
    """The method that ar-mtp-window-N or ar-ntp-N names, N >= 1; None for any other name."""
    match = re.fullmatch(r"(ar-mtp-window|ar-ntp)-([1-9][0-9]*)", name)
    return match and windowed(int(match[2]), "all" if match[1] == "ar-mtp-window" else "next")


# fmt: off
METHODS: Names[Method] = Names("method", {
    "mdm":              Method(any_order, bidirectional, latents=None),
    "sidm":             Method(any_order, independent),
    "scdm":             Method(any_order, semi_causal),
    "esolm":            Method(any_order, causal),
    "arm":              Method(left_to_right, causal, weight="flat", readout="shifted"),
    "ar-mtp":           Method(left_to_right, bidirectional, weight="flat", latents=None),
    "ar-mtp-window-16": windowed(16, "all"),
    "ar-ntp-16":        windowed(16, "next"),
}, windowed_by_name, also=("ar-mtp-window-N", "ar-ntp-N"))
# fmt: on


def most_latents(method: Method) -> Literal["all"] | None:
    """The most latents that decoding may ask of the method: "all", or None where it can use none."""
    usable = sees_later(method.attention) or sees_earlier(method.attention)
    return "all" if usable and method.readout == "in_place" else None


def name_of(method: Method) -> str:
    """The method's name in METHODS, with its weight and targets where they are not the row's own; "custom" for any other method."""
    names = [*METHODS, *(f"{kind}-{method.window}" for kind in ("ar-mtp-window", "ar-ntp") if method.window)]
    for changed in ((), ("weight",), ("targets",), ("weight", "targets")):
        values = {field: getattr(method, field) for field in changed}
        for name in names:
            if METHODS[name].readout == method.readout and replace(METHODS[name], **values) == method:
                return f"{name} ({', '.join(values.values())})" if values else name
    return "custom"
