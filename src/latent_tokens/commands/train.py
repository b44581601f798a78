"""latent-tokens train."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from latent_tokens import processes
from latent_tokens.commands.options import Settings
from latent_tokens.commands.shared import keep_freed_memory
from latent_tokens.configs import DEFAULT_SHAPE, SizeName, TrainConfig
from latent_tokens.progress import CONSOLE

if TYPE_CHECKING:
    from latent_tokens.training.loop import Observer

OF_EACH_RUN = ("size", "seed", "out")
SHARED = tuple(field.name for field in fields(TrainConfig) if field.name not in OF_EACH_RUN)


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a model, or one model for each size and seed, one after another."""

    config: Annotated[TrainConfig, Settings(SHARED)]
    size: tuple[str, ...] | None = None
    """Network sizes, one run for each. pico, nano, tiny, mini, sminy or small. Default: nano, or that of
    --from."""
    seed: tuple[int, ...] = (TrainConfig.seed,)
    """Random seeds of initial weights, data, masks and orders, one run for each."""
    out: Path | None = None
    """Run directory to write. {size} and {seed} in it are replaced, which several runs need. It must be
    missing or empty unless --resume auto is given. Default: runs/TASK-METHOD-SIZE-SEED."""


def run_train(command: Train, observe: Observer | None = None) -> int:
    """Run `latent-tokens train`. Print each run directory. `observe` is that of `fit`."""
    # Check the request before anything is computed.
    configs = configs_of(command)
    shared = command.config
    for name in ("num_train", "num_validation"):
        if shared.data is not None and getattr(shared, name) != getattr(TrainConfig, name):
            raise ValueError(
                f"{name}={getattr(shared, name)} with data={shared.data}: the data set has its own examples. "
                "Leave one of the two out."
            )

    from latent_tokens.training.loop import fit, is_finished

    several = len(configs) > 1
    finished = {config.folder for config in configs if several and is_finished(config)}

    # Train them, one after another.
    keep_freed_memory()
    for config in configs:
        if config.folder in finished:
            CONSOLE.print(
                f"{config.folder}: finished at step {config.steps}", highlight=False, soft_wrap=True
            )
        else:
            fit(config, observe=observe)
        if processes.is_main():
            print(config.folder, flush=True)
    return 0


def configs_of(command: Train) -> list[TrainConfig]:
    """Return the config of each run.

    Raises:
        ValueError: two runs would be the same or have one directory, or a launcher started several processes.
    """
    start = command.config.start
    usual = DEFAULT_SHAPE["size"] if start is None else None
    sizes = (usual,) if command.size is None else command.size
    values: dict[str, tuple[str | int | None, ...]] = {"size": sizes, "seed": command.seed}
    for name, each in values.items():
        if not each or len(set(each)) < len(each):
            raise ValueError(f"{name}={each}: must be one or more different values.")
    several = [name for name, each in values.items() if len(each) > 1]
    if several and processes.num_launched() > 1:
        raise ValueError(
            f"{several[0]}={values[several[0]]}: several runs take one process each. Leave out the launcher."
        )
    missing = [f"{{{name}}}" for name in several if f"{{{name}}}" not in str(command.out)]
    if command.out is not None and missing:
        fix = f"Use out={'-'.join([str(command.out), *missing])}."
        raise ValueError(f"out={command.out}: is one directory for several runs. {fix}")
    return [
        replace(
            command.config,
            size=cast(SizeName | None, size),
            seed=seed,
            out=directory(command.out, size or str(start), seed),
        )  # which checks the size
        for size in sizes
        for seed in command.seed
    ]


def directory(out: Path | None, size: str, seed: int) -> Path | None:
    """Return the run directory of --out for a size, or the model to start from, and a seed. None: default."""
    return (
        None
        if out is None
        else Path(str(out).replace("{size}", Path(size).name).replace("{seed}", str(seed)))
    )
