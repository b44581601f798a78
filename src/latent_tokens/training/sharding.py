"""Weights of which each rank has a shard: FSDP, and what differs with it from DDP and one process."""

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


def shard_all(tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return this rank's shard of each complete tensor, sharded as that of its name in `like`."""
    shards = dict(tensors)
    for name in tensors.keys() & like.keys():
        model = like[name]
        if isinstance(model, DTensor):  # nothing is sent: every rank has the complete tensor
            complete = tensors[name].to(model.device)
            placement = (model.device_mesh, model.placements)
            shards[name] = distribute_tensor(complete, *placement, src_data_rank=None)
    return shards


@contextmanager
def unsharded(net: nn.Module) -> Iterator[None]:
    """Gather the weights, so that ranks may call the network different numbers of times."""
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
