"""Which examples a step learns from and what is masked in them: a function of (seed, step), made while the step before is under way."""

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
from latent_tokens.core.methods import Method
from latent_tokens.core.objective import TrainingBatch, corrupt
from latent_tokens.data.tensors import as_tensors
from latent_tokens.network.buckets import bucket_by_length
from latent_tokens.tasks import Examples

VALIDATION = 1 << 40  # the "step" whose random streams validation draws from


def training_batches(
    examples: Examples, method: Method, config: TrainConfig, mask_id: int, first: int, device: torch.device
) -> Generator[TrainingBatch, None, None]:
    """The batch of each step from `first` on. Each epoch is a permutation of the examples, drawn from (seed, epoch)."""

    def prepare(step: int) -> TrainingBatch:
        return draw_examples(
            examples.take(chosen(len(examples.tokens), config, step)), method, config, mask_id, step, 0
        ).to(device)

    def begin() -> None:  # a thread does not start on its process's accelerator
        if device.type == "cuda":
            torch.cuda.set_device(device)

    with ThreadPoolExecutor(max_workers=1, initializer=begin) as pool:
        ahead = pool.submit(prepare, first)
        for step in range(first, config.steps):
            now = ahead
            if step + 1 < config.steps:
                ahead = pool.submit(prepare, step + 1)
            yield now.result()


def draw_examples(
    examples: Examples, method: Method, config: TrainConfig, mask_id: int, step: int, part: int
) -> TrainingBatch:
    """Examples with what is masked in them: never what is known, unless noise = "all" says that nothing is (D-8, noised positions)."""
    tokens, known, lengths = as_tensors(examples)
    known = known & (config.noise == "answer")
    return corrupt(
        method,
        tokens,
        known,
        torch.Generator().manual_seed(seed_of(config, step, part)),
        mask_id=mask_id,
        lengths=lengths,
    )


def microbatches(batch: TrainingBatch, max_rows: Callable[[int], int]) -> list[Int[Tensor, " R"]]:
    """Split a batch into parts of rows of similar length, each of at most `max_rows` (slots) rows."""
    num_shown = batch.layout.num_shown
    return [
        torch.tensor(rows, device=num_shown.device) for rows in bucket_by_length(num_shown.tolist(), max_rows)
    ]


def chosen(count: int, config: TrainConfig, step: int) -> NDArray[np.int64]:
    """Which of `count` examples a step learns from."""
    numbers = step * config.batch_size + np.arange(config.batch_size)
    found = np.empty(config.batch_size, np.int64)
    for epoch in np.unique(numbers // count):
        inside = numbers // count == epoch
        found[inside] = epoch_order(config.seed, int(epoch), count)[numbers[inside] % count]
    return found


def seed_of(config: TrainConfig, step: int, part: int = 0) -> int:
    """The seed of the random stream of one step, or of one part of the validation."""
    return int(
        np.random.SeedSequence((config.seed, step, part)).generate_state(1, np.uint64)[0] >> np.uint64(1)
    )


@lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """In which order an epoch goes through the examples."""
    return np.random.default_rng((seed, epoch)).permutation(count)
