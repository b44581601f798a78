"""The attention mask of one decoding step, computed by the functions that decode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from latent_tokens.core.attention import Rule, bidirectional, causal, dense_mask, independent, semi_causal
from latent_tokens.core.decoding import Decoding, check_decoding, num_candidates_and_latents
from latent_tokens.core.layout import next_layout
from latent_tokens.core.methods import METHODS, Method
from latent_tokens.core.order import first_order
from latent_tokens.trace.record import has_free_latents

MOST_SLOTS = 64
LATENTS = 2  # where no number is asked for and the method has a dial
SAYS: dict[Rule, str] = {
    bidirectional: "Every token in the input attends to every other.",
    independent: "Clean tokens attend to clean tokens. A masked token attends to clean tokens and itself, so masked tokens do not help each other.",
    semi_causal: "Clean tokens attend to clean tokens. A masked token attends to clean tokens, itself and the masked tokens before it, "
    "so candidates attend to latent tokens.",
    causal: "Every token attends to itself and to the tokens before it, clean or masked.",
}
SHIFTED = " The input of each slot is the token before it, so MASK is in the input only at the first slot."


@dataclass(frozen=True)
class Moment:
    """A step of a decode of `length` tokens, of which `clean` are known or decoded. Raises ValueError where there is none such."""

    method: str
    length: int = 8
    clean: int = 3
    candidates: int = 1
    latents: int | None = None  # None: two where the number is free, else the method's own

    def __post_init__(self) -> None:
        for name, least, most in (
            ("length", 1, MOST_SLOTS),
            ("clean", 0, self.length - 1),
            ("candidates", 1, self.length),
            ("latents", 0, self.length),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ValueError(f"{name}={value}: must be {least} to {most}")
        check_decoding(self.row, self.decoding)

    @property
    def row(self) -> Method:
        return METHODS[self.method]

    @property
    def decoding(self) -> Decoding:
        return Decoding(
            self.candidates, LATENTS if self.latents is None and has_free_latents(self.row) else self.latents
        )


def drawn(moment: Moment) -> dict[str, Any]:
    """The slots in their order, those that are not shown last, and mask[q][k]: whether slot q sees slot k."""
    method, decoding, length = moment.row, moment.decoding, moment.length
    clean, left, one = (torch.tensor([count]) for count in (moment.clean, length - moment.clean, 1))
    noise = torch.rand(1, length, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    order = first_order(
        method.order, torch.zeros(1, length, dtype=torch.bool), torch.tensor([length]), lambda: noise
    )
    candidates, latents = num_candidates_and_latents(method, decoding, clean, left, one)
    layout = next_layout(order, clean, candidates, latents)
    shown = int(layout.num_shown[0])
    kinds = ["clean"] * moment.clean + ["latent"] * int(latents[0]) + ["candidate"] * int(candidates[0])
    kinds += ["hidden"] * (length - len(kinds))
    places = [*layout.positions[0].tolist(), *order[0, shown:].tolist()]
    mask = torch.zeros(length, length, dtype=torch.bool)
    mask[:shown, :shown] = dense_mask(method.attention, layout)[0]
    return {
        "slots": [{"position": place, "kind": kind} for place, kind in zip(places, kinds, strict=True)],
        "mask": mask.tolist(),
        "words": SAYS[method.attention] + SHIFTED * (method.readout == "shifted"),
        "order": "left to right" if method.is_left_to_right else "any",
    }
