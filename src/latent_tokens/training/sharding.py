"""A network of which each rank holds a shard (FSDP2): its weights are gathered once per step and not kept.

It is one unit, so sharding saves the memory of EMA weights, optimizer state and gradients between steps.
A network that is not sharded passes through each of these functions unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from latent_tokens import processes


def shard(net: nn.Module, device: torch.device) -> None:
    """Leave each of several ranks its shard of every weight."""
    if processes.world_size() > 1:
        mesh = init_device_mesh(device.type, (processes.world_size(),))
        fully_shard(net, mesh=mesh, reshard_after_forward=False)


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the complete tensor on every rank. All ranks must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Return this rank's shard of a complete tensor, sharded as `like` is. Nothing is sent."""
    if not isinstance(like, DTensor):
        return tensor
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def shard_all(tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return this rank's shard of each complete tensor, sharded as the tensor of its name in `like` is."""
    return {
        name: shard_like(tensor, like[name]) if name in like else tensor for name, tensor in tensors.items()
    }


@contextmanager
def unsharded(net: nn.Module) -> Iterator[None]:
    """Gather the weights for the block, so that ranks may call the network different numbers of times."""
    if not isinstance(net, FSDPModule):
        yield
        return
    net.unshard()
    try:
        yield
    finally:
        net.reshard()


@contextmanager
def no_sync(model: nn.Module) -> Iterator[None]:
    """Keep gradients on the rank that computed them, because ranks add them up once per step."""
    if not isinstance(model, FSDPModule):
        with model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext():
            yield
        return
    model.set_requires_gradient_sync(False)
    model.set_reshard_after_backward(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)
        model.set_reshard_after_backward(True)
