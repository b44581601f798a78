"""The settings of a training run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from latent_tokens.checks import check_choice, check_int, check_min, check_positive, check_threads
from latent_tokens.configs.forms import check_folder_or_name, set_paths
from latent_tokens.configs.names import LoraTargets, PositionName, PrecisionSetting, SizeName
from latent_tokens.sizes import SIZES

TrackerName = Literal["wandb", "trackio", "tensorboard", "mlflow"]
DEFAULT_NUM_TRAIN = 100_000
MAY_CHANGE_ON_RESUME = (
    "out",
    "resume",
    "save_every",
    "save_minutes",
    "keep",
    "track",
    "parallel",
    "on_nan",
    "threads",
    "compile",
    "gradient_checkpointing",
)
"""Settings that may change when a run is resumed."""
DEFAULT_SHAPE = {"size": "nano", "positions": "learned", "gelu": "exact"}
"""The network of a run that does not start from a model."""
LATER_DEFAULTS = {
    "mask": None,
    "lora": None,
    "lora_targets": None,
    "freeze_embeddings": False,
    "anneal": None,
}
"""Settings that are not stored at their default, as in the runs of earlier versions."""


@dataclass(frozen=True)
class TrainConfig:
    """One training run. The defaults suit two CPU cores.

    The paper's recipe is in docs/decisions.md (D-7, published optimizer settings).

    Example:
        >>> TrainConfig("sudoku-4", "scdm", steps=600).lr
        0.002
    """

    task: str
    """Task to learn. sudoku-4, sudoku-6, sudoku-9 (or sudoku-gen), sudoku-16, sudoku-36 (or sudoku-large),
    sudoku-9-pattern, sudoku-puzzle, sudoku-6-puzzle, zebra, zebra-3, zebra-compact-3, zebra-compact-4,
    countdown, countdown-3, countdown-4, module:Name of your own or text, which needs --data."""
    method: str
    """Method to train. mdm, sidm, scdm, esolm, arm, ar-mtp, ar-mtp-window-N or ar-ntp-N, for any window N
    from 1, block-mdm-N, for any block of N positions, mdm-depth or scdm-depth, trained with mixed numbers of
    latent tokens, ar-latents, from left to right with any number of them, mdm-left, which predicts the next
    position as Dream does, or module:name of your own."""
    out: Path | None = None
    """Run directory to write. It must be missing or empty unless --resume auto is given. Default:
    runs/TASK-METHOD-SIZE-SEED, with from-NAME as the size of a run that starts from a model."""
    size: SizeName | None = None
    """Network size. Default: nano, or that of --from."""
    steps: int = 5_000
    """Number of optimizer steps."""
    batch_size: int = 32
    """Examples per optimizer step. A batch that does not fit into memory is split into microbatches."""
    lr: float = 2e-3
    """Peak learning rate of AdamW (betas 0.9 and 0.999)."""
    weight_decay: float = 0.0
    """Decoupled weight decay of AdamW."""
    warmup: int = 100
    """Number of steps of linear warmup."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Learning rate after the warmup. cosine: decays to zero. constant: stays."""
    clip: float = 1.0
    """Maximum gradient norm."""
    ema: float = 0.9999
    """Decay of the exponential moving average (EMA) of the weights, ramped as min(ema, (1 + step) / (10 +
    step)). 0 for none."""
    dropout: float = 0.0
    """Dropout rate of the residual branches."""
    positions: PositionName | None = None
    """Position encoding. learned embeddings, rotary or both. Default: learned, or that of --from."""
    gelu: Literal["exact", "tanh"] | None = None
    """GELU of the MLP. exact, or tanh, the paper's approximation: it differs by at most 5e-4 and is slower on
    a CPU. Default: exact, or that of --from."""
    weight: Literal["elbo", "flat"] | None = None
    """Normalization of a sequence's loss. elbo: the number of its targets. flat: the number of its tokens to
    decode. Default: the method's own."""
    targets: Literal["all", "next"] | None = None
    """Masked tokens that are learned. all of the input, or the next one only. Default: the method's own."""
    noise: Literal["answer", "all"] = "answer"
    """Tokens that are masked and learned. answer, or all: the prompt too, as in the paper's runs on puzzles
    (docs/decisions.md, D-8, noised positions)."""
    anneal: int | None = None
    """Number of steps in which attention opens from causal to that of the method. A pair of slots that the
    causal rule does not let attend does so with probability step / anneal. Default: the method's attention
    at every step."""
    precision: PrecisionSetting = "auto"
    """Floating-point format. auto is bf16 on an accelerator and on a CPU with AVX512-BF16 or AMX, and fp32 on
    another CPU. A resumed run keeps its format."""
    data: Path | None = None
    """Data set directory made by `latent-tokens data`. Default: examples are generated before training."""
    num_train: int | None = None
    """Number of training examples to generate without --data. Default: 100,000, or num_train of a
    TaskBase."""
    num_validation: int = 1_024
    """Number of validation examples to generate without --data."""
    evaluate_every: int = 1_000
    """Steps between two validation losses. The weights with the lowest loss are kept."""
    save_every: int = 1_000
    """Steps between two checkpoints."""
    save_minutes: float = 10.0
    """Also save a checkpoint every X minutes. SIGTERM, SIGINT and SIGUSR1 save one too."""
    keep: int = 2
    """Number of checkpoints to keep. If the latest is corrupt, training resumes from the previous one."""
    track: TrackerName | None = None
    """Experiment tracker that receives every row of metrics.jsonl. Default: none."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """Distributed training. ddp: each rank has a copy of weights, EMA weights and optimizer state. fsdp: each
    rank has a shard."""
    on_nan: Literal["stop", "skip"] = "stop"
    """Action if a loss or gradient is not finite. stop: keep the weights and save the batch. skip: leave out
    the step."""
    threads: int | None = None
    """Number of CPU threads. On a busy machine a small network is faster on one. Default: all cores."""
    compile: bool = False
    """Compile the blocks of the network with torch.compile. The first step takes seconds and, on a CPU, a C++
    compiler. Not measured on a GPU."""
    seed: int = 0
    """Random seed of initial weights, data, masks and orders."""
    resume: Literal["no", "yes", "auto", "extend"] = "no"
    """Whether to resume the run in --out from its latest checkpoint. yes: it must exist. auto: resume it, or
    start it if it does not exist. extend: resume it with more --steps. A constant learning rate continues, a
    cosine starts again."""
    start: str | Path | None = None
    """Model whose weights are trained on, also with another method: a run directory, model directory, bundled
    model or OWNER/NAME, also a language model of transformers. Default: random weights."""
    mask: int | str | None = None
    """MASK of a model of transformers. The id or the text of a reserved token, or new, which adds a row to
    its embeddings. Default: new."""
    lora: int | None = None
    """Rank of a LoRA adapter of a model of transformers. The adapter and the embedding of MASK are trained,
    all other weights stay. It needs peft. Default: all weights are trained."""
    lora_targets: LoraTargets | None = None
    """Layers with an adapter. attention: the projections of attention. all: all linear layers except for the
    head. Default: attention."""
    freeze_embeddings: bool = False
    """Freeze embeddings and head of a model of transformers, except for the embedding of MASK. An adapter
    always does."""
    gradient_checkpointing: bool = False
    """Compute the activations of a model of transformers again for the gradient, instead of storing them.
    This takes less memory and more time."""

    def __post_init__(self) -> None:
        self._check_names()
        set_paths(self, "out", "data")
        check_folder_or_name("start", self.start)
        self._set_default_shape()
        for name in (
            "steps",
            "batch_size",
            "num_validation",
            "evaluate_every",
            "save_every",
            "keep",
        ):
            check_int(name, getattr(self, name), 1)
        if self.num_train is not None:
            check_int("num_train", self.num_train, 1)
        for name in ("warmup", "seed"):
            check_int(name, getattr(self, name), 0)
        for name in ("weight_decay", "ema", "dropout"):
            check_min(name, getattr(self, name), 0)
        check_threads(self.threads)
        check_choice("size", self.size, (None, *SIZES))
        check_choice("schedule", self.schedule, ("cosine", "constant"))
        check_choice("positions", self.positions, (None, *get_args(PositionName)))
        check_choice("gelu", self.gelu, (None, "exact", "tanh"))
        check_choice("weight", self.weight, (None, "elbo", "flat"))
        check_choice("targets", self.targets, (None, "all", "next"))
        check_choice("noise", self.noise, ("answer", "all"))
        check_choice("precision", self.precision, get_args(PrecisionSetting))
        check_choice("track", self.track, (None, *get_args(TrackerName)))
        check_choice("parallel", self.parallel, ("ddp", "fsdp"))
        check_choice("on_nan", self.on_nan, ("stop", "skip"))
        check_choice("resume", self.resume, ("no", "yes", "auto", "extend"))
        for name in ("lr", "clip", "save_minutes"):
            check_positive(name, getattr(self, name))
        for name in ("lr", "weight_decay"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name}={getattr(self, name)}: must be a finite number")
        for name in ("ema", "dropout"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be below 1")

        self._check_adaptation()
        if self.compile and self.parallel == "fsdp":
            raise ValueError(
                "compile=True with parallel=fsdp: blocks in shards are not compiled. Use parallel=ddp."
            )
        if self.compile and self.dropout:
            problem = "a compiled network drops other outputs than an uncompiled one"
            raise ValueError(
                f"compile=True with dropout={self.dropout}: {problem}. Leave one of the two out."
            )

    def _check_names(self) -> None:
        for name in ("task", "method"):
            value = getattr(self, name)
            if not isinstance(value, str):
                fix = f"Use fit(config, {name}=...)."
                raise ValueError(f"{name}={type(value).__name__}: must be a name. {fix}")

    def _check_adaptation(self) -> None:
        check_choice("lora_targets", self.lora_targets, (None, *get_args(LoraTargets)))
        for name in ("lora", "anneal"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 1)
        if self.lora_targets is not None and self.lora is None:
            raise ValueError(f"lora_targets={self.lora_targets}: is for an adapter. Add a rank, lora=16.")
        if self.freeze_embeddings and self.lora is not None:
            raise ValueError("freeze_embeddings=True with lora: an adapter freezes them. Leave it out.")
        if self.lora is not None and self.parallel == "fsdp":
            raise ValueError(f"lora={self.lora} with parallel=fsdp: is not supported. Use parallel=ddp.")

    def _set_default_shape(self) -> None:
        for name, value in DEFAULT_SHAPE.items():
            if self.start is None and getattr(self, name) is None:
                object.__setattr__(self, name, value)

    @property
    def folder(self) -> Path:
        if self.out is not None:
            return self.out
        origin = self.size if self.start is None else f"from-{Path(self.start).name}"
        return Path("runs", f"{self.task}-{self.method}-{origin}-{self.seed}".replace(":", "."))
