"""The settings of configs as keywords of functions, which an editor completes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypedDict

from latent_tokens.configs import LoraTargets, PositionName, PrecisionSetting, SizeName, TrackerName


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
