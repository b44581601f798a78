"""Checkpoints: the weights, optimizer state and counters that a run resumes from."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    OptimizerStateType,
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.optim.swa_utils import AveragedModel

from latent_tokens import processes
from latent_tokens.checkpoints.files import SHA256, check_tensors, tensors_sha256, without_sharing
from latent_tokens.checks import first_line, is_whole
from latent_tokens.network.transformer import Transformer, stored_name
from latent_tokens.progress import CONSOLE
from latent_tokens.storage import half_written, read_lines, short_hash, write_atomic
from latent_tokens.training.network import full_tensor, shard_all

StateByName = dict[str, dict[str, Tensor]]  # parameter name -> {"step", "exp_avg", "exp_avg_sq"}


def optimizer_tensors(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the complete optimizer state under the keys of a file, on the CPU of rank 0.

    Other ranks get none. All ranks must call it.
    """
    if not optimizer.state:  # before the first step; torch would take one to create the state
        return {}
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    gathered = get_optimizer_state_dict(net, optimizer, options=options)
    state = cast(StateByName, gathered.get("state", {}))
    if gathered.get("state"):
        state = unused_parameters(net, state) | state
    numbers = {name: number for number, name in enumerate(parameter_names(net))}
    return {
        f"{numbers[name]}.{key}": tensor for name, values in state.items() for key, tensor in values.items()
    }


def load_optimizer(net: nn.Module, optimizer: torch.optim.Optimizer, stored: Mapping[str, Tensor]) -> None:
    """Load what `optimizer_tensors` returned. Each rank has the complete tensors and keeps its shard.

    It may take an empty step to create the state, so the weights are loaded after it.

    Raises:
        ValueError: the tensors are the state of another network.
    """
    state = by_name(stored, parameter_names(net))
    if not state:
        optimizer.state.clear()
        return
    check_state(state, net)

    # The settings of the optimizer are those of the config, never those of the file.
    names = {parameter: name for name, parameter in net.named_parameters()}
    groups = [
        {**group, "params": [names[parameter] for parameter in group["params"]]}
        for group in optimizer.param_groups
    ]
    loaded: OptimizerStateType = {
        "state": {name: {**values} for name, values in state.items()},
        "param_groups": groups,
    }
    set_optimizer_state_dict(net, optimizer, loaded, options=StateDictOptions(full_state_dict=True))


def parameter_names(net: nn.Module) -> list[str]:
    """Return the names of the trained parameters in the order in which the optimizer numbers them."""
    return [name for name, weight in net.named_parameters() if weight.requires_grad]


def unused_parameters(net: nn.Module, state: StateByName) -> StateByName:
    """Return the state of parameters that had no gradient yet: zeros, with which AdamW would start."""
    return {
        name: {
            "step": torch.zeros(()),
            **{key: torch.zeros(weight.shape) for key in ("exp_avg", "exp_avg_sq")},
        }
        for name, weight in net.named_parameters()
        if weight.requires_grad and name not in state
    }


def by_name(stored: Mapping[str, Tensor], names: list[str]) -> StateByName:
    """Return the optimizer state by parameter name. Raise ValueError if a key names no parameter."""
    state: StateByName = {}
    for key, tensor in stored.items():
        name, _, value = key.rpartition(".")
        if name.isdecimal() and int(name) < len(names):
            name = names[int(name)]
        if name not in names:
            raise ValueError(f"optimizer state of {name}, which is not a parameter"[:300])
        state.setdefault(name, {})[value] = tensor
    return state


def check_state(state: StateByName, net: nn.Module) -> None:
    """Raise ValueError if the optimizer state of a parameter is incomplete or of another shape."""
    for name, parameter in net.named_parameters():
        if not parameter.requires_grad:
            continue
        values = state.get(name, {})
        shape = tuple(parameter.shape)
        shapes = {key: tuple(tensor.shape) for key, tensor in values.items()}
        expected = {"step": (), "exp_avg": shape, "exp_avg_sq": shape}
        if shapes != expected or not 0 <= float(values["step"]) < math.inf:
            raise ValueError(f"optimizer state of {name} is {shapes}, its parameter is {shape}"[:300])


DIGITS = 16  # of the hash in a name


NAME = re.compile(rf"state-(\d+)-([0-9a-f]{{{DIGITS}}})\.safetensors")


OLDER = "state.safetensors"  # the only checkpoint of a run of version 0.1


# The parts of a checkpoint by the first word of their keys. Files use the older words until 1.0.
PARTS = {
    "net": "net",
    "averaged": "ema",
    "ema": "ema",
    "best": "best",
    "optimiser": "optimizer",
    "optimizer": "optimizer",
}


Header = dict[str, int | float | list[float] | str]


@dataclass
class State:
    """The state that training changes, besides the weights that learn."""

    step: int = 0  # optimizer steps taken
    best: float = math.inf  # lowest validation loss
    recent: list[float] = field(default_factory=list)  # losses since the last line of metrics
    weights: dict[str, Tensor] = field(default_factory=dict)  # EMA weights at that loss, on the CPU


def save_state(
    folder: Path,
    net: nn.Module,
    ema: AveragedModel,
    optimizer: torch.optim.Optimizer,
    state: State,
    keep: int,
) -> None:
    """Write a checkpoint once, on rank 0, and remove all but the last `keep`. All ranks must call it."""
    tensors = {f"net.{name}": tensor for name, tensor in net.state_dict().items()}
    tensors |= {f"averaged.{name}": tensor for name, tensor in ema.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in state.weights.items()}
    complete = {f"optimiser.{name}": tensor for name, tensor in optimizer_tensors(net, optimizer).items()}
    for name in sorted(tensors):  # all ranks gather in the same order
        tensor = full_tensor(tensors[name].detach())
        if processes.is_main():
            complete[name] = tensor.cpu().contiguous()
    if not processes.is_main():
        return

    # The bytes are the same each time: one entry of metadata, and sorted names.
    complete = dict(sorted(complete.items()))
    header: Header = {"step": state.step, "best": state.best, "recent": state.recent}
    header[SHA256] = tensors_sha256(complete)
    content = save(without_sharing(complete), {"state": json.dumps(header)})
    write_atomic({folder / f"state-{state.step:08d}-{short_hash(content, DIGITS)}.safetensors": content})
    prune(folder, keep)


def prune(folder: Path, keep: int) -> None:
    """Remove all checkpoints but the last `keep`."""
    for path in saved_states(folder)[keep:]:
        path.unlink(missing_ok=True)


def step_in_name(path: Path) -> int | None:
    """Return the step in the name of a checkpoint, or None for one of version 0.1."""
    match = NAME.fullmatch(path.name)
    return None if match is None else int(match[1])


def saved_states(folder: Path) -> list[Path]:
    """Return the checkpoints of a run directory, the latest first."""
    steps = [(step_in_name(path), path) for path in folder.glob("state-*.safetensors")]
    checkpoints = [(step, path) for step, path in steps if step is not None]
    older = [folder / OLDER] if (folder / OLDER).is_file() else []
    return [path for _, path in sorted(checkpoints, reverse=True)] + older


def saved_step(folder: Path) -> int:
    """Return the step of the latest checkpoint of a run directory, or 0 if it has none.

    Raises:
        ValueError: the file is corrupt.
    """
    latest = next(iter(saved_states(folder)), None)
    if latest is None:
        return 0
    step = step_in_name(latest)
    return read_state(latest)[0].step if step is None else step


def load_state(folder: Path, net: nn.Module, ema: AveragedModel, optimizer: torch.optim.Optimizer) -> State:
    """Load the latest checkpoint of a run directory into the network, the EMA weights and the optimizer.

    A corrupt checkpoint is skipped for the previous one, and a line says so.

    Returns:
        The rest of the checkpoint, or a new state if there is no checkpoint yet.

    Raises:
        ValueError: every checkpoint is corrupt.
    """
    problems: list[str] = []
    for path in saved_states(folder):
        try:
            state, parts = read_state(path, stored_name if isinstance(net, Transformer) else str)
            load_tensors(parts, net, ema, optimizer)
        except ValueError as error:
            problems.append(str(error))
            continue
        for problem in problems:
            CONSOLE.print(
                f"{problem}. The previous checkpoint is used instead.", highlight=False, soft_wrap=True
            )
        return state
    if problems:
        raise ValueError(
            f"{problems[0]}, and no other checkpoint can be read. "
            f"To start again, remove {folder}, or name another directory with --out."
        )
    CONSOLE.print(f"{folder}: no checkpoint yet, training starts at step 0", highlight=False, soft_wrap=True)
    return State()


def read_state(
    path: Path, spelling: Callable[[str], str] = str
) -> tuple[State, dict[str, dict[str, Tensor]]]:
    """Return (the state, the tensors of each part) of a checkpoint.

    Args:
        path: the file.
        spelling: returns the name of a weight from that in the file.

    Raises:
        ValueError: the file is missing or corrupt.
    """
    parts: dict[str, dict[str, Tensor]] = {part: {} for part in PARTS.values()}
    name = NAME.fullmatch(path.name)
    try:
        content = path.read_bytes()
        if name is not None and name[2] != short_hash(content, DIGITS):
            raise ValueError("its bytes are not those that were written")

        # The header: step, losses and the hash of the tensors.
        with safe_open(path, "pt") as file:
            header = json.loads(file.metadata()["state"])
        if name is None and isinstance(header, dict):
            header = {"recent": [], **header}  # version 0.1 did not keep them
        written = header.pop(SHA256, None) if isinstance(header, dict) else None
        check_header(header)

        # The tensors, by part.
        tensors = load(content)
        check_tensors(tensors, written)
        for key, tensor in tensors.items():
            part, _, tensor_name = key.partition(".")
            is_weight = PARTS[part] != "optimizer"
            parts[PARTS[part]][spelling(tensor_name) if is_weight else tensor_name] = tensor
        return State(**header, weights=parts["best"]), parts
    except (OSError, SafetensorError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: corrupt ({first_line(error)})") from None


def check_header(header: Header) -> None:
    """Raise ValueError if the header of a checkpoint has no step, loss and list of losses."""
    fields = header if isinstance(header, dict) else {}
    step = fields.get("step")
    best = fields.get("best")
    recent = fields.get("recent")
    losses = [best, *recent] if isinstance(recent, list) else [None]
    if not is_whole(step, 0) or not all(isinstance(loss, int | float) for loss in losses):
        raise ValueError(f"its step, best and recent are {step}, {best} and {recent}"[:200])


def load_tensors(
    parts: Mapping[str, dict[str, Tensor]],
    net: nn.Module,
    ema: AveragedModel,
    optimizer: torch.optim.Optimizer,
) -> None:
    """Load the tensors of a checkpoint. Raise ValueError if they are those of another network."""
    try:
        expected = {name: tensor.shape for name, tensor in net.state_dict().items()}
        best = {name: tensor.shape for name, tensor in parts["best"].items()}
        if best and best != expected:
            raise ValueError("its best weights have other names or shapes")
        load_optimizer(net, optimizer, parts["optimizer"])
        net.load_state_dict(shard_all(parts["net"], net.state_dict()))
        ema.load_state_dict(shard_all(parts["ema"], ema.state_dict()))
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"a checkpoint is of another network ({first_line(error)})") from None


def discard_after(folder: Path, step: int, keep: int) -> None:
    """Remove what was written after a step: metrics, checkpoints and temporary files.

    Checkpoints before the last `keep` are removed too.

    Raises:
        ValueError: the metrics are corrupt.
    """
    for path in saved_states(folder):
        if (step_in_name(path) or 0) > step:
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
