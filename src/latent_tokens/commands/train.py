"""latent-tokens train."""

from __future__ import annotations

from latent_tokens.commands.shared import keep_freed_memory
from latent_tokens.configs import TrainConfig


def run_train(config: TrainConfig) -> int:
    """latent-tokens train: prints the run folder."""
    from latent_tokens.training import fit

    keep_freed_memory()
    print(fit(config))
    return 0
