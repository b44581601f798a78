"""latent-tokens export."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from latent_tokens.checks import check_out


@dataclass(frozen=True)
class Export:
    """Write a model folder to give away: weights, config and card, which latent_tokens opens, and transformers' AutoModelForMaskedLM, too."""

    run: Positional[str]
    """A run folder, the name of a model that comes along, or a name on the Hugging Face hub."""
    out: Positional[Path]
    """The folder to write; must be missing or empty."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Of the weights in the file; bf16 takes half the room."""
    license: str = "apache-2.0"
    """What the card says, as hubs write it."""


def run_export(command: Export) -> int:
    """latent-tokens export: prints the folder."""
    import torch

    from latent_tokens.pretrained import from_pretrained
    from latent_tokens.sharing import save_pretrained

    check_out(command.out)
    dtype = torch.bfloat16 if command.precision == "bf16" else torch.float32
    save_pretrained(from_pretrained(command.run), command.out, dtype=dtype, license=command.license)
    print(command.out)
    return 0
