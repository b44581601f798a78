"""The measured limits of the current machine, its roofline, and counts of FLOP and memory."""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

SIDE = 2_048  # of the square matrices whose product is timed
COPIED = 1 << 28  # bytes: far more than caches hold
ROUNDS = 15


@dataclass(frozen=True)
class Machine:
    """The roofline: FLOP per second of a matrix product, and bytes per second of a copy."""

    flops: float
    bandwidth: float

    def roofline_seconds(self, flop: float, num_bytes: float) -> float:
        """Return the least seconds for the FLOP and the bytes: the longer of both, which can overlap."""
        return max(flop / self.flops, num_bytes / self.bandwidth)


def measure_machine(dtype: torch.dtype, device: torch.device) -> Machine:
    """Return the machine's limits for matrix products in `dtype`: medians of 15 rounds."""
    matrix = torch.randn(SIDE, SIDE, device=device).to(dtype)
    source = torch.zeros(COPIED, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    with torch.no_grad():
        product_seconds = median_seconds(lambda: matrix @ matrix, device)
        copy_seconds = median_seconds(lambda: target.copy_(source), device)
    return Machine(2 * SIDE**3 / product_seconds, 2 * COPIED / copy_seconds)


def median_seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the median seconds of some work over ROUNDS."""
    return statistics.median(seconds(work, device) for _ in range(ROUNDS))


def seconds(
    work: Callable[[], object], device: torch.device, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the seconds of some work by a clock, until the device has finished it."""
    synchronize(device)
    start_time = clock()
    work()
    synchronize(device)
    return clock() - start_time


def synchronize(device: torch.device) -> None:
    """Wait until an accelerator has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def count_flop(work: Callable[[], object]) -> int:
    """Return the FLOP of the matrix products and the attention of some work, counted while it runs."""
    aten = torch.ops.aten  # torch's counter only knows the kernels of accelerators
    on_cpu = {
        aten._scaled_dot_product_flash_attention_for_cpu: attention_flop,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward_flop,
    }
    with FlopCounterMode(display=False, custom_mapping=on_cpu) as counter:
        work()
    return int(counter.get_total_flops())


def attention_flop(*shapes: Sequence[int], **options: Any) -> int:
    """Return the FLOP of attention with the shapes of q, k and v."""
    return int(cast(Any, sdpa_flop_count)(*shapes[:3]))


def attention_backward_flop(*shapes: Sequence[int], **options: Any) -> int:
    """Return the FLOP of the gradient of attention with the shapes of the output's gradient, q, k and v."""
    return int(cast(Any, sdpa_backward_flop_count)(*shapes[:4]))


def peak_memory(device: torch.device) -> int:
    """Return the peak memory of the process in bytes: that of the accelerator if it runs on one."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def describe_machine(device: torch.device) -> str:
    """Return the name of the device, and for a CPU its threads and cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads of {os.cpu_count()} cores"
