"""The batch of each step, a function of (seed, step), prepared while the step before is computed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from latent_tokens.configs import TrainConfig
from latent_tokens.core.method import Method
from latent_tokens.core.objective import TrainingBatch, corrupt
from latent_tokens.data.tensors import as_tensors
from latent_tokens.network.memory import bucket_by_length
from latent_tokens.tasks import Examples

VALIDATION = 1 << 40  # the "step" whose random draws validation uses


def training_batches(
    examples: Examples,
    method: Method,
    config: TrainConfig,
    mask_id: int,
    first: int,
    device: torch.device,
    pad: int | None = None,
) -> Generator[TrainingBatch, None, None]:
    """Yield the batch of each step from `first`. An epoch is a permutation drawn from (seed, epoch)."""

    def prepare(step: int) -> TrainingBatch:
        batch = examples.take(example_indices(len(examples.tokens), config, step))
        return draw_examples(batch, method, config, mask_id, step, 0, pad).to(device)

    def use_device() -> None:  # a new thread does not start on the accelerator of its process
        if device.type == "cuda":
            torch.cuda.set_device(device)

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

    From left to right the first masked token is none of the `pad` tokens at the end of a row, unless its
    answer has no others.
    """
    tokens, known, lengths = as_tensors(examples)
    known = known & (config.noise == "answer")
    ends = None
    if pad is not None and method.is_left_to_right:
        index = torch.arange(tokens.shape[1])
        inside = index < lengths[:, None]
        after = (index + 1) * (inside & (tokens != pad))  # (B, L)
        ends = after.amax(1).maximum((known & inside).sum(1))
    generator = torch.Generator().manual_seed(seed_of(config, step, part))
    openness = 1.0 if config.anneal is None else min(1.0, step / config.anneal)  # 1 in validation
    return corrupt(
        method, tokens, known, generator, mask_id=mask_id, lengths=lengths, ends=ends, openness=openness
    )


def microbatches(batch: TrainingBatch, max_rows: Callable[[int], int]) -> list[Int[Tensor, " R"]]:
    """Split a batch into parts of rows of similar length, each of at most `max_rows` (slots) rows."""
    num_shown = batch.layout.num_shown
    buckets = bucket_by_length(num_shown.tolist(), max_rows)
    return [torch.tensor(rows, device=num_shown.device) for rows in buckets]


def example_indices(count: int, config: TrainConfig, step: int) -> NDArray[np.int64]:
    """Return which of `count` examples a step learns from."""
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
    return int(state >> np.uint64(1))


@lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """Return the order in which an epoch visits the examples."""
    return np.random.default_rng((seed, epoch)).permutation(count)
