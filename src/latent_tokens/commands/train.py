"""latent-tokens train."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from latent_tokens import processes
from latent_tokens.commands.shared import Command, keep_freed_memory
from latent_tokens.progress import CONSOLE
from latent_tokens.training.config import DEFAULT_SHAPE, TrainConfig

if TYPE_CHECKING:
    from latent_tokens.training.loop import Observer


@dataclass(frozen=True, kw_only=True)
class Train(Command, TrainConfig):
    """Train a model, or one for each size and seed.

    Examples:
        latent-tokens train text esolm --data data/text --size tiny --resume auto
        latent-tokens train sudoku-4 scdm --steps 600 --seed 0 1 2 --out runs/four-{seed}
    """

    task: Annotated[str, arg(metavar="TASK")]
    method: Annotated[str, arg(metavar="METHOD")]
    start: Annotated[str | Path | None, arg(name="from", aliases=("--start",), metavar="RUN")] = (
        None
    )
    size: Annotated[tuple[str, ...] | None, arg(metavar="SIZE [SIZE ...]")] = None  # type: ignore[assignment]
    """Network sizes, one run for each. pico, nano, tiny, mini, sminy, small, or WIDTHxHEADSxLAYERS,
    such as 64x2x3. Default: nano, or that of --from."""
    seed: tuple[int, ...] = (TrainConfig.seed,)  # type: ignore[assignment]
    """Random seeds of initial weights, data, masks and orders, one run for each."""
    out: Path | None = None
    """Run directory to write. {size} and {seed} in it are replaced, which several runs need. It
    must be missing or empty unless --resume auto is given. Default: runs/TASK-METHOD-SIZE-SEED."""


def run_train(command: Train, observe: Observer | None = None) -> int:
    """Run `latent-tokens train`. Print each run directory. `observe` is that of `fit`."""
    configs = configs_of(command)

    from latent_tokens.training.loop import fit, is_finished

    several = len(configs) > 1
    finished = {config.folder for config in configs if several and is_finished(config)}

    # Train them, one after another.
    keep_freed_memory()
    for config in configs:
        if config.folder in finished:
            line = f"{config.folder}: finished at step {config.steps}"
            CONSOLE.print(line, highlight=False, soft_wrap=True)
        else:
            start_time = time.perf_counter()
            fit(config, observe=observe)
            if processes.is_main():
                CONSOLE.print(ending(config, time.perf_counter() - start_time))
        if processes.is_main():
            print(config.folder, flush=True)
    return 0


def ending(config: TrainConfig, seconds: float) -> str:
    """Return the validation loss of the kept weights, the time, and the next command."""
    metrics = map(json.loads, (config.folder / "metrics.jsonl").read_text().splitlines())
    losses = {row["validation_loss"]: row["step"] for row in metrics if "validation_loss" in row}
    best = min(losses)
    minutes, rest = divmod(round(seconds), 60)
    duration = f"{minutes:,} min {rest} s" if minutes else f"{seconds:.1f} s"
    own = {"task": config.task, "method": config.method}
    options = {name: value for name, value in own.items() if ":" in value}
    if config.data is not None:
        options["data"] = str(config.data)
    words = [f" --{name} {shlex.quote(value)}" for name, value in options.items()]
    return (
        f"validation loss {best:.4f} at step {losses[best]:,}, {duration}. Next:\n"
        f"  latent-tokens evaluate {shlex.quote(str(config.folder))}{''.join(words)}"
    )


def configs_of(command: Train) -> list[TrainConfig]:
    """Return the config of each run.

    Raises:
        ValueError: two runs would be the same or have one directory, or a launcher started several
            processes.
    """
    sizes = command.size or (DEFAULT_SHAPE["size"] if command.start is None else None,)
    several = {"size": sizes, "seed": command.seed}
    several = {name: each for name, each in several.items() if len(each) > 1}
    for name, each in several.items():
        if len(set(each)) < len(each):
            raise ValueError(f"{name}={each}: must be different values.")
        if processes.num_launched() > 1:
            raise ValueError(
                f"{name}={each}: several runs take one process each. Leave out the launcher."
            )
    missing = [f"{{{name}}}" for name in several if f"{{{name}}}" not in str(command.out)]
    if command.out is not None and missing:
        fix = f"Use out={'-'.join([str(command.out), *missing])}."
        raise ValueError(f"out={command.out}: is one directory for several runs. {fix}")

    settings = {field.name: getattr(command, field.name) for field in fields(TrainConfig)}
    configs = []
    for size, seed in product(sizes, command.seed):
        name_of_size = Path(size or str(command.start)).name
        out = None
        if command.out is not None:
            out = str(command.out).replace("{size}", name_of_size).replace("{seed}", str(seed))
        configs.append(TrainConfig(**{**settings, "size": size, "seed": seed, "out": out}))
    return configs
