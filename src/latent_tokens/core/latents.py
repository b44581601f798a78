"""The number of latent tokens of a method: how it is set, and which numbers decoding can use."""

from __future__ import annotations

from typing import Literal

from latent_tokens.core.rule import Rule

LatentControl = Literal["none", "fixed", "free"]


def check_latents(latents: int, control: LatentControl, window: int | None, attention: Rule) -> None:
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
