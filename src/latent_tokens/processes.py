"""The ranks of one run, as torchrun or accelerate launch starts them."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import torch
    from accelerate import Accelerator
    from numpy.typing import NDArray

    Number = TypeVar("Number", bound=np.generic)

T = TypeVar("T")
EX_TEMPFAIL = 75  # the exit code of sysexits.h after which a scheduler runs the job again


def join(tracker: str | None = None, folder: Path | None = None) -> Accelerator:
    """Join the other ranks, if any, and return the Accelerator, which has this rank's device.

    Args:
        tracker: the experiment tracker to log to.
        folder: the directory that the tracker may write to.
    """
    import torch
    from accelerate import Accelerator
    from accelerate.utils import GradientAccumulationPlugin

    # Without an accelerator, Accelerate leaves the processes separate unless it is told to use the
    # CPU. Precision and accumulation are of the run, not of the variables that a launcher sets.
    return Accelerator(
        cpu=not torch.accelerator.is_available(),
        mixed_precision="no",
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
        log_with=tracker,
        project_dir=folder,
    )


def leave() -> None:
    """Leave the other ranks, if any, when all are done.

    A DistributedDataParallel that outlives its group would delete it while it holds the lock of
    Python, for which a thread of Gloo may wait: a deadlock. So what is no longer used goes first.
    """
    dist = sys.modules.get("torch.distributed")  # a command without torch has joined none
    if dist is not None and dist.is_available() and dist.is_initialized():
        gc.collect()
        dist.destroy_process_group()


def rank() -> int:
    """Return the rank of this process, from 0."""
    return int(os.environ.get("RANK", "0")) if num_launched() > 1 else 0


def num_launched() -> int:
    """Return how many ranks the launcher started, whether or not they have joined."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main() -> bool:
    """Return whether this is rank 0, which writes and prints for all."""
    return rank() == 0


def world_size() -> int:
    """Return how many ranks have joined."""
    import torch.distributed as dist

    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def shard_indices(total: int) -> NDArray[np.int64]:
    """Return this rank's share of `total` indices: every world_size-th."""
    import numpy as np

    first = rank() if world_size() > 1 else 0
    return np.arange(first, total, world_size())


def gather_rows(rows: NDArray[Number]) -> NDArray[Number]:
    """Return the rows of all ranks in the order of `shard_indices`, on every rank."""
    import numpy as np

    shards = all_gather_object(rows)
    gathered = np.empty((sum(map(len, shards)), *rows.shape[1:]), np.result_type(*shards))
    for shard_rank, shard in enumerate(shards):
        gathered[shard_rank :: len(shards)] = shard
    return gathered


def all_reduce_sum(values: list[float], device: torch.device) -> list[float]:
    """Return the sum of each value over all ranks, on every rank."""
    import torch
    import torch.distributed as dist

    if world_size() == 1:
        return values
    sums = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    return [float(value) for value in sums.tolist()]


def all_gather_object(value: T) -> list[T]:
    """Return the value of each rank, in the order of ranks, on every rank."""
    import torch.distributed as dist

    values = [value] * world_size()
    if len(values) > 1:
        dist.all_gather_object(values, value)
    return values


@contextmanager
def translate_peer_failure() -> Iterator[None]:
    """Raise ConnectionError, one line, if another rank ended."""
    try:
        yield
    except RuntimeError as error:
        if world_size() == 1 or not re.search("gloo|NCCL|onnection", str(error)):
            raise
        without_address = re.sub(r"\[\S*\] ?", "", str(error))
        reason = without_address.split(". ")[0].splitlines()[0].strip()
        raise ConnectionError(f"another rank ended ({reason}). Rerun with --resume auto") from error


def barrier() -> None:
    """Wait until all ranks are here."""
    import torch.distributed as dist

    if world_size() > 1:
        dist.barrier()
