"""latent-tokens train."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from tyro import MISSING
from tyro.conf import Positional, arg

from latent_tokens import processes
from latent_tokens.checks import first_line
from latent_tokens.commands.shared import Command, keep_freed_memory
from latent_tokens.plugins import is_dotted
from latent_tokens.progress import CONSOLE
from latent_tokens.storage import read_description
from latent_tokens.training.config import DEFAULT_SHAPE, TrainConfig

if TYPE_CHECKING:
    from latent_tokens.training.loop import Observer


@dataclass(frozen=True, kw_only=True)
class Train(Command, TrainConfig):
    """Train a model, or one for each combination of several values.

    Examples:
        latent-tokens train text esolm --data data/text --size tiny --resume auto
        latent-tokens train sudoku-4 scdm --steps 600 --lr 1e-3 2e-3 --seed 0 1 2
    """

    # Settings of which a command takes several values: one run for each combination.
    several: ClassVar[tuple[str, ...]] = (
        "size", "seed", "steps", "batch_size", "lr", "weight_decay", "warmup", "clip", "ema", "dropout",
    )  # fmt: skip

    task: Annotated[Positional[str], arg(metavar="TASK")]
    method: Annotated[Positional[str], arg(metavar="METHOD")]
    config_file: Annotated[Path | None, arg(name="config", metavar="FILE")] = None
    """Run directory, or its config.json, whose settings are the defaults. Other options, TASK and
    METHOD replace them. Default: none."""
    start: Annotated[str | Path | None, arg(name="from", aliases=("--start",), metavar="RUN")] = (
        None
    )
    size: Annotated[tuple[str, ...] | None, arg(metavar="SIZE [SIZE ...]")] = None  # type: ignore[assignment]
    seed: tuple[int, ...] = (TrainConfig.seed,)  # type: ignore[assignment]
    steps: tuple[int, ...] = (TrainConfig.steps,)  # type: ignore[assignment]
    batch_size: tuple[int, ...] = (TrainConfig.batch_size,)  # type: ignore[assignment]
    lr: tuple[float, ...] = (TrainConfig.lr,)  # type: ignore[assignment]
    weight_decay: tuple[float, ...] = (TrainConfig.weight_decay,)  # type: ignore[assignment]
    warmup: tuple[int, ...] = (TrainConfig.warmup,)  # type: ignore[assignment]
    clip: tuple[float, ...] = (TrainConfig.clip,)  # type: ignore[assignment]
    ema: tuple[float, ...] = (TrainConfig.ema,)  # type: ignore[assignment]
    dropout: tuple[float, ...] = (TrainConfig.dropout,)  # type: ignore[assignment]
    out: Path | None = None
    """Run directory to write. Several runs need {seed}, {lr} and so on in it, which are replaced.
    It must be missing or empty unless --resume auto is given. Default: runs/TASK-METHOD-SIZE-SEED,
    with -lr-0.001 and so on at its end for several values of other settings."""


def flags_of_run(path: Path, *, other_data: bool = False) -> Train:
    """Return the flags of `train` with the settings of a run as their defaults.

    A task or method of your own is left to be typed, because no name of a file imports a module. With
    `other_data`, a data set is typed.

    Raises:
        ValueError: the file is not the config.json of a run, or has a setting that is impossible.
    """
    folder, file = (path, "config.json") if path.is_dir() else (path.parent, path.name)
    stored = read_description(folder, file, "run", needed=("training",))["training"]
    try:
        config = TrainConfig(**stored)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: corrupt ({first_line(error)}).") from None
    flags = {field.name: getattr(config, field.name) for field in fields(config)}
    if other_data or config.data is not None:
        # They are stored although nothing is generated, and refused if they are typed.
        flags |= {"num_train": None, "num_validation": TrainConfig.num_validation}
    flags |= {name: (flags[name],) for name in Train.several if flags[name] is not None}
    named = {name: flags[name] for name in ("task", "method")}
    named |= {"first": config.first_name}
    return Train(**flags | {name: MISSING for name in named if is_dotted(named[name])})


def run_train(command: Train, observe: Observer | None = None) -> int:
    """Run `latent-tokens train`. Print each run directory. `observe` is that of `fit`."""
    configs = configs_of(command)

    from latent_tokens.training.checkpoint import saved_step
    from latent_tokens.training.loop import fit
    from latent_tokens.training.run import Preempted
    from latent_tokens.training.setup import is_finished

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
            try:
                fit(config, observe=observe)
            except Preempted:
                # A signal in the last step of the last run leaves nothing to stop.
                if config is not configs[-1] or saved_step(config.folder) != config.steps:
                    raise
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
    values = {name: getattr(command, name) for name in command.several} | {"size": sizes}
    swept = {name: each for name, each in values.items() if len(each) != 1}
    for name, each in swept.items():
        if not each:
            raise ValueError(f"{name}=(): must have a value, or be left out.")
        if len(set(each)) < len(each):
            raise ValueError(f"{name}={each}: must be different values.")
        if processes.num_launched() > 1:
            raise ValueError(
                f"{name}={each}: several runs take one process each. Leave out the launcher."
            )
    missing = [f"{{{name}}}" for name in swept if f"{{{name}}}" not in str(command.out)]
    if command.out is not None and missing:
        fix = f"Use out={'-'.join([str(command.out), *missing])}."
        raise ValueError(f"out={command.out}: is one directory for several runs. {fix}")

    settings = {field.name: getattr(command, field.name) for field in fields(TrainConfig)}
    configs = []
    for combination in product(*values.values()):
        chosen = dict(zip(values, combination, strict=True))
        config = TrainConfig(**{**settings, **chosen})
        if command.out is None:
            others = [f"-{name}-{chosen[name]}" for name in swept if name not in ("size", "seed")]
            out = f"{config.folder}{''.join(others)}"
        else:
            out = str(command.out)
            words = {**chosen, "size": Path(chosen["size"] or str(command.start)).name}
            for name, value in words.items():
                out = out.replace(f"{{{name}}}", str(value))
        configs.append(replace(config, out=Path(out)))
    return configs
