"""The optimizer state by parameter name, and the keys under which a checkpoint stores it.

Files use the keys of version 0.1 until 1.0, NUMBER.VALUE, such as "3.exp_avg". NAME.VALUE is read too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    OptimizerStateType,
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

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
