"""One optimizer step: a batch in parts, over all processes, and what may go wrong with its numbers."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from latent_tokens import processes
from latent_tokens.checkpoints.tensor_files import tensors_to_bytes
from latent_tokens.configs import TrainConfig
from latent_tokens.core.methods import Method
from latent_tokens.core.objective import TrainingBatch, weighted_nll
from latent_tokens.network.memory import training_rows
from latent_tokens.storage import write_atomic
from latent_tokens.training.batches import microbatches, seed_of
from latent_tokens.training.sharding import full_tensor, no_sync


class NotFinite(ArithmeticError):
    """A loss or a gradient is infinite, or no number."""


def train_step(
    model: Any,
    method: Method,
    optimizer: Any,
    batch: TrainingBatch,
    config: TrainConfig,
    step: int,
    accelerator: Accelerator,
) -> tuple[float, float]:
    """Takes one optimizer step; gives its loss and gradient norm. Raises NotFinite, the weights as they were, where either is not finite.

    Each process takes its share of the batch through the net, in parts that fit into memory and are of like length; their losses add up to
    that of the batch.
    """
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(config, step)
    model.train()
    torch.manual_seed(seed_of(config, step, processes.rank()))  # for dropout, which takes no generator
    own = (
        batch
        if processes.world_size() == 1
        else batch.take(torch.from_numpy(processes.shard_indices(len(batch.tokens))).to(accelerator.device))
    )
    loss = torch.zeros((), device=accelerator.device)
    *others, last = microbatches(own, partial(training_rows, accelerator.unwrap_model(model)))
    for rows in (*others, last):
        with nullcontext() if rows is last else no_sync(model), autocast(config, accelerator.device):
            part = weighted_nll(model, method, own.take(rows))
            accelerator.backward(
                part * processes.world_size()
            )  # of the gradients the mean over processes is taken
        loss += part.detach()
    norm = accelerator.clip_grad_norm_(model.parameters(), config.clip)
    (value,), size = processes.all_reduce_sum([loss.item()], accelerator.device), float(full_tensor(norm))
    if not math.isfinite(value + size):
        raise NotFinite(f"loss {value}, gradient norm {size}")
    optimizer.step()
    optimizer.zero_grad()
    return value, size


def keep_batch(folder: Path, batch: TrainingBatch, error: NotFinite, step: int) -> Path:
    """Writes the whole batch of a step that went wrong: tokens, positions, num_clean, num_shown, scored and weight."""
    layout, path = batch.layout, folder / f"not-finite-{step:08d}.safetensors"
    parts = {
        "tokens": batch.tokens,
        "positions": layout.positions,
        "num_clean": layout.num_clean,
        "num_shown": layout.num_shown,
    }
    tensors = {
        name: part.cpu().contiguous()
        for name, part in {**parts, "scored": batch.scored, "weight": batch.weight}.items()
    }
    if processes.is_main():
        write_atomic({path: tensors_to_bytes(tensors, {"step": str(step), "why": str(error)})})
    return path


def learning_rate(config: TrainConfig, step: int) -> float:
    """Linear warm-up to the peak, then constant or down to zero along a cosine."""
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    if config.schedule == "constant":
        return config.lr
    done = (step - config.warmup) / max(1, config.steps - config.warmup)
    return config.lr * 0.5 * (1 + math.cos(math.pi * done))


def ema_update(decay: float) -> Any:
    """The update of averaged weights with decay min(decay, (1 + n) / (10 + n)) after n steps (D-7, published optimizer settings)."""

    def update(averaged: list[Tensor], current: list[Tensor], count: Tensor | int) -> None:
        now = min(decay, (1 + int(count)) / (10 + int(count)))
        torch._foreach_lerp_(averaged, current, 1 - now)

    return update


def autocast(config: TrainConfig, device: torch.device) -> torch.autocast:
    """The context in which the net computes: bf16 where it is asked for, or by auto on an accelerator."""
    bf16 = config.precision == "bf16" or (config.precision == "auto" and device.type != "cpu")
    return torch.autocast(device.type, torch.bfloat16, enabled=bf16)
