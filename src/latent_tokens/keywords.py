"""The settings of configs as keywords of functions, which an editor completes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypedDict

from latent_tokens.configs import (
    ConfidenceName,
    NumCandidates,
    NumLatents,
    PolicyName,
    PositionName,
    Precision,
    PrecisionSetting,
    SizeName,
    Swept,
    TrackerName,
)

Function = Callable[..., Any]  # your own, for a field of `Decoding`


class DecodingKeywords(TypedDict, total=False):
    """The settings of a decode: keywords of `generate`, `Model.generate` and `evaluate`.

    Functions may be your own, or the name of a built-in one. Only `evaluate` takes several values.
    """

    candidates: Swept[NumCandidates] | Function
    latents: Swept[NumLatents] | Function
    tokens_per_step: int | Function | None
    order: str | Function | None
    confidence: ConfidenceName | Function | None
    latent_policy: PolicyName | Function | None
    refresh: bool
    temperature: float | None
    t_max: float | None
    t_min: float | None
    top_p: float | None
    off_distribution: bool
    confidence_noise: float | None
    drafts: int | None
    remask: Function
    remask_below: float | None
    remask_every: int | None
    extra_passes: int | None
    select: Function | None
    threshold: Swept[float]
    entropy_bound: Swept[float]
    factor: Swept[float]
    frechet_bound: Swept[float]


class SamplingKeywords(DecodingKeywords, total=False):
    """The keywords of `Model.generate`."""

    seed: int


class EvalKeywords(SamplingKeywords, total=False):
    """The keywords of `evaluate`."""

    num_samples: int | None
    data: Path | None
    batch_size: int
    precision: Precision
    protocol: Literal["paper"] | None
    threads: int | None


class TrainSettings(TypedDict, total=False):
    """The settings of `TrainConfig` but its task and method, as keywords of `fit`."""

    out: Path | None
    size: SizeName | str | None
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
    lora_alpha: float | None
    lora_targets: str | None
    freeze_embeddings: bool
    gradient_checkpointing: bool
