"""The processes of one run, as torchrun or accelerate launch starts them; to one alone, each of these costs nothing and changes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch
    from accelerate import Accelerator
    from numpy.typing import NDArray


def join(tracker: str | None = None, folder: Path | None = None) -> Accelerator:
    """Joins the others, where there are any, and gives what Accelerate knows of them and of this one's device; a tracker may write to a folder."""
    import torch
    from accelerate import Accelerator

    alone = (
        not torch.accelerator.is_available()
    )  # without an accelerator it leaves processes by themselves unless told
    return Accelerator(cpu=alone, log_with=tracker, project_dir=folder)


def rank() -> int:
    """Which of them this is, from 0."""
    return int(os.environ.get("RANK", "0")) if int(os.environ.get("WORLD_SIZE", "1")) > 1 else 0


def is_main() -> bool:
    """Whether this one writes and prints for all."""
    return rank() == 0


def world_size() -> int:
    """How many have joined."""
    import torch.distributed as dist

    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def shard_indices(total: int) -> NDArray[np.int64]:
    """Which of `total` things, counted over all processes, are this one's: every count-th, so that the shares are as equal as can be."""
    import numpy as np

    return np.arange(rank() if world_size() > 1 else 0, total, world_size())


def gather_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """The rows of all shares, each process giving those of its own, in the order of the things that were shared; the same in all of them."""
    import numpy as np

    parts = all_gather_object(rows)
    together = np.empty((sum(map(len, parts)), *rows.shape[1:]), np.result_type(*parts))
    for place, part in enumerate(parts):
        together[place :: len(parts)] = part
    return together


def all_reduce_sum(values: list[float], device: torch.device) -> list[float]:
    """The sums of each value over all processes, the same in all of them."""
    import torch
    import torch.distributed as dist

    if world_size() == 1:
        return values
    sums = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    return [float(value) for value in sums.tolist()]


def all_gather_object(value: Any) -> list[Any]:
    """The value of each process, in their order, in all of them."""
    import torch.distributed as dist

    found: list[Any] = [None] * world_size()
    if len(found) == 1:
        return [value]
    dist.all_gather_object(found, value)
    return found


@contextmanager
def translate_peer_failure() -> Iterator[None]:
    """Raises ConnectionError, one line, where another process is gone: what the backends say of it differs."""
    try:
        yield
    except RuntimeError as error:
        if world_size() == 1 or not re.search("gloo|NCCL|onnection", str(error)):
            raise
        said = (
            re.sub(r"\[\S*\] ?", "", str(error)).split(". ")[0].splitlines()[0]
        )  # no address, and no advice
        raise ConnectionError(
            f"another process is gone ({said.strip()}); rerun with --resume auto"
        ) from error


def barrier() -> None:
    """Waits until all have come here."""
    import torch.distributed as dist

    if world_size() > 1:
        dist.barrier()
