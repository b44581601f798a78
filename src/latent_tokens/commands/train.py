"""latent-tokens train."""

from __future__ import annotations

from latent_tokens import processes
from latent_tokens.commands.shared import keep_freed_memory
from latent_tokens.configs import TrainConfig


def run_train(config: TrainConfig) -> int:
    """latent-tokens train: prints the run folder."""
    from latent_tokens.training import fit

    keep_freed_memory()
    folder = fit(config)
    if processes.is_first():
        print(folder)
    return 0
