"""The memory and the time of a long run, estimated before it starts."""

from __future__ import annotations

import time

import torch
from torch import nn

from latent_tokens import processes
from latent_tokens.network.hf import HuggingFaceDenoiser
from latent_tokens.network.kernels import resolve_precision
from latent_tokens.network.memory import training_row_bytes, training_rows
from latent_tokens.network.transformer import Transformer
from latent_tokens.training.run import Run

LONG = 1e13  # FLOP: some minutes on a CPU
SIDE = 1_024  # of the square matrices whose product is timed
ROUNDS = 3
BYTES_TRAINED = 4 * 5  # weight, EMA weight, gradient and two moments of AdamW, in float32
BYTES_FROZEN = 4


def estimate(run: Run) -> str | None:
    """Return the memory and the least time of the remaining steps in words. None if that is short.

    The memory is that of weights, optimizer and activations. The time is that of matrix products at the speed
    of one product that is timed now, without attention and validation.
    """
    net = run.net
    if not isinstance(net, Transformer | HuggingFaceDenoiser):
        return None
    flop = training_flop(run)
    if flop < LONG:
        return None
    device = run.accelerator.device
    bf16 = resolve_precision(run.config.precision, device) == "bf16"
    seconds = flop / product_speed(torch.bfloat16 if bf16 else torch.float32, device)
    return f"about {training_bytes(net, run) / 1e9:.2f} GB of memory, at least {in_words(seconds)}"


def training_flop(run: Run) -> float:
    """Return the FLOP of the matrix products of the remaining steps, on this rank.

    A weight takes 2 per slot in the forward pass, 2 for the gradient of its input, and 2 for its own if it is
    trained.
    """
    layers = [layer for layer in run.net.modules() if not isinstance(layer, nn.Embedding)]
    matrices = [weight for layer in layers for weight in layer.parameters(recurse=False) if weight.dim() > 1]
    per_slot = sum((6 if weight.requires_grad else 4) * weight.numel() for weight in matrices)
    slots = run.config.batch_size * float(run.splits["train"].lengths.mean()) / processes.world_size()
    return per_slot * slots * (run.config.steps - run.state.step)


def training_bytes(net: Transformer | HuggingFaceDenoiser, run: Run) -> int:
    """Return the bytes of weights, optimizer and the activations of a part of a batch."""
    weights = sum(
        (BYTES_TRAINED if weight.requires_grad else BYTES_FROZEN) * weight.numel()
        for weight in net.parameters()
    )
    slots = int(run.splits["train"].lengths.max())
    rows = min(run.config.batch_size, training_rows(net, slots))
    return weights + rows * training_row_bytes(net, slots)


def product_speed(dtype: torch.dtype, device: torch.device) -> float:
    """Return the FLOP per second of a matrix product, the fastest of some."""
    matrix = torch.ones(SIDE, SIDE, dtype=dtype, device=device)
    return 2 * SIDE**3 / min(product_seconds(matrix) for _ in range(ROUNDS))


def product_seconds(matrix: torch.Tensor) -> float:
    """Return the seconds of one matrix product, until the device has finished it."""
    start = time.perf_counter()
    (matrix @ matrix)[0, 0].item()
    return time.perf_counter() - start


def in_words(seconds: float) -> str:
    """Return a time in minutes or hours."""
    return f"{seconds / 60:.0f} minutes" if seconds < 5_400 else f"{seconds / 3_600:.1f} hours"
