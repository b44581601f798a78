"""A method: how a model is trained, and its input at inference. It draws layouts and computes logits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.checks import check_choice, check_int, check_label, is_whole
from latent_tokens.core.attention import (
    attends_earlier,
    attends_later,
    block_mask,
    clean_attends_to_masked,
    dense_mask,
)
from latent_tokens.core.blocks import block_of, check_rule, rest_of_block
from latent_tokens.core.denoiser import Denoiser, exclude_mask_token, supports_slots
from latent_tokens.core.depth import check_depth, draw_rows, draw_visible, read_depth
from latent_tokens.core.latents import LatentControl, check_latents
from latent_tokens.core.layout import Layout, next_layout
from latent_tokens.core.masked_slots import check_shuffled, shuffle_masked
from latent_tokens.core.order import Order, first_order, is_left_to_right
from latent_tokens.core.readout import check_first_known, check_left, left_of, read_left
from latent_tokens.core.rule import Rule

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
    # the masked tokens of a training input: in the decoding order, or shuffled (D-40, shuffled slots)
    masked_slots: Literal["in_order", "shuffled"] = "in_order"
    # in results, if it is not an entry of METHODS
    name: str | None = field(default=None, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        if self.name is not None:
            check_label("name", self.name)
        if self.latents is not None:
            check_int("latents", self.latents, 0)
        if self.window is not None and not is_whole(self.window, 1):
            raise ValueError(f"window={self.window}: must be at least 1. Use None for all masked tokens.")
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

        The number of clean tokens is uniform on {#known .. end-1}, and stratified over the batch. The end of
        a row is its length unless `ends` is set.

        With targets="next" the target is the last slot, as at inference: behind all other masked tokens of
        the input, or behind a uniform number of them if the number is free. A shifted readout trains every
        step at once: its clean slots are the known ones, its masked slots all others. The depth is drawn
        after orders and numbers of clean tokens, which do not depend on it, and shuffled slots at the end.
        """

        def uniform(*shape: int) -> Tensor:
            noise = torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64)
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
        return next_layout(order, num_clean, candidates=torch.ones_like(num_masked), latents=latents)

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

    def logits(self, net: Denoiser, tokens: Int[Tensor, "B L"], layout: Layout) -> Float[Tensor, "B S V"]:
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
            return exclude_mask_token(net.mask_id, cast(Any, net)(ids, layout.positions, mask, slots))
        read, number = left_of(slots, layout)
        return exclude_mask_token(net.mask_id, cast(Any, net)(ids, layout.positions, mask, read))[number]

    def input_ids(self, tokens: Int[Tensor, "B L"], layout: Layout, mask_id: int) -> Int[Tensor, "B S"]:
        """Return the token id that every slot receives: its token if clean, else MASK.

        With a shifted readout it is the token before.
        """
        tokens_at = tokens.gather(1, layout.positions)  # (B, S)
        if self.readout == "shifted":
            return tokens_at.roll(1, dims=1).masked_fill(~layout.shown | (layout.slots == 0), mask_id)
        return tokens_at.masked_fill(~layout.clean, mask_id)
