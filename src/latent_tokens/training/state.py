"""What a training run goes on from: weights, averaged weights, moments and a step number, in files whose names say what they must hold."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from latent_tokens import processes
from latent_tokens.checkpoints.tensor_files import SHA256, check_tensors, tensors_sha256
from latent_tokens.checks import first_line, is_whole
from latent_tokens.network.transformer import Transformer
from latent_tokens.network.weight_names import stored_name
from latent_tokens.progress import CONSOLE
from latent_tokens.storage import half_written, read_lines, short_hash, write_atomic
from latent_tokens.training.sharding import full_tensor, shard_like

DIGITS = 16  # of the hash in a name
NAME = re.compile(rf"state-(\d+)-([0-9a-f]{{{DIGITS}}})\.safetensors")
MOMENTS = ("exp_avg", "exp_avg_sq")  # of AdamW, of the shape of their weight
OLDER = "state.safetensors"  # the one state that runs of version 0.1 keep


@dataclass
class State:
    """What changes while training, beside the weights that learn."""

    step: int = 0  # optimizer steps taken
    best: float = math.inf  # lowest validation loss
    recent: list[float] = field(default_factory=list)  # losses since the last line of metrics
    weights: dict[str, Tensor] = field(
        default_factory=dict
    )  # the averaged ones at the lowest validation loss, on the CPU


def save_state(
    folder: Path, net: Transformer, averaged: AveragedModel, optimizer: Any, state: State, keep: int
) -> None:
    """Writes all that training needs to go on, in one file, once for all processes, and removes all but the last `keep` of them."""
    tensors = {f"net.{name}": tensor for name, tensor in net.state_dict().items()}
    tensors |= {f"averaged.{name}": tensor for name, tensor in averaged.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in state.weights.items()}
    for number, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimiser.{number}.{name}": tensor for name, tensor in values.items()}
    whole: dict[str, Tensor] = {}
    for name in sorted(tensors):  # in one order in all processes
        tensor = full_tensor(tensors[name].detach())
        if processes.is_main():
            whole[name] = tensor.cpu().contiguous()
    if not processes.is_main():
        return
    about = {"step": state.step, "best": state.best, "recent": state.recent, SHA256: tensors_sha256(whole)}
    content = save(
        whole, {"state": json.dumps(about)}
    )  # one entry of metadata, whose place in the file is always the same
    write_atomic({folder / f"state-{state.step:08d}-{short_hash(content, DIGITS)}.safetensors": content})
    prune(folder, keep)


def prune(folder: Path, keep: int) -> None:
    """Removes all saved states but the last `keep`."""
    for path in saved_states(folder)[keep:]:
        path.unlink(missing_ok=True)


def saved_states(folder: Path) -> list[Path]:
    """The files to go on from, the latest first."""
    found = [
        (int(named[1]), path)
        for path in folder.glob("state-*.safetensors")
        if (named := NAME.fullmatch(path.name))
    ]
    older = [folder / OLDER] if (folder / OLDER).is_file() else []
    return [path for _, path in sorted(found, reverse=True)] + older


def saved_step(folder: Path) -> int:
    """The step that the latest state of a run folder was saved at; 0 where there is none. Raises ValueError where the file is damaged."""
    latest = next(iter(saved_states(folder)), None)
    if latest is None:
        return 0
    named = NAME.fullmatch(latest.name)
    return read_state(latest)[0].step if named is None else int(named[1])


def load_state(
    folder: Path, net: Transformer, averaged: AveragedModel, optimizer: torch.optim.Optimizer
) -> State:
    """Puts back what `save_state` wrote last, and gives the rest of it; a damaged file is passed over for the one before, and a line says so.

    Raises ValueError where none is whole.
    """
    paths = saved_states(folder)
    for path in paths:
        try:
            state, parts = read_state(path)
            load_tensors(parts, net, averaged, optimizer)
        except ValueError as error:
            CONSOLE.print(f"{error}; passed over for the one before it", highlight=False, soft_wrap=True)
            continue
        return state
    if paths:
        raise ValueError(
            f"{folder}: none of its {len(paths)} saved states is whole; start anew in another folder"
        )
    CONSOLE.print(
        f"{folder}: no state was saved yet, training starts at step 0", highlight=False, soft_wrap=True
    )
    return State()


def read_state(path: Path) -> tuple[State, dict[str, dict[str, Tensor]]]:
    """What a file of `save_state` holds. Raises ValueError where it is not what its name says, or no such file."""
    parts: dict[str, dict[str, Tensor]] = {"net": {}, "averaged": {}, "optimiser": {}, "best": {}}
    named = NAME.fullmatch(path.name)
    try:
        content = path.read_bytes()
        if named is not None and named[2] != short_hash(content, DIGITS):
            raise ValueError("its bytes are not those that were written")
        with safe_open(path, "pt") as file:
            about = json.loads(file.metadata()["state"])
        if named is None and isinstance(about, dict):
            about = {"recent": [], **about}  # version 0.1 did not keep them
        written = about.pop(SHA256, None) if isinstance(about, dict) else None
        check_state(about)
        tensors = load(content)
        check_tensors(tensors, written)
        for key, tensor in tensors.items():
            part, name = key.split(".", 1)
            parts[part][stored_name(name)] = tensor
        return State(**about, weights=parts["best"]), parts
    except (OSError, SafetensorError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: damaged ({first_line(error)})") from None


def check_state(about: Any) -> None:
    """Raises ValueError where what a state says beside its tensors is no step, loss and list of losses."""
    step, best, recent = (
        (about.get(name) for name in ("step", "best", "recent"))
        if isinstance(about, dict)
        else (None, None, None)
    )
    if not is_whole(step, 0) or not all(
        isinstance(value, int | float) for value in (best, *(recent if isinstance(recent, list) else [None]))
    ):
        raise ValueError(f"its step, best and recent are {step}, {best} and {recent}"[:200])


def load_tensors(
    parts: dict[str, dict[str, Tensor]],
    net: Transformer,
    averaged: AveragedModel,
    optimizer: torch.optim.Optimizer,
) -> None:
    """Loads the tensors of a state. Raises ValueError where they are another network's."""
    moments: dict[int, dict[str, Tensor]] = {}
    try:
        for name, tensor in parts["optimiser"].items():
            number, what = name.split(".")
            moments.setdefault(int(number), {})[what] = tensor
        check_moments(
            moments, [parameter for group in optimizer.param_groups for parameter in group["params"]]
        )
        if parts["best"] and {name: tensor.shape for name, tensor in parts["best"].items()} != {
            name: tensor.shape for name, tensor in net.state_dict().items()
        }:
            raise ValueError("its best weights have other names or shapes")
        for module, name in ((net, "net"), (averaged, "averaged")):
            module.load_state_dict(shard_all(parts[name], module.state_dict()))
        weights = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        parted_moments = {
            place: shard_all(found, dict.fromkeys(MOMENTS, weights[place]))
            for place, found in moments.items()
        }
        optimizer.load_state_dict({**optimizer.state_dict(), "state": parted_moments})
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"a saved state is of another network ({first_line(error)})") from None


def shard_all(whole: dict[str, Tensor], shared: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors, each shard_like among the processes as the one of its name is."""
    return {
        name: shard_like(tensor, shared[name]) if name in shared else tensor for name, tensor in whole.items()
    }


def check_moments(moments: dict[int, dict[str, Tensor]], parameters: list[Tensor]) -> None:
    """Raises ValueError where the moments are not those of the parameters, or of none."""
    for number, parameter in enumerate(parameters if moments else ()):
        found = {name: tuple(tensor.shape) for name, tensor in moments.get(number, {}).items()}
        step = moments.get(number, {}).get("step")
        if (
            step is None
            or not 0 <= float(step.max()) < math.inf
            or found != {"step": (), "exp_avg": tuple(parameter.shape), "exp_avg_sq": tuple(parameter.shape)}
        ):
            raise ValueError(f"moments {number} are {found}, of a weight of {tuple(parameter.shape)}"[:300])


def discard_after(folder: Path, step: int, keep: int) -> None:
    """Removes what was written after that step, rows of metrics and states; files that a killed process had begun, and states that it had yet
    to remove.

    Raises ValueError where the rows are damaged.
    """
    for path in saved_states(folder):
        named = NAME.fullmatch(path.name)
        if named is not None and int(named[1]) > step:
            path.unlink()
    prune(folder, keep)
    for left in half_written(folder):
        left.unlink()
    metrics = folder / "metrics.jsonl"
    try:
        rows = [row for row in read_lines(metrics) if row["step"] <= step]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{metrics}: damaged ({error!r}); remove it to go on") from None
    if rows:
        write_atomic({metrics: "".join(json.dumps(row) + "\n" for row in rows).encode()})
    else:
        metrics.unlink(missing_ok=True)
