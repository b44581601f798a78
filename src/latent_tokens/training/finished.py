"""Whether a run has taken its last step."""

from __future__ import annotations

from dataclasses import replace

from latent_tokens import processes
from latent_tokens.configs import TrainConfig
from latent_tokens.tasks import named
from latent_tokens.training.data import num_train_of
from latent_tokens.training.resume import read_started, resume_config
from latent_tokens.training.state import saved_step


def is_finished(config: TrainConfig) -> bool:
    """Return whether a config's run directory has a checkpoint of its last step.

    Raises:
        ValueError: the directory cannot start or resume the run, or a setting differs from that of its run.
    """
    if config.resume != "yes" and not config.folder.exists():
        return False
    started = read_started(config)
    if started is None:
        return False
    config = replace(config, num_train=num_train_of(config, named(config.task)))
    resume_config(config, started, processes.join().device, ignored=())
    return saved_step(config.folder) == config.steps
