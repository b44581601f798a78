"""The names of weights in files: written as in version 0.1 until version 1.0, read in both spellings."""

from __future__ import annotations

from torch import Tensor, nn


def stored_name(name: str) -> str:
    """Return the name under which a weight is stored until version 1.0, from either spelling."""
    return name.replace("position_embedding.", "place.")


def read_both_spellings(net: nn.Module, weights: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Rename the weights of a state_dict in place, before it is loaded (a pre-hook of `load_state_dict`)."""
    for name in [name for name in weights if name.startswith(f"{prefix}position_embedding.")]:
        weights[prefix + stored_name(name.removeprefix(prefix))] = weights.pop(name)
