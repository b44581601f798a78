"""One optimizer step: a batch in microbatches, over all ranks, and the check that its numbers are finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim.swa_utils import AveragedModel

from latent_tokens import processes
from latent_tokens.checkpoints.tensor_files import tensors_to_bytes
from latent_tokens.configs import TrainConfig
from latent_tokens.core.denoiser import as_denoiser
from latent_tokens.core.method import Method
from latent_tokens.core.objective import TrainingBatch, weighted_nll
from latent_tokens.network.kernels import resolve_precision
from latent_tokens.network.memory import training_rows
from latent_tokens.storage import write_atomic
from latent_tokens.training.batches import microbatches, seed_of
from latent_tokens.training.extension import Stretch, schedule_of
from latent_tokens.training.sharding import full_tensor, no_sync

Weights = tuple[Tensor, ...] | list[Tensor]


class NotFinite(ArithmeticError):
    """A loss or a gradient is infinite or NaN."""


def train_step(
    model: nn.Module,
    method: Method,
    optimizer: torch.optim.Optimizer,
    batch: TrainingBatch,
    config: TrainConfig,
    step: int,
    accelerator: Accelerator,
    stretches: tuple[Stretch, ...] = (),
) -> tuple[float, float]:
    """Take one optimizer step, and return its loss and gradient norm.

    Each rank takes its share of the batch, in microbatches of similar length that fit into memory.
    Their losses add up to that of the batch.

    Raises:
        NotFinite: the loss or the gradient norm is not finite. The weights are unchanged.
    """
    device = accelerator.device
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(config, step, stretches)
    model.train()
    torch.manual_seed(seed_of(config, step, processes.rank()))  # for dropout, which takes no generator

    # This rank's share of the batch, in microbatches.
    if processes.world_size() > 1:
        indices = processes.shard_indices(len(batch.tokens))
        batch = batch.take(torch.from_numpy(indices).to(device))
    parts = microbatches(batch, partial(training_rows, model))

    # Forward and backward. Gradients are averaged over ranks, so the loss is scaled to keep their sum.
    loss = torch.zeros((), device=device)
    denoiser = as_denoiser(model)
    for number, rows in enumerate(parts, start=1):
        sync = nullcontext() if number == len(parts) else no_sync(model)
        with sync, autocast(config, device):
            part_loss = weighted_nll(denoiser, method, batch.take(rows))
            accelerator.backward(part_loss * processes.world_size())
        loss += part_loss.detach()

    # Clip, check and update.
    clipped = accelerator.clip_grad_norm_(model.parameters(), config.clip)
    (total_loss,) = processes.all_reduce_sum([loss.item()], device)
    grad_norm = float(full_tensor(clipped))
    if not math.isfinite(total_loss + grad_norm):
        raise NotFinite(f"loss {total_loss}, gradient norm {grad_norm}")
    optimizer.step()
    optimizer.zero_grad()
    return total_loss, grad_norm


def keep_batch(folder: Path, batch: TrainingBatch, error: NotFinite, step: int) -> Path:
    """Write the complete batch of a step that was not finite, once, and return its file."""
    path = folder / f"not-finite-{step:08d}.safetensors"
    tensors = {
        "tokens": batch.tokens,
        "positions": batch.layout.positions,
        "num_clean": batch.layout.num_clean,
        "num_shown": batch.layout.num_shown,
        "scored": batch.scored,
        "weight": batch.weight,
    }
    if batch.layout.is_independent is not None:
        tensors["is_independent"] = batch.layout.is_independent
    if batch.layout.hidden is not None:
        tensors["hidden"] = batch.layout.hidden
    if processes.is_main():
        on_cpu = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        write_atomic({path: tensors_to_bytes(on_cpu, {"step": str(step), "why": str(error)})})
    return path


def learning_rate(config: TrainConfig, step: int, stretches: tuple[Stretch, ...] = ()) -> float:
    """Return the learning rate of a step: linear warmup, then constant or a cosine down to zero.

    A cosine starts again in each of the `stretches` of an extended run.
    """
    schedule = schedule_of(config, step, stretches)
    step -= schedule.begin
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    if config.schedule == "constant":
        return config.lr
    done = (step - config.warmup) / max(1, schedule.end - schedule.begin - config.warmup)
    return config.lr * 0.5 * (1 + math.cos(math.pi * done))


def ema_update(decay: float) -> Callable[[Weights, Weights, Tensor | int], None]:
    """Return the update of EMA weights with decay min(decay, (1 + n) / (10 + n)) after n steps.

    See D-7, published optimizer settings.
    """

    def update(ema: Weights, current: Weights, count: Tensor | int) -> None:
        ramped = min(decay, (1 + int(count)) / (10 + int(count)))
        pairs = list(zip(ema, current, strict=True))
        ema = [average for average, weight in pairs if not is_shared(average, weight)]
        current = [weight for average, weight in pairs if not is_shared(average, weight)]
        if ema:
            torch._foreach_lerp_(ema, current, 1 - ramped)

    return update


def place_ema(ema: AveragedModel, net: nn.Module, device: torch.device) -> None:
    """Move the EMA weights to a device. Frozen ones become those of the network: they are never updated."""
    ema.to(device)
    for weight, average in zip(net.parameters(), ema.module.parameters(), strict=True):
        if not weight.requires_grad and not isinstance(weight, DTensor):
            average.data = weight.data


def is_shared(average: Tensor, weight: Tensor) -> bool:
    """Return whether `place_ema` made an EMA weight that of the network."""
    is_local = not isinstance(weight, DTensor)  # a sharded weight has no address
    return is_local and average.data_ptr() == weight.data_ptr()


def autocast(config: TrainConfig, device: torch.device) -> torch.autocast:
    """Return the context of the network's precision."""
    bf16 = resolve_precision(config.precision, device) == "bf16"
    return torch.autocast(device.type, torch.bfloat16, enabled=bf16)
