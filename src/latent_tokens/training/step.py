"""A training step: the batch, the loss and the update, and the validation loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import lru_cache, partial
from math import ceil
from typing import NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim.swa_utils import AveragedModel

from latent_tokens import processes
from latent_tokens.core.denoiser import as_denoiser
from latent_tokens.core.method import Method
from latent_tokens.core.objective import TrainingBatch, corrupt, weighted_nll
from latent_tokens.data.loading import as_tensors
from latent_tokens.network.memory import bucket_by_length, training_rows
from latent_tokens.tasks import Examples
from latent_tokens.training.config import TrainConfig
from latent_tokens.training.run import Run, Stretch, diverged
from latent_tokens.training.sharding import full_tensor, no_sync, unsharded

MAX_SKIPPED = 10  # steps in a row
VALIDATION = 1 << 40  # the "step" whose random draws validation uses


def training_batches(
    examples: Examples,
    method_at: Callable[[int], Method],
    config: TrainConfig,
    mask_id: int,
    first: int,
    device: torch.device,
    pad: int | None = None,
) -> Generator[TrainingBatch, None, None]:
    """Yield the batch of each step from `first`. An epoch is a permutation of (seed, epoch)."""

    def prepare(step: int) -> TrainingBatch:
        batch = examples.take(example_indices(len(examples.tokens), config, step))
        return draw_examples(batch, method_at(step), config, mask_id, step, 0, pad).to(device)

    gpu = torch.cuda.current_device() if device.type == "cuda" else None

    def use_device() -> None:  # a new thread does not start on the GPU of its process
        if gpu is not None:
            torch.cuda.set_device(gpu)

    # The next batch is drawn while the network learns from this one. A batch depends on its step only,
    # so it does not matter when it is drawn.
    with ThreadPoolExecutor(max_workers=1, initializer=use_device) as pool:
        ahead = pool.submit(prepare, first)
        for step in range(first, config.steps):
            current = ahead
            if step + 1 < config.steps:
                ahead = pool.submit(prepare, step + 1)
            yield current.result()


def draw_examples(
    examples: Examples,
    method: Method,
    config: TrainConfig,
    mask_id: int,
    step: int,
    part: int,
    pad: int | None = None,
) -> TrainingBatch:
    """Return a corrupted batch. Given tokens are masked only with noise="all" (D-8, noised positions).

    From left to right the first masked token is none of the `pad` tokens at the end of a row,
    unless its answer has no others.
    """
    tokens, known, lengths = as_tensors(examples)
    known = known & (config.noise == "answer")
    ends = None
    if pad is not None and method.is_left_to_right:
        index = torch.arange(tokens.shape[1], device=tokens.device)
        inside = index < lengths[:, None]
        after = (index + 1) * (inside & (tokens != pad))  # (B, L)
        ends = after.amax(1).maximum((known & inside).sum(1))
    generator = torch.Generator().manual_seed(seed_of(config, step, part))
    return corrupt(method, tokens, known, generator, mask_id=mask_id, lengths=lengths, ends=ends)


def microbatches(batch: TrainingBatch, max_rows: Callable[[int], int]) -> list[Int[Tensor, " R"]]:
    """Split a batch into parts of similar length, each of at most `max_rows` (slots) rows."""
    num_shown = batch.layout.num_shown
    buckets = bucket_by_length(num_shown.tolist(), max_rows)
    return [torch.tensor(rows, device=num_shown.device) for rows in buckets]


def example_indices(count: int, config: TrainConfig, step: int) -> NDArray[np.int64]:
    """Return which of `count` examples a step learns from."""
    # Computed from the step alone, so that a run resumes at any step. A batch may end in the next epoch.
    numbers = step * config.batch_size + np.arange(config.batch_size)
    epochs = numbers // count
    indices = np.empty(config.batch_size, np.int64)
    for epoch in np.unique(epochs):
        inside = epochs == epoch
        indices[inside] = epoch_order(config.seed, int(epoch), count)[numbers[inside] % count]
    return indices


def seed_of(config: TrainConfig, step: int, part: int = 0) -> int:
    """Return the seed of the random draws of one step, or of one part of the validation."""
    (state,) = np.random.SeedSequence((config.seed, step, part)).generate_state(1, np.uint64)
    # Below 2^63, so that an int64 stores it, too.
    return int(state >> np.uint64(1))


# Two, because a batch may have examples of two epochs.
@lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """Return the order in which an epoch visits the examples."""
    return np.random.default_rng((seed, epoch)).permutation(count)


Weights = tuple[Tensor, ...] | list[Tensor]


class StepTaken(NamedTuple):
    """An optimizer step that was taken."""

    loss: float
    grad_norm: float  # before clipping


class NotFinite(ArithmeticError):
    """A loss or a gradient is infinite or NaN."""


def take_step(run: Run, batch: TrainingBatch) -> StepTaken | NotFinite:
    """Take one optimizer step, or return why it is skipped.

    Raise ValueError, after a checkpoint of the step before, if it is neither finite nor skipped.
    """
    state = run.state
    try:
        taken = train_step(
            run.model, run.method_at(state.step), run.optimizer, batch, run.config, state.step,
            run.accelerator, run.stretches,
        )  # fmt: skip
    except NotFinite as error:
        run.num_skipped += 1
        if run.config.on_nan == "stop" or run.num_skipped == MAX_SKIPPED:
            run.save()
            raise diverged(str(error), state.step) from None
        # It counts as a step: the next batch is drawn already, and the learning rate follows the step.
        state.step += 1
        run.log({"skipped": str(error)})
        return error
    run.num_skipped = 0
    run.ema.update_parameters(run.net)
    state.step += 1
    state.recent.append(taken.loss)
    return taken


def train_step(
    model: nn.Module,
    method: Method,
    optimizer: torch.optim.Optimizer,
    batch: TrainingBatch,
    config: TrainConfig,
    step: int,
    accelerator: Accelerator,
    stretches: tuple[Stretch, ...] = (),
) -> StepTaken:
    """Take one optimizer step, and return its loss and gradient norm.

    Each rank takes its share of the batch, in microbatches of similar length that fit into memory.
    Their losses add up to that of the batch. Raise NotFinite, with the weights unchanged, if the
    loss or the gradient norm is not finite.
    """
    device = accelerator.device
    # Computed from the step: a scheduler of torch would be one more state to store and to resume.
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(config, step, stretches)
    model.train()
    # For dropout, which takes no generator. Part 0 has drawn the orders.
    torch.manual_seed(seed_of(config, step, 1 + processes.rank()))

    # This rank's share of the batch, in microbatches.
    if processes.world_size() > 1:
        indices = processes.shard_indices(len(batch.tokens))
        batch = batch.take(torch.from_numpy(indices).to(device))
    parts = microbatches(batch, partial(training_rows, model))

    # Forward and backward. Gradients are averaged over ranks, so the loss is scaled to keep their sum.
    # It is summed on the device, and read once: each read waits for all work before it.
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
    is_finite = math.isfinite(total_loss + grad_norm)
    if is_finite:
        optimizer.step()
    # Also without an update: infinite gradients would be added to those of the next step.
    optimizer.zero_grad()
    if not is_finite:
        raise NotFinite(f"loss {total_loss}, gradient norm {grad_norm}")
    return StepTaken(total_loss, grad_norm)


def learning_rate(config: TrainConfig, step: int, stretches: tuple[Stretch, ...] = ()) -> float:
    """Return the learning rate of a step: linear warmup, then constant or a cosine down to zero.

    A cosine starts again in each of the `stretches` of an extended run.
    """
    schedule = Stretch(0, config.steps)
    if config.schedule == "cosine":
        schedule = next(
            (stretch for stretch in reversed(stretches) if stretch.begin <= step), schedule
        )
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
    """Move the EMA weights to a device. Frozen ones become those of the network."""
    ema.to(device)
    for weight, average in zip(net.parameters(), ema.module.parameters(), strict=True):
        # They never differ, so that a copy would only take memory. Large models have frozen weights.
        if not weight.requires_grad and not isinstance(weight, DTensor):
            average.data = weight.data


def is_shared(average: Tensor, weight: Tensor) -> bool:
    """Return whether `place_ema` made an EMA weight that of the network."""
    is_local = not isinstance(weight, DTensor)  # a sharded weight has no address
    return is_local and average.data_ptr() == weight.data_ptr()


def autocast(config: TrainConfig, device: torch.device) -> torch.autocast:
    """Return the context of the network's precision, which is no longer `auto` in a run."""
    return torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16")


def validation_loss(run: Run) -> float:
    """Return the mean loss of the EMA weights over the validation examples.

    Masks and orders are always the same. Each rank takes its share of the batches.
    """
    config = run.config
    examples = run.splits["validation"]
    net = run.ema.module
    denoiser = as_denoiser(net)
    device = run.accelerator.device
    count = len(examples.tokens)

    # Sum the losses of this rank's batches.
    net.eval()
    max_rows = partial(training_rows, net)
    loss = 0.0
    with torch.no_grad(), unsharded(net), autocast(config, device):
        for batch_index in processes.shard_indices(ceil(count / config.batch_size)).tolist():
            start = config.batch_size * batch_index
            part = examples.take(slice(start, start + config.batch_size))
            # Drawn from the place of the batch and not from its rank, so that any world size has this loss.
            batch = draw_examples(part, run.method, config, run.mask_id, VALIDATION, start, run.pad)
            batch = batch.to(device)
            losses = [
                weighted_nll(denoiser, run.method, batch.take(rows)).item()
                for rows in microbatches(batch, max_rows)
            ]
            loss += len(part.tokens) * sum(losses)

    (total_loss,) = processes.all_reduce_sum([loss], device)
    return total_loss / count
