"""Checkpoints: the weights, optimizer state and counters that a run resumes from."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from latent_tokens import processes
from latent_tokens.checkpoints.files import check_equal_shapes, weights_bytes, without_sharing
from latent_tokens.checks import first_line
from latent_tokens.progress import CONSOLE
from latent_tokens.storage import half_written, read_lines, restore_files, short_hash, write_atomic
from latent_tokens.training.sharding import full_tensor, shard_all

CHECKPOINT_HASH_DIGITS = 16  # of the hash in a name, by which a corrupt file is detected
NAME = re.compile(rf"state-(\d+)-([0-9a-f]{{{CHECKPOINT_HASH_DIGITS}}})\.safetensors")
PARTS = ("net", "ema", "best", "optimizer")  # of a checkpoint: the first word of a key


@dataclass
class TrainState:
    """The state that training changes, besides the weights that learn."""

    step: int = 0  # optimizer steps taken
    best: float = math.inf  # lowest validation loss
    recent: list[float] = field(default_factory=list)  # losses since the last line of metrics
    weights: dict[str, Tensor] = field(default_factory=dict)  # EMA weights at that loss, on the CPU


def optimizer_tensors(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return this rank's optimizer state as PARAMETER.exp_avg and so on. It is empty before a gradient."""
    return {
        f"{name}.{key}": tensor
        for name, weight in net.named_parameters()
        for key, tensor in optimizer.state.get(weight, {}).items()
    }


def load_optimizer(
    net: nn.Module, optimizer: torch.optim.Optimizer, stored: Mapping[str, Tensor]
) -> None:
    """Load the complete tensors of `optimizer_tensors`. Each rank keeps its shard of them.

    The settings of the optimizer stay those of the config.
    """
    trained = {name: weight for name, weight in net.named_parameters() if weight.requires_grad}
    moments = {
        f"{name}.{key}": trained[name] for name in trained for key in ("exp_avg", "exp_avg_sq")
    }
    state: dict[int, dict[str, Tensor]] = {index: {} for index in range(len(trained))}
    index_of = {name: index for index, name in enumerate(trained)}
    for key, tensor in shard_all(stored, moments).items():
        name, _, value = key.rpartition(".")
        state[index_of[name]][value] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def save_state(
    folder: Path,
    net: nn.Module,
    ema: AveragedModel,
    optimizer: torch.optim.Optimizer,
    state: TrainState,
    keep: int,
) -> None:
    """Write a checkpoint on rank 0, and remove all but the last `keep`. All ranks must call it."""
    tensors = {f"net.{name}": tensor for name, tensor in net.state_dict().items()}
    tensors |= {f"ema.{name}": tensor for name, tensor in ema.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in state.weights.items()}
    moments = optimizer_tensors(net, optimizer)
    tensors |= {f"optimizer.{name}": tensor for name, tensor in moments.items()}
    complete = dict[str, Tensor]()
    for name in sorted(tensors):  # all ranks gather in the same order
        tensor = full_tensor(tensors[name].detach())
        if processes.is_main():
            complete[name] = tensor.cpu().contiguous()
    if not processes.is_main():
        return

    # The bytes are the same each time: one entry of metadata, and sorted names.
    header = json.dumps({"step": state.step, "best": state.best, "recent": state.recent})
    content = save(without_sharing(dict(sorted(complete.items()))), {"state": header})
    write_atomic(
        {
            folder
            / f"state-{state.step:08d}-{short_hash(content, CHECKPOINT_HASH_DIGITS)}.safetensors": content
        }
    )
    prune(folder, keep)


def prune(folder: Path, keep: int) -> None:
    """Remove all checkpoints but the last `keep`."""
    for path in saved_states(folder)[keep:]:
        path.unlink(missing_ok=True)


def step_in_name(path: Path) -> int:
    """Return the step in the name of a checkpoint."""
    return int(path.name.split("-")[1])


def saved_states(folder: Path) -> list[Path]:
    """Return the checkpoints of a run directory, the latest first."""
    checkpoints = [path for path in folder.glob("state-*.safetensors") if NAME.fullmatch(path.name)]
    return sorted(checkpoints, key=step_in_name, reverse=True)


def saved_step(folder: Path) -> int:
    """Return the step of the latest checkpoint of a run directory, or 0 if it has none."""
    return max(map(step_in_name, saved_states(folder)), default=0)


def load_state(
    folder: Path, net: nn.Module, ema: AveragedModel, optimizer: torch.optim.Optimizer
) -> TrainState:
    """Load the latest checkpoint of a run into the network, the EMA weights and the optimizer.

    A corrupt checkpoint is skipped for the previous one, and a line says so. Return the rest of it,
    or a new state for a run without one. Raise ValueError if every checkpoint is corrupt, or one is
    of another network, and OSError if one cannot be read.
    """
    problems: list[str] = []
    for path in saved_states(folder):
        try:
            state, parts = read_state(path)
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            problems.append(f"{path}: corrupt ({first_line(error)})")
            continue
        check_equal_shapes(parts["net"], net, path)
        load_optimizer(net, optimizer, parts["optimizer"])
        net.load_state_dict(shard_all(parts["net"], net.state_dict()))
        ema.load_state_dict(shard_all(parts["ema"], ema.state_dict()))
        for problem in problems:
            CONSOLE.print(f"{problem}. The previous checkpoint is used instead.")
        return state
    if problems:
        raise ValueError(
            f"{problems[0]}, and no other checkpoint can be read. "
            f"To start again, remove {folder}, or name another directory with --out."
        )
    CONSOLE.print(f"{folder}: no checkpoint yet, training starts at step 0")
    return TrainState()


def read_state(path: Path) -> tuple[TrainState, dict[str, dict[str, Tensor]]]:
    """Return a checkpoint's state, and its tensors by part and name. Raise ValueError if it is corrupt."""
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in PARTS}
    content = path.read_bytes()
    if short_hash(content, CHECKPOINT_HASH_DIGITS) not in path.name:
        raise ValueError("its bytes are not those that were written")
    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["state"])
    for key, tensor in load(content).items():
        part, _, name = key.partition(".")
        parts[part][name] = tensor
    return TrainState(**header, weights=parts["best"]), parts


def discard_after(folder: Path, step: int, keep: int) -> None:
    """Remove what was written after a step: metrics, checkpoints and temporary files.

    Checkpoints before the last `keep` are removed too. Raise ValueError if the metrics are corrupt.
    """
    for path in saved_states(folder):
        if step_in_name(path) > step:
            path.unlink()
    prune(folder, keep)
    for path in half_written(folder):
        path.unlink()

    metrics = folder / "metrics.jsonl"
    try:
        rows = [row for row in read_lines(metrics) if row["step"] <= step]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{metrics}: corrupt ({error!r}). Remove it to resume") from None
    if rows:
        write_atomic({metrics: "".join(json.dumps(row) + "\n" for row in rows).encode()})
    else:
        metrics.unlink(missing_ok=True)


def restore_directory(
    folder: Path, state: TrainState, keep: int, task_files: dict[Path, bytes]
) -> None:
    """Bring the files of a run directory, later or corrupt ones, to the step of a checkpoint."""
    discard_after(folder, state.step, keep)
    restore_files(task_files)
    if state.weights:
        restore_files({folder / "model.safetensors": weights_bytes(state.weights)})
    else:
        (folder / "model.safetensors").unlink(missing_ok=True)
