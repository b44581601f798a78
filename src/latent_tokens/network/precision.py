"""Floating-point formats by hardware: what `precision="auto"` stands for on a device, and why.

Nothing is timed, so that the same machine always decides alike.
"""

from __future__ import annotations

import torch

from latent_tokens.configs import Precision, PrecisionSetting
from latent_tokens.progress import CONSOLE


def bf16_is_fast() -> bool:
    """Return whether the CPU multiplies matrices in bf16 in hardware: AVX512-BF16 or AMX.

    Other CPUs convert each number on the way, which can take 100 times as long as fp32.
    """
    if hasattr(torch.cpu, "get_capabilities"):  # PyTorch 2.7 has the two private functions only
        capabilities = torch.cpu.get_capabilities()
        return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def resolve_precision(precision: PrecisionSetting, device: torch.device) -> Precision:
    """Return the format that a setting stands for. auto is bf16 where it is fast, and fp32 elsewhere.

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
        line = f"precision bf16: many times slower than fp32 here, because {reason}"
        CONSOLE.print(line, highlight=False, soft_wrap=True)
