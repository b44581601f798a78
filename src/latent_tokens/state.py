"""What a training run goes on from: weights, averaged weights, moments and a step number, in one file of tensors."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from latent_tokens.model import Transformer
from latent_tokens.progress import CONSOLE
from latent_tokens.storage import read_lines, write_whole

STATE = "state.safetensors"


@dataclass
class State:
    """What changes while training, beside the weights."""

    step: int = 0  # optimiser steps taken
    best: float = math.inf  # lowest validation loss


def save_state(folder: Path, net: Transformer, averaged: AveragedModel, optimiser: Any, state: State) -> None:
    """Writes all that training needs to go on, in one file."""
    tensors = {f"net.{name}": tensor for name, tensor in net.state_dict().items()}
    tensors |= {f"averaged.{name}": tensor for name, tensor in averaged.state_dict().items()}
    for number, values in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{number}.{name}": tensor for name, tensor in values.items()}
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_whole({folder / STATE: save(whole, {"state": json.dumps(asdict(state))})})


def saved_step(folder: Path) -> int:
    """The step that a run folder's state was saved at; 0 where there is none. Raises ValueError where the file is damaged."""
    if not (folder / STATE).is_file():
        return 0
    try:
        with safe_open(folder / STATE, "pt") as file:
            return State(**json.loads(file.metadata()["state"])).step
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / STATE}: damaged ({error}); start anew in another folder") from None


def load_state(folder: Path, net: Transformer, averaged: AveragedModel, optimiser: torch.optim.Optimizer) -> State:
    """Puts back what `save_state` wrote, and drops metrics of later steps. Raises ValueError where the file is damaged."""
    if not (folder / STATE).is_file():
        CONSOLE.print(f"{folder}: no state was saved yet, training starts at step 0", highlight=False)
        (folder / "metrics.jsonl").unlink(missing_ok=True)
        return State()
    parts: dict[str, dict[str, Tensor]] = {"net": {}, "averaged": {}, "optimiser": {}}
    try:
        with safe_open(folder / STATE, "pt") as file:
            state = State(**json.loads(file.metadata()["state"]))
            for key in file.keys():  # noqa: SIM118
                part, name = key.split(".", 1)
                parts[part][name] = file.get_tensor(key)
    except (SafetensorError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / STATE}: damaged ({error}); start anew in another folder") from None
    net.load_state_dict(parts["net"])
    averaged.load_state_dict(parts["averaged"])
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in parts["optimiser"].items():
        number, what = name.split(".")
        moments.setdefault(int(number), {})[what] = tensor
    optimiser.load_state_dict({**optimiser.state_dict(), "state": moments})
    rows = [row for row in read_lines(folder / "metrics.jsonl") if row["step"] <= state.step]
    write_whole({folder / "metrics.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode()})
    return state
