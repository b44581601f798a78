"""The result row: every key of results.jsonl, its type and its unit.

Shares are in percent, and times in seconds. An interval is two bounds in the unit of its value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NotRequired, TypedDict, cast


class RowSettings(TypedDict):
    """The settings that a row was decoded with.

    `tokens_per_step` is left out if it is 1, `confidence_noise` if it is 0, `off_distribution` if it is
    false, and `protocol` without one.
    """

    task: str
    method: str
    order: str
    latents: int | str  # n, "all" or the name of a rule
    candidates: int | str  # k, "all" or the name of a rule
    tokens_per_step: NotRequired[int | Callable[..., object]]
    confidence_noise: NotRequired[float]  # scale of the Gumbel noise
    off_distribution: NotRequired[bool]  # n leaves out masked tokens that each input had in training
    protocol: NotRequired[str]  # that set the candidates and the samples: "paper"


class Scores(TypedDict, total=False):
    """The metrics of a task, each the mean over samples. A task of another package may have others."""

    valid: float  # percent of samples that break no rule
    exact: float  # percent of samples that equal the answer
    cells: float  # percent of unknown cells that equal the answer
    clues: float  # percent of clues that hold
    rows: float  # percent of rows that equal the answer
    lenient: float  # percent of samples with true equations and the target
    strict: float  # percent of samples without a fault
    soft_loss: float  # sum over units of 1 - (share of distinct digits)


class TextScores(TypedDict, total=False):
    """The metrics of generated texts, and that of held-out text, which is not generated."""

    nats_per_token: float  # of held-out text
    perplexity: float  # under the evaluator model
    entropy: float  # nats, of the tokens of a text
    entropy_ci95: list[float] | None
    distinct_1: float  # percent of runs of 1 token that are different
    distinct_2: float
    distinct_3: float
    judge: str  # the name of the evaluator model
    judged_tokens: int


class Measured(Scores, TextScores):
    """Measurements of the samples. The value of the metric is under the metric's name."""

    metric: str
    ci95: list[float] | None  # None for a single text
    num_samples: int


class RowCosts(TypedDict):
    """The cost of a row, and how its samples were drawn."""

    processed: float  # tokens processed per sample
    relative_cost: float  # relative to an input with all masked tokens
    paper_cost: float | None  # the same by the paper's formula; None if it has none
    forward_passes: int  # of the longest batch
    seconds: NotRequired[float]  # of decoding; not in rows that are shown for other hardware
    samples_per_second: NotRequired[float]
    seed: int
    temperature: float
    top_p: float
    refresh: bool
    latent_policy: str
    device: str
    threads: int


class ForesightRecord(TypedDict):
    """Predictions at latent tokens that are decoded `steps` steps later."""

    steps: int
    hit: int
    seen: int
    hit_right: int
    seen_right: int


class DeadEndRecord(TypedDict):
    """Samples before a step with `clean` clean tokens, and those that lost the last answer in it."""

    clean: int
    alive: int
    died: int
    sure: float  # mean of the largest probability where a token was decoded


class Watched(TypedDict, total=False):
    """The measurements of a watcher."""

    foresight: list[ForesightRecord]
    dead_ends: list[DeadEndRecord]
    distinct_share: float  # percent of the valid boards that differ from all others
    intercalates: float  # 2x2 Latin subsquares of a valid board, mean
    reference_intercalates: float  # the same of boards that the task generates


class Software(TypedDict):
    """The software that measured a row."""

    precision: str
    made_with: dict[str, str | None]  # versions of the packages, and the commit


class Problems(TypedDict, total=False):
    """The problems of a row, or the held-out text whose likelihood is measured."""

    problems: str | None  # the name of the data set; None: generated, or no text
    problems_sha256: str | None


class HeldOut(Problems, total=False):
    """The likelihood of held-out text."""

    held_out_nats: list[float]  # of each sequence
    held_out_tokens: int


class TrainedRun(TypedDict, total=False):
    """The training run of the model, by its config.json. Rows of version 0.1 have `train_seed` at most."""

    run: str  # the name of its directory
    method_name: str  # as it was trained: `method` also names what was changed
    size: str  # of the network, by name
    length: int  # positions of a sequence
    train_seed: int
    train_steps: int


class RowOfRecipe(TypedDict, total=False):
    """The recipe of a row of the paper, its data and its model."""

    recipe: str  # hash
    model: str
    cell: dict[str, object]  # the fields of `paper.cells.Cell`
    data_sha256: str | None  # of the training examples
    weights_sha256: str
    weights_file_sha256: str
    trained_with: dict[str, str | None]
    trained_at: list[str | None]  # commits
    imported: dict[str, object]
    train_seconds: float
    evaluate_seconds: float


class Row(RowSettings, Measured, RowCosts, Watched, Software, HeldOut, TrainedRun, RowOfRecipe):
    """A result: one model in one setting.

    Rows of version 0.1 have no `units` and no `row_sha256`, and their shares are fractions of 1.
    """

    units: NotRequired[int]  # 2: every share is in percent
    row_sha256: NotRequired[str]


def joined(
    settings: RowSettings,
    measured: Measured,
    costs: RowCosts,
    watched: Watched,
    problems: Problems,
    software: Software,
    trained: TrainedRun,
) -> Row:
    """Return the row of these parts, with the keys in their order."""
    return cast(Row, {**settings, **measured, **costs, **watched, **problems, **software, **trained})


def labeled(latents: int | str, is_off_distribution: bool) -> str:
    """Return n as people read it: off-distribution ones are labeled."""
    return f"{latents} (off-distribution)" if is_off_distribution else str(latents)


def with_noise(order: str, noise: float | None) -> str:
    """Return the name of an order with the scale of the noise on its confidence, if there is any."""
    return f"{order}, noise {noise:g}" if noise else order


def value_of(row: Row, name: str) -> float:
    """Return the value of a metric."""
    return cast(Mapping[str, float], row)[name]


def metric_of(row: Row) -> float:
    """Return the value of the row's own metric."""
    return value_of(row, row["metric"])


def judged_by(row: Row) -> str:
    """Return the evaluator model of a row in words, empty if a verifier scored it."""
    return f", evaluator {row['judge']}" if "judge" in row else ""
