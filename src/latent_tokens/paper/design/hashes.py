"""Hashes of recipes. Names and values are listed, so that no change of a config class changes a hash.

A setting added later is None by default and is added to a list here. None enters no hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from latent_tokens.configs import DEFAULT_NUM_TRAIN, DataConfig, EvalConfig, TrainConfig
from latent_tokens.data.datasets import GENERATOR
from latent_tokens.storage import Json, short_hash

Content = Json
"""A value that enters a hash."""

DIGITS = 12  # of a hash


def training_content(config: TrainConfig) -> dict[str, Content]:
    """Return the settings that the weights depend on."""
    return without_none(
        {
            "task": config.task,
            "method": config.method,
            "size": config.size,
            "steps": config.steps,
            "batch_size": config.batch_size,
            "lr": config.lr,
            "weight_decay": config.weight_decay,
            "warmup": config.warmup,
            "schedule": config.schedule,
            "clip": config.clip,
            "ema": config.ema,
            "dropout": config.dropout,
            "positions": config.positions,
            "gelu": config.gelu,
            "weight": config.weight,
            "targets": config.targets,
            "noise": config.noise,
            "precision": config.precision,
            "num_train": config.num_train or DEFAULT_NUM_TRAIN,
            "num_validation": config.num_validation,
            "evaluate_every": config.evaluate_every,
            "seed": config.seed,
            "start": None if config.start is None else str(config.start),
            "mask": config.mask,
            "lora": config.lora,
            "lora_targets": config.lora_targets,
            "freeze_embeddings": config.freeze_embeddings or None,
            "anneal": config.anneal,
        }
    )


def evaluation_content(config: EvalConfig) -> dict[str, Content]:
    """Return the settings that a result depends on."""
    return without_none(
        {
            "latents": config.latents,
            "candidates": config.candidates,
            "order": config.order,
            "tokens_per_step": config.tokens_per_step,
            "latent_policy": config.latent_policy,
            "num_samples": config.num_samples,
            "seed": config.seed,
            "batch_size": config.batch_size,
            "temperature": config.temperature,
            "top_p": config.top_p,
            "refresh": config.refresh,
            "precision": config.precision,
            "protocol": config.protocol,
            "off_distribution": config.off_distribution or None,
            "confidence_noise": config.confidence_noise or None,
        }
    )


def data_content(config: DataConfig) -> dict[str, Content]:
    """Return all that the examples of a data set depend on."""
    source = Path(str(config.source)).name if config.from_file else config.source
    return without_none(
        {
            "task": config.task,
            "source": source,
            "split": config.split,
            "skip_bad": config.skip_bad,
            "apart_from": [str(folder) for folder in config.apart_from],
            "num_train": config.num_train,
            "num_validation": config.num_validation,
            "num_test": config.num_test,
            "padding": config.padding,
            "clues": config.clues,
            "guessing": config.guessing,
            "houses": config.houses,
            "attributes": config.attributes,
            "numbers": config.numbers,
            "targets": config.targets,
            "length": config.length,
            "tokenizer": config.tokenizer,
            "field": config.field,
            "seed": config.seed,
            "generator": GENERATOR,
            "answer": "longest" if config.task.startswith("countdown") else None,  # since version 0.2
        }
    )


def without_none(content: Mapping[str, Content]) -> dict[str, Content]:
    """Return the entries that have a value."""
    return {name: value for name, value in content.items() if value is not None}


def hash_of(content: Mapping[str, Content]) -> str:
    """Return the first twelve hexadecimal digits of the SHA-256 of a JSON object with sorted keys."""
    return short_hash(json.dumps(content, sort_keys=True).encode(), DIGITS)
