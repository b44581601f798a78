"""The attention mask of one decoding step, computed by the functions that decode."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from latent_tokens.core.attention import Rule, bidirectional, causal, dense_mask, independent, semi_causal
from latent_tokens.core.decoding import Decoding, check_decoding, num_candidates_and_latents
from latent_tokens.core.layout import next_layout
from latent_tokens.core.method import METHODS, Method
from latent_tokens.core.order import first_order
from latent_tokens.trace.record import has_free_latents
from latent_tokens.web.payloads import Mask

MOST_SLOTS = 64
LATENTS = 2  # by default, if the number is free
DESCRIPTIONS: dict[Rule, str] = {
    bidirectional: "Every token in the input attends to every other.",
    independent: "Clean tokens attend to clean tokens. A masked token attends to clean tokens and itself, "
    "so masked tokens do not help each other.",
    semi_causal: "Clean tokens attend to clean tokens. A masked token attends to clean tokens, itself "
    "and the masked tokens before it, so candidates attend to latent tokens.",
    causal: "Every token attends to itself and to the tokens before it, clean or masked.",
}
BLOCKS = "Every token attends to the tokens of its block of positions, and to those of earlier blocks."
SHIFTED = " The input of each slot is the token before it, so MASK is in the input only at the first slot."


@dataclass(frozen=True)
class Moment:
    """A step of a decode of `length` tokens, `clean` of which are given or decoded.

    Raise ValueError if it is impossible.
    """

    method: str
    length: int = 8
    clean: int = 3
    candidates: int = 1
    latents: int | None = None  # None: two if the number is free, otherwise the number of the method

    def __post_init__(self) -> None:
        ranges = (
            ("length", self.length, 1, MOST_SLOTS),
            ("clean", self.clean, 0, self.length - 1),
            ("candidates", self.candidates, 1, self.length),
            ("latents", self.latents, 0, self.length),
        )
        for name, value, least, most in ranges:
            if value is not None and not least <= value <= most:
                raise ValueError(f"{name}={value}: must be {least} to {most}")
        check_decoding(self.row, self.decoding)

    @property
    def row(self) -> Method:
        return METHODS[self.method]

    @property
    def decoding(self) -> Decoding:
        if self.latents is None and has_free_latents(self.row):
            return Decoding(self.candidates, LATENTS)
        return Decoding(self.candidates, self.latents)


def step_mask(moment: Moment) -> Mask:
    """Return the slots in their order and mask[q][k]: whether slot q attends to slot k."""
    method = moment.row
    length = moment.length
    num_clean = torch.tensor([moment.clean])
    num_masked = torch.tensor([length - moment.clean])

    # The layout of a step that decodes one token.
    noise = torch.rand(1, length, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    nothing_known = torch.zeros(1, length, dtype=torch.bool)
    order = first_order(method.order, nothing_known, torch.tensor([length]), lambda: noise)
    num_candidates, num_latents = num_candidates_and_latents(
        method,
        moment.decoding,
        num_clean,
        num_masked,
        torch.tensor([1]),
        method.num_visible(order, num_clean, num_clean + num_masked),
    )
    layout = next_layout(order, num_clean, num_candidates, num_latents)

    # Its slots, then the positions that it leaves out, which attend to nothing.
    num_shown = int(layout.num_shown[0])
    kinds = ["clean"] * moment.clean
    kinds += ["latent"] * int(num_latents[0])
    kinds += ["candidate"] * int(num_candidates[0])
    kinds += ["hidden"] * (length - len(kinds))
    positions = [*layout.positions[0].tolist(), *order[0, num_shown:].tolist()]
    mask = torch.zeros(length, length, dtype=torch.bool)
    mask[:num_shown, :num_shown] = dense_mask(method.attention, layout)[0]
    return {
        "slots": [
            {"position": position, "kind": kind} for position, kind in zip(positions, kinds, strict=True)
        ],
        "mask": mask.tolist(),
        "words": DESCRIPTIONS.get(method.attention, BLOCKS) + SHIFTED * (method.readout == "shifted"),
        "order": "left to right" if method.is_left_to_right else "any",
    }
