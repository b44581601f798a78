"""Rows: one result each, with what it was measured on and where its model is from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NotRequired, TypedDict, cast

from latent_tokens.checks import is_number
from latent_tokens.storage import append_line, read_description, read_lines, short_hash

if TYPE_CHECKING:
    from latent_tokens.core.denoiser import Denoiser


KEYS: Final = {"size": "size", "train_seed": "seed", "train_steps": "steps"}
"""Keys of a row, and the settings of `TrainConfig` that they store."""


def trained_run(net: Denoiser) -> TrainedRun:
    """Return the training run of a model, by the directory that it was read from. Without one it is empty.

    Raises:
        ValueError: config.json is missing or corrupt.
    """
    folder: Path | None = getattr(net, "folder", None)  # a network of another package has no such attribute
    return {} if folder is None else described_run(folder, read_description(folder, "config.json", "model"))


def described_run(folder: Path, description: Mapping[str, Any]) -> TrainedRun:
    """Return the training run of a directory by its config.json. An imported model has no settings."""
    training = entries(description, "training")
    values = {"run": folder.absolute().name, "method_name": description.get("name")}
    values |= {key: training.get(name) for key, name in KEYS.items()}
    values["length"] = entries(description, "model").get("max_length")
    return cast(TrainedRun, {key: value for key, value in values.items() if value is not None})


def entries(description: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an object of a config.json by its name. If it is missing or not an object, it is empty."""
    value = description.get(name)
    return value if isinstance(value, dict) else {}


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


HASH: Final = "row_sha256"


FILE_HASH = "weights_file_sha256"


DIGITS = 16  # of the hash


TIMES = {"seconds", "train_seconds", "evaluate_seconds", "samples_per_second"}


NOT_MEASURED = {*TIMES, "made_with", "trained_with", "trained_at", "device", "threads", HASH}


UNITS: Final = "units"


PERCENT = 2  # the value of UNITS in a row whose shares are all in percent


SHARES = (
    "valid",
    "exact",
    "cells",
    "clues",
    "rows",
    "lenient",
    "strict",
    "distinct_1",
    "distinct_2",
    "distinct_3",
    "distinct_share",
)
"""Keys of shares. Until version 0.1 they were fractions of 1, except for the metric of the row."""


def row_hash(row: Mapping[str, object]) -> str:
    """Return the hash of a row as JSON has it, without the entry of the hash itself."""
    content = json.loads(json.dumps({name: value for name, value in row.items() if name != HASH}))
    return short_hash(json.dumps(content, sort_keys=True).encode(), DIGITS)


def with_hash(row: Row) -> Row:
    """Return a row with the hash of its content."""
    return {**row, HASH: row_hash(row)}


def in_percent(row: Row) -> Row:
    """Return a row with every share in percent and `"units": 2`. Such a row is returned as it is.

    The metric of a row is in percent in both units. A hash is computed again.

    Example:
        >>> in_percent({"metric": "valid", "valid": 6.5, "exact": 0.065, "soft_loss": 1.2})
        {'metric': 'valid', 'valid': 6.5, 'exact': 6.5, 'soft_loss': 1.2, 'units': 2}
    """
    if row.get(UNITS) == PERCENT:
        return row
    fractions = [name for name in SHARES if name in row and name != row.get("metric")]
    percents = {name: round(100 * value_of(row, name), 2) for name in fractions}
    converted = cast(Row, {**row, **percents, UNITS: PERCENT})
    return with_hash(converted) if HASH in row else converted


def append_result(path: Path, row: Row) -> None:
    """Append one row with its hash.

    Raises:
        OSError: the file cannot be written. The message names it.
    """
    append_line(path, with_hash(row))


def read_results(path: Path, needed: Sequence[str] = ()) -> list[Row]:
    """Return the rows of a results file with every share in percent. A missing file has no rows.

    Rows of version 0.1 have no hash and are accepted.

    Args:
        path: a .jsonl file.
        needed: keys that each row must have. If "metric" is one, so is the value of that metric.

    Raises:
        ValueError: a row was changed after it was written, or a key is missing. The message names the first.
    """
    rows = read_lines(path)
    for number, row in enumerate(rows, start=1):
        problem = problem_of(row, needed)
        if problem is not None:
            raise ValueError(f"{path}, row {number}: {problem}. Remove the row, and it is measured again")
    return [in_percent(cast(Row, row)) for row in rows]


def problem_of(row: Mapping[str, object], needed: Sequence[str]) -> str | None:
    """Return the problem of a stored row, or None."""
    missing = [name for name in needed if name not in row]
    if missing:
        return f"has no {', '.join(missing)}"
    if "metric" in needed and not is_number(row.get(str(row["metric"]))):
        return f"has no number for its metric, {str(row['metric'])[:40]}"
    fractions = [name for name in SHARES if name in row and not is_number(row[name])]
    if fractions:
        return f"has no number for {fractions[0]}"
    if HASH in row and row[HASH] != row_hash(row):
        return f"was changed after it was measured (its {HASH} is not that of its content)"
    return None


def check_equal(path: Path, first: Row, second: Row) -> None:
    """Check that two rows of one recipe agree. Times, versions and hashes of the row may differ.

    Raises:
        ValueError: they differ in a measured value.
    """
    before: Mapping[str, object] = first
    after: Mapping[str, object] = second
    for name in before.keys() & after.keys() - NOT_MEASURED:
        equal = same_weights(first, second) if name == "weights_sha256" else before[name] == after[name]
        if not equal:
            values = f"{str(before[name])[:40]} and {str(after[name])[:40]}"
            raise ValueError(
                f"{path}: two rows of recipe {first['recipe']} differ in {name} ({values})."
                " Remove the one that is wrong"
            )


def same_weights(first: Row, second: Row) -> bool:
    """Return whether two rows are of the same weights.

    `weights_sha256` is the hash of the file without metadata in rows of version 0.1. Newer rows have that
    hash too, in `weights_file_sha256`.
    """
    if (FILE_HASH in first) == (FILE_HASH in second):
        return first["weights_sha256"] == second["weights_sha256"]
    file_hashes = [row.get(FILE_HASH, row["weights_sha256"]) for row in (first, second)]
    return file_hashes[0] == file_hashes[1]
