"""The settings of every command, one file per config. Standard library only, so that --help is quick."""

from __future__ import annotations

from latent_tokens.configs.bench import BenchConfig, training_shape
from latent_tokens.configs.data import MOST_PROCESSES, DataConfig, Split, TaskName
from latent_tokens.configs.demo import DemoConfig
from latent_tokens.configs.evaluate import EvalConfig
from latent_tokens.configs.names import (
    LoraTargets,
    PositionName,
    Precision,
    PrecisionSetting,
    ScaleName,
    SizeName,
)
from latent_tokens.configs.reproduce import ExperimentName, ReproduceConfig
from latent_tokens.configs.sampling import (
    DEFAULT_CANDIDATES,
    NumCandidates,
    NumLatents,
    OrderName,
    PolicyName,
    SamplingConfig,
)
from latent_tokens.configs.train import (
    DEFAULT_NUM_TRAIN,
    DEFAULT_SHAPE,
    LATER_DEFAULTS,
    MAY_CHANGE_ON_RESUME,
    TrackerName,
    TrainConfig,
)

__all__ = [
    "DEFAULT_CANDIDATES",
    "DEFAULT_NUM_TRAIN",
    "DEFAULT_SHAPE",
    "LATER_DEFAULTS",
    "MAY_CHANGE_ON_RESUME",
    "MOST_PROCESSES",
    "BenchConfig",
    "DataConfig",
    "DemoConfig",
    "EvalConfig",
    "ExperimentName",
    "LoraTargets",
    "NumCandidates",
    "NumLatents",
    "OrderName",
    "PolicyName",
    "PositionName",
    "Precision",
    "PrecisionSetting",
    "ReproduceConfig",
    "SamplingConfig",
    "ScaleName",
    "SizeName",
    "Split",
    "TaskName",
    "TrackerName",
    "TrainConfig",
    "training_shape",
]
