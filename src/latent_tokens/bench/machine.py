"""What this machine can do, measured here and now: the floors that a benchmark is held against."""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from latent_tokens import processes

SIDE = 2_048  # of the square matrices whose product is timed
COPIED = 1 << 28  # bytes: far more than caches hold
ROUNDS = 15


@dataclass(frozen=True)
class Machine:
    """FLOP a second of a large matrix product, and bytes a second of a copy, read and written."""

    flops: float
    bandwidth: float

    def floor(self, flop: float, moved: float) -> float:
        """Seconds below which so many FLOP and bytes cannot be done: whichever takes longer, as both may go on at once."""
        return max(flop / self.flops, moved / self.bandwidth)


def fastest_device() -> torch.device:
    """The accelerator that is there, but for one without float64 (MPS), in which tokens are drawn; else the CPU."""
    device = processes.join().device
    return torch.device("cpu") if device.type == "mps" else device


def measure_machine(dtype: torch.dtype, device: torch.device) -> Machine:
    """The machine's limits for matrix products in `dtype`: medians of 15 rounds."""
    matrix = torch.randn(SIDE, SIDE, device=device).to(dtype)
    source = torch.zeros(COPIED, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    with torch.no_grad():
        product, copy = (
            statistics.median(seconds(work, device) for _ in range(ROUNDS))
            for work in (lambda: matrix @ matrix, lambda: target.copy_(source))
        )
    return Machine(2 * SIDE**3 / product, 2 * COPIED / copy)


def seconds(work: Callable[[], Any], device: torch.device) -> float:
    """How long the work takes, until the device is done with it."""
    synchronise(device)
    begun = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - begun


def synchronise(device: torch.device) -> None:
    """Waits until an accelerator has done what it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def count_flop(work: Callable[[], Any]) -> int:
    """The FLOP of the matrix products and the attention in a piece of work, counted while it runs."""

    def forward(q: Any, k: Any, v: Any, *rest: Any, out_shape: Any = None, **options: Any) -> int:
        return int(cast(Any, sdpa_flop_count)(q, k, v))

    def backward(
        gradient: Any, q: Any, k: Any, v: Any, *rest: Any, out_shape: Any = None, **options: Any
    ) -> int:
        return int(cast(Any, sdpa_backward_flop_count)(gradient, q, k, v))

    aten = torch.ops.aten  # torch's counter knows the kernels of accelerators alone
    on_cpu = {
        aten._scaled_dot_product_flash_attention_for_cpu: forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }
    with FlopCounterMode(display=False, custom_mapping=on_cpu) as counter:
        work()
    return int(counter.get_total_flops())


def peak_memory(device: torch.device) -> int:
    """Bytes: the most this process has held so far, of the accelerator's memory where it runs on one."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def describe_machine(device: torch.device) -> str:
    """The device's name, and for a CPU its threads and cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads of {os.cpu_count()} cores"
