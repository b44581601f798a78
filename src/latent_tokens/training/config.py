"""The settings of a training run. Standard library only, so that --help is quick."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from latent_tokens.checks import check_min, check_positive
from latent_tokens.configs import Config, PositionName, PrecisionSetting, SizeName, TrackerName
from latent_tokens.sizes import SIZES

DEFAULT_NUM_TRAIN = 100_000
MAY_CHANGE_ON_RESUME = (
    "out", "resume", "save_every", "save_minutes", "keep", "track", "parallel", "on_nan", "threads",
    "compile", "gradient_checkpointing",
)  # fmt: skip
"""Settings that may change when a run is resumed."""
DEFAULT_SHAPE = {"size": "nano", "positions": "learned", "gelu": "exact"}
"""The network of a run that does not start from a model."""
OF_ADAPTER = ("lora_alpha", "lora_targets")
LATER_DEFAULTS = {
    "start": None, "mask": None, "lora": None, "lora_alpha": None, "lora_targets": None,
    "freeze_embeddings": False, "first": None,
}  # fmt: skip
"""Settings that are not stored at their default, as in the runs of earlier versions."""


@dataclass(frozen=True)
class TrainConfig(Config):
    """One training run. The defaults suit two CPU cores.

    The paper's recipe is in docs/decisions.md (D-7, published optimizer settings).

    Example:
        >>> TrainConfig("sudoku-4", "scdm", steps=600).lr
        0.002
    """

    task: str
    """Task to learn. {tasks}, module:Name of your own or text, which needs --data."""
    method: str
    """Method to train. {methods} or module:name of your own."""
    out: Path | None = None
    """Run directory to write. It must be missing or empty unless --resume auto is given. Default:
    runs/TASK-METHOD-SIZE-SEED, with from-NAME as the size of a run that starts from a model."""
    size: SizeName | str | None = None
    """Network size: a name, or WIDTHxHEADSxLAYERS, such as 64x2x3. Default: nano, or that of
    --from."""
    steps: int = 5_000
    """Number of optimizer steps."""
    batch_size: int = 32
    """Examples per optimizer step. A batch that does not fit into memory is split into
    microbatches."""
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
    """Decay of the exponential moving average (EMA) of the weights, ramped as min(ema, (1 + step)
    / (10 + step)). 0 for none."""
    dropout: float = 0.0
    """Dropout rate of the residual branches."""
    positions: PositionName | None = None
    """Position encoding. learned embeddings, rotary or both. Default: learned, or that of
    --from."""
    gelu: Literal["exact", "tanh"] | None = None
    """GELU of the MLP. exact, or tanh, the approximation of published models: it differs by at most
    5e-4 and is slower on a CPU. Default: exact, or that of --from."""
    first: str | None = None
    """Method of the first steps and their number, as METHOD:STEPS. They train with its attention
    and loss, in one run with one learning rate schedule. Default: the method at every step."""
    weight: Literal["elbo", "flat"] | None = None
    """Normalization of a sequence's loss. elbo: the number of its targets. flat: the number of its
    tokens to decode. Default: the method's own."""
    targets: Literal["all", "next"] | None = None
    """Masked tokens that are learned. all of the input, or the next one only. Default: the
    method's own."""
    noise: Literal["answer", "all"] = "answer"
    """Tokens that are masked and learned. answer, or all: the prompt too, as in the release
    (docs/decisions.md, D-8, noised positions)."""
    precision: PrecisionSetting = "auto"
    """Floating-point format. auto is bf16 on an accelerator and on a CPU with AVX512-BF16 or AMX,
    and fp32 on another CPU. A resumed run keeps its format."""
    data: Path | None = None
    """Data set directory made by `latent-tokens data`. Default: examples are generated before
    training."""
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
    """Number of checkpoints to keep. If the latest is corrupt, training resumes from the previous
    one."""
    track: TrackerName | None = None
    """Experiment tracker that receives every row of metrics.jsonl. Default: none."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """Distributed training. ddp: each rank has a copy of weights, EMA weights and optimizer state.
    fsdp: each rank has a shard."""
    on_nan: Literal["stop", "skip"] = "stop"
    """Action if a loss or gradient is not finite. stop: keep the weights. skip: leave out
    the step."""
    threads: int | None = None
    """Number of CPU threads. On a busy machine a small network is faster on one. Default: all
    cores."""
    compile: bool = False
    """Compile the blocks of the network with torch.compile. The first step takes seconds and, on a
    CPU, a C++ compiler. Not measured on a GPU."""
    seed: int = 0
    """Random seed of initial weights, data, masks and orders."""
    resume: Literal["no", "yes", "auto", "extend"] = "no"
    """Whether to resume the run in --out from its latest checkpoint. yes: it must exist. auto:
    resume it, or start it if it does not exist. extend: resume it with more --steps. A constant
    learning rate continues, a cosine starts again."""
    start: str | Path | None = None
    """Model whose weights are trained on, also with another method: a run directory, model
    directory, bundled model or OWNER/NAME, also a language model of transformers. Default: random
    weights."""
    mask: int | str | None = None
    """MASK of a model of transformers. The id or the text of a reserved token, or new, which adds
    a row to its embeddings. Default: new."""
    lora: int | None = None
    """Rank of a LoRA adapter of a model of transformers. The adapter and the embedding of MASK are
    trained, all other weights stay. It needs peft. Default: all weights are trained."""
    lora_alpha: float | None = None
    """Alpha of the adapter, whose output is scaled by alpha / rank. Default: the rank."""
    lora_targets: str | None = None
    """Layers with an adapter. attention: the projections of attention. all: all linear layers
    except for the head. Or names of modules, such as q_proj,v_proj. Default: attention."""
    freeze_embeddings: bool = False
    """Freeze embeddings and head of a model of transformers, except for the embedding of MASK. An
    adapter always does."""
    gradient_checkpointing: bool = False
    """Compute the activations of a model of transformers again for the gradient, instead of
    storing them. This takes less memory and more time."""

    def __post_init__(self) -> None:
        for name in ("task", "method"):
            value = getattr(self, name)
            if not isinstance(value, str):
                fix = f"Use fit(config, {name}=...)."
                raise ValueError(f"{name}={type(value).__name__}: must be a name. {fix}")
        super().__post_init__()
        for name, value in DEFAULT_SHAPE.items():
            if self.start is None and getattr(self, name) is None:
                self._set(name, value)
        if self.size is not None:
            _ = SIZES[self.size]  # refuses another name
        for name in ("lr", "clip", "save_minutes"):
            check_positive(name, getattr(self, name))
        check_min("weight_decay", self.weight_decay, 0)
        for name in ("ema", "dropout"):
            check_min(name, getattr(self, name), 0, below=1)
        if self.first is not None and not 0 < self.first_steps < self.steps:
            must = f"must be METHOD:STEPS, with 1 to {self.steps - 1} steps of steps={self.steps}"
            raise ValueError(f"first={self.first}: {must}.")
        if self.lora_alpha is not None:
            check_positive("lora_alpha", self.lora_alpha)
        of_adapter = [f"{name}={getattr(self, name)}" for name in OF_ADAPTER if getattr(self, name)]
        if of_adapter and self.lora is None:
            raise ValueError(f"{of_adapter[0]}: is for an adapter. Add lora=16.")
        fsdp = "parallel=fsdp" if self.parallel == "fsdp" else ""
        for name, other in (
            ("lora", fsdp),
            ("compile", fsdp),
            ("compile", f"dropout={self.dropout}" if self.dropout else ""),
        ):
            if getattr(self, name) and other:
                reason = f"with {other}: is not supported. Leave one of the two out"
                raise ValueError(f"{name}={getattr(self, name)} {reason}.")

    @property
    def first_name(self) -> str:
        """The name of the method of the first steps, empty if it has none."""
        return (self.first or "").rpartition(":")[0]

    @property
    def first_steps(self) -> int:
        """The number of steps of `first`, 0 if it has none."""
        steps = (self.first or "").rpartition(":")[2]
        return int(steps) if steps.isdecimal() else 0

    @property
    def folder(self) -> Path:
        if self.out is not None:
            return self.out
        method = self.method if self.first is None else f"{self.method}-first-{self.first}"
        origin = self.size if self.start is None else f"from-{Path(self.start).name}"
        return Path("runs", f"{self.task}-{method}-{origin}-{self.seed}".replace(":", "."))
