"""A network of which each process holds a part (FSDP2): its weights are put together once a step, and not kept.

It is one unit: what is saved by it is the memory of averages, moments and gradients between steps. A network that is not shared passes
through each of these as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from latent_tokens import processes


def shard(net: nn.Module, device: torch.device) -> None:
    """Leaves each process, of several, its part of every weight."""
    if processes.world_size() > 1:
        fully_shard(
            net, mesh=init_device_mesh(device.type, (processes.world_size(),)), reshard_after_forward=False
        )


def full_tensor(tensor: Tensor) -> Tensor:
    """The whole of a tensor, in all processes, which must all ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """What this process keeps of a whole tensor, which all of them have: the part that it has of `like`. Nothing is sent."""
    if not isinstance(like, DTensor):
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


@contextmanager
def unsharded(net: nn.Module) -> Iterator[None]:
    """The net is whole within, so that processes may call it unlike numbers of times."""
    if not isinstance(net, FSDPModule):
        yield
        return
    net.unshard()
    try:
        yield
    finally:
        net.reshard()


@contextmanager
def no_sync(model: Any) -> Iterator[None]:
    """Gradients stay with the process that computed them: they are summed over processes once a step, with its last part."""
    if not isinstance(model, FSDPModule):
        with getattr(model, "no_sync", nullcontext)():
            yield
        return
    model.set_requires_gradient_sync(False)
    model.set_reshard_after_backward(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)
        model.set_reshard_after_backward(True)
