"""The settings of configs as keywords of functions, which an editor completes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypedDict

from latent_tokens.configs import (
    LoraTargets,
    NumCandidates,
    NumLatents,
    PolicyName,
    PositionName,
    Precision,
    PrecisionSetting,
    SizeName,
    TrackerName,
)

Function = Callable[..., Any]  # your own, for a field of `Decoding`


class DecodingKeywords(TypedDict, total=False):
    """The settings that samples and evaluations share."""

    order: str | Function | None
    latent_policy: PolicyName | Function | None
    tokens_per_step: int | Function | None
    temperature: float | None
    top_p: float | None
    refresh: bool
    confidence_noise: float | None
    off_distribution: bool
    seed: int


class SamplingSettings(DecodingKeywords, total=False):
    """The settings of `SamplingConfig` as keywords of `generate`."""

    latents: NumLatents | Function | None
    candidates: NumCandidates | Function | None
    threshold: float | None
    entropy_bound: float | None
    factor: float | None


class ModelSettings(SamplingSettings, total=False):
    """The keywords of `Model.generate`: also functions that no config can name."""

    confidence: Function
    select: Function


class EvalSettings(DecodingKeywords, total=False):
    """The settings of `EvalConfig`, and functions that it cannot name, as keywords of `evaluate`."""

    latents: tuple[NumLatents, ...] | Function | None
    candidates: tuple[NumCandidates, ...] | Function | None
    threshold: tuple[float, ...] | None
    entropy_bound: tuple[float, ...] | None
    factor: tuple[float, ...] | None
    confidence: Function
    select: Function
    num_samples: int | None
    data: Path | None
    batch_size: int
    precision: Precision
    protocol: Literal["paper"] | None
    threads: int | None


class TrainSettings(TypedDict, total=False):
    """The settings of `TrainConfig` but its task and method, as keywords of `fit`."""

    out: Path | None
    size: SizeName | None
    steps: int
    batch_size: int
    lr: float
    weight_decay: float
    warmup: int
    schedule: Literal["cosine", "constant"]
    clip: float
    ema: float
    dropout: float
    positions: PositionName | None
    gelu: Literal["exact", "tanh"] | None
    first: str | None
    weight: Literal["elbo", "flat"] | None
    targets: Literal["all", "next"] | None
    noise: Literal["answer", "all"]
    precision: PrecisionSetting
    data: Path | None
    num_train: int | None
    num_validation: int
    evaluate_every: int
    save_every: int
    save_minutes: float
    keep: int
    track: TrackerName | None
    parallel: Literal["ddp", "fsdp"]
    on_nan: Literal["stop", "skip"]
    threads: int | None
    compile: bool
    seed: int
    resume: Literal["no", "yes", "auto", "extend"]
    start: str | Path | None
    mask: int | str | None
    lora: int | None
    lora_targets: LoraTargets | None
    freeze_embeddings: bool
    gradient_checkpointing: bool
