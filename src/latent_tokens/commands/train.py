"""latent-tokens train."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latent_tokens import processes
from latent_tokens.commands.shared import keep_freed_memory
from latent_tokens.configs import TrainConfig

if TYPE_CHECKING:
    from latent_tokens.training.loop import Observer


def run_train(config: TrainConfig, observe: Observer | None = None) -> int:
    """Run `latent-tokens train`. Print the run directory. `observe` is that of `fit`."""
    from latent_tokens.training.loop import fit

    for name in ("num_train", "num_validation"):
        if config.data is not None and getattr(config, name) != getattr(TrainConfig, name):
            raise ValueError(
                f"{name}={getattr(config, name)} with data={config.data}: the data set has its own examples. "
                "Leave one of the two out."
            )
    keep_freed_memory()
    folder = fit(config, observe=observe)
    if processes.is_main():
        print(folder)
    return 0
