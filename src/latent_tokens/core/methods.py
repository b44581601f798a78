"""Every model of the paper as an entry of METHODS, and the names of methods."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Literal

from latent_tokens.checks import Registry
from latent_tokens.core.attention import bidirectional, causal, independent, semi_causal
from latent_tokens.core.blocks import block_causal, block_of, blockwise
from latent_tokens.core.denoiser import Denoiser, exclude_mask_token, supports_slots
from latent_tokens.core.latents import LatentControl
from latent_tokens.core.method import BLOCK_MASK_FROM, Method
from latent_tokens.core.order import any_order, left_to_right

__all__ = [
    "BLOCK_MASK_FROM",
    "METHODS",
    "Denoiser",
    "LatentControl",
    "Method",
    "exclude_mask_token",
    "name_of",
    "supports_slots",
    "windowed",
]


def windowed(window: int, targets: Literal["all", "next"]) -> Method:
    """Return AR-MTP-Window-n (targets="all") or AR-NTP-n (targets="next") for n = window (section 5.3).

    It has n - 1 latent tokens.
    """
    return Method(left_to_right, bidirectional, window=window, targets=targets, weight="flat", latents=None)


def derived(name: str) -> Method | None:
    """Return the method that ar-mtp-window-N, ar-ntp-N or block-mdm-N, N >= 1, or mdm-left names, else None.

    block-mdm-N is an MDM of each block of N positions given the earlier ones (BD3-LM). Its latent tokens are
    the rest of the block. mdm-left is an MDM that predicts the next position, as Dream.
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

    It is that of METHODS, else the method's own, else that of METHODS with weight, targets or depth if only
    these differ, else "custom".
    """
    names = [*METHODS, *(f"{kind}-{method.window}" for kind in ("ar-mtp-window", "ar-ntp") if method.window)]
    names += ["mdm-left"] if method.readout == "left" else []
    names += [f"block-mdm-{block_of(method.attention)}"] if block_of(method.attention) else []
    for changed in ((), ("weight",), ("targets",), ("weight", "targets"), ("depth",), ("weight", "depth")):
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
