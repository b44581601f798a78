"""The device of a process: which one, its name, threads, and the precision that it is fast in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from latent_tokens import processes
from latent_tokens.configs import Precision, PrecisionSetting
from latent_tokens.progress import CONSOLE


def fastest_device() -> torch.device:
    """Return the accelerator if it has float64, in which tokens are sampled, otherwise the CPU.

    MPS does not have it.
    """
    device = processes.join().device
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu") if device.type == "mps" else device


def device_name(device: torch.device) -> str:
    """Return the name of a GPU, as in `NVIDIA H200`, otherwise the type of the device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@contextmanager
def limit_threads(threads: int | None) -> Iterator[None]:
    """Limit the CPU threads of torch inside the block. None leaves their number as it is."""
    if threads is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def bf16_is_fast() -> bool:
    """Return whether the CPU multiplies matrices in bf16 in hardware: AVX512-BF16 or AMX.

    Other CPUs convert each number on the way, which can take 100 times as long as fp32.
    """
    if hasattr(torch.cpu, "get_capabilities"):  # PyTorch 2.7 has the two private functions only
        capabilities = torch.cpu.get_capabilities()
        return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def resolve_precision(precision: PrecisionSetting, device: torch.device) -> Precision:
    """Return the format of a setting. auto is bf16 where it is fast, and fp32 elsewhere.

    Example:
        resolve_precision("auto", torch.device("cpu"))  # "bf16" on a CPU with AVX512-BF16 or AMX
    """
    if precision != "auto":
        return precision
    return "bf16" if device.type != "cpu" or bf16_is_fast() else "fp32"


def precision_reason(device: torch.device) -> str:
    """Return why auto is what it is on a device, in words."""
    if device.type != "cpu":
        return "the device is an accelerator"
    if bf16_is_fast():
        return "the CPU has AVX512-BF16 or AMX"
    return "the CPU has neither AVX512-BF16 nor AMX"


def warn_if_slow(precision: Precision, device: torch.device) -> None:
    """Print a line if the format is bf16 on a CPU that lacks the instructions for it."""
    if precision == "bf16" and device.type == "cpu" and not bf16_is_fast():
        reason = precision_reason(device)
        CONSOLE.print(f"precision bf16: many times slower than fp32 here, because {reason}")
