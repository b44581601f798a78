"""latent-tokens reproduce."""

from __future__ import annotations

from latent_tokens.commands.shared import keep_freed_memory
from latent_tokens.configs import ReproduceConfig


def run_reproduce(config: ReproduceConfig) -> int:
    """Run `latent-tokens reproduce`. Print the table."""
    from latent_tokens.paper.reproduce import reproduce

    keep_freed_memory()
    print(reproduce(config), end="")
    return 0
