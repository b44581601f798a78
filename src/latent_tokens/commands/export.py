"""latent-tokens export."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional

from latent_tokens.checks import check_out
from latent_tokens.commands.options import Settings
from latent_tokens.commands.shared import OwnCode


@dataclass(frozen=True)
class Export:
    """Write a model directory to share: weights, config and card.

    AutoModelForMaskedLM of transformers can load it.
    """

    run: Positional[str]
    """Model to export. A run directory, a bundled model, or a name on the Hugging Face Hub."""
    out: Positional[Path]
    """Model directory to write. It must be missing or empty."""
    own: Annotated[OwnCode, Settings(("method", "base"))] = field(default_factory=OwnCode)
    precision: Literal["fp32", "bf16"] = "fp32"
    """Floating-point format of the weights. bf16 halves the size of the file."""
    license: str | None = None
    """License that the model card names, as spelled on the Hugging Face Hub. By default it names none."""


def run_export(command: Export) -> int:
    """Run `latent-tokens export`. Print the directory."""
    import torch

    from latent_tokens.checkpoints.directory import opened
    from latent_tokens.sharing.hub import save_pretrained

    check_out(command.out)
    dtype = torch.bfloat16 if command.precision == "bf16" else torch.float32
    net = opened(command.run, command.own.method, command.own.base)
    save_pretrained(net, command.out, dtype=dtype, license=command.license)
    print(command.out)
    return 0
