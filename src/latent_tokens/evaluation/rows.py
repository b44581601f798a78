"""Rows: one result each, with what it was measured on and where its model is from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

from latent_tokens.storage import append_line, read_description, read_lines, short_hash

if TYPE_CHECKING:
    from latent_tokens.core.denoiser import Denoiser


class Row(TypedDict, total=False):
    """A result: one model in one setting. docs/formats.md describes the keys."""

    # The settings that it was decoded with.
    task: str
    method: str
    order: str
    latents: int | str  # n, "all" or the name of a rule
    candidates: int | str  # k, "all" or the name of a rule
    tokens_per_step: int | str  # if it is not 1; a partition by its name
    threshold: float  # with these, predictions decide how many tokens a step decodes
    entropy_bound: float
    factor: float
    frechet_bound: float
    select: str  # the name of your own rule of selection
    confidence_noise: float  # scale of the Gumbel noise, if it is not 0
    t_max: float  # the temperature falls from it
    t_min: float  # to this
    drafts: int  # that a pass verifies, if there are any
    remask_below: float
    remask_every: int
    remask: str  # the name of your own rule
    extra_passes: int  # that remasking may take
    off_distribution: bool  # true if n leaves out masked tokens that each input had in training
    protocol: str  # that set the candidates and the samples: "paper"

    # The value of the metric is under its own name. A task of another package may have other scores.
    metric: str
    ci95: list[float] | None  # None for a single text
    num_samples: int
    valid: float  # percent of samples that break no rule
    exact: float  # percent of samples that equal the answer
    cells: float  # percent of unknown cells that equal the answer
    clues: float  # percent of clues that hold
    rows: float  # percent of rows that equal the answer
    lenient: float  # percent of samples with true equations and the target
    strict: float  # percent of samples without a fault
    soft_loss: float  # sum over units of 1 - (share of distinct digits)

    # Generated text.
    perplexity: float  # under the evaluator model
    entropy: float  # nats, of the tokens of a text
    entropy_ci95: list[float] | None
    distinct_1: float  # percent of runs of 1 token that are different
    distinct_2: float
    distinct_3: float
    judge: str  # the name of the evaluator model
    judged_tokens: int

    outcomes: str  # one bit per problem, in base64: whether its answer is right

    # The cost, and how the samples were drawn.
    processed: float  # tokens processed per sample
    relative_cost: float  # relative to an input with all masked tokens
    paper_cost: float | None  # the same by the paper's formula; None if it has none
    forward_passes: int  # of the sample that took most
    forward_passes_mean: float  # per sample
    seconds: float  # of decoding; not in rows that are shown for other hardware
    samples_per_second: float
    seed: int
    temperature: float
    top_p: float
    refresh: bool
    latent_policy: str
    device: str
    threads: int
    precision: str
    made_with: dict[str, str | None]  # versions of the packages, and the commit

    # The problems, or the held-out text whose likelihood is measured.
    problems: str | None  # the name of the data set; None: generated, or no text
    problems_sha256: str | None
    nats_per_token: float  # of held-out text
    held_out_nats: list[float]  # of each sequence
    held_out_tokens: int

    # The training run of the model, by its config.json.
    run: str  # the name of its directory
    method_name: str  # as it was trained: `method` also names what was changed
    size: str  # of the network, by name
    length: int  # positions of a sequence
    train_seed: int
    train_steps: int

    # The recipe of a row of the paper, its data and its model.
    recipe: str  # hash
    model: str
    cell: dict[str, object]  # the entries of `paper.experiments.Cell`
    data_sha256: str | None  # of the training examples
    weights_sha256: str
    trained_with: dict[str, str | None]
    trained_at: list[str | None]  # commits
    imported: dict[str, object]
    train_seconds: float
    evaluate_seconds: float

    units: int  # 2: every share is in percent
    row_sha256: str


KEYS: Final = {"size": "size", "train_seed": "seed", "train_steps": "steps"}
"""Keys of a row, and the settings of `TrainConfig` that they store."""

IF_SET = (
    "confidence_noise",
    "t_max",
    "t_min",
    "drafts",
    "remask_below",
    "remask_every",
    "remask",
    "extra_passes",
)
"""Keys of settings of a `Decoding` that a row has if they are not the default."""

SHARES = (
    "valid", "exact", "cells", "clues", "rows", "lenient", "strict", "distinct_1", "distinct_2", "distinct_3",
)  # fmt: skip
"""Keys of shares, which rows have in percent."""

METRICS_OF_TEXT = ("perplexity", "nats_per_token")
"""The metrics of text, which are no shares."""

SETTINGS_AND_COSTS = Row.__annotations__.keys() - {*SHARES, "soft_loss"}
"""Keys that no score of a task may have."""

HASH: Final = "row_sha256"
ROW_HASH_DIGITS = 16  # of the hash
TIMES = {"seconds", "train_seconds", "evaluate_seconds", "samples_per_second"}
NOT_MEASURED = {
    *TIMES,
    "outcomes",
    "made_with",
    "trained_with",
    "trained_at",
    "device",
    "threads",
    HASH,
}


def trained_run(net: Denoiser) -> Row:
    """Return the training run of a model, by the directory that it was read from. Without one it is empty.

    Its steps are those before the last validation, whose weights the directory may have.

    Raises:
        ValueError: config.json is missing or corrupt, or metrics.jsonl is corrupt.
    """
    # A network of another package has no such attribute
    folder: Path | None = getattr(net, "folder", None)
    if folder is None:
        return {}
    description = read_description(folder, "config.json", "model")
    described = described_run(folder, description)

    # Of a run that was stopped, or is training, config.json has the steps that are planned.
    steps = [
        row["step"] for row in read_lines(folder / "metrics.jsonl") if "validation_loss" in row
    ]
    if steps and "train_steps" in described:
        described["train_steps"] = min(described["train_steps"], steps[-1])
    elif "trained_steps" in description:
        described["train_steps"] = description["trained_steps"]
    return described


def described_run(folder: Path, description: Mapping[str, Any]) -> Row:
    """Return the training run of a directory by its config.json. An imported model has no settings."""
    training = entries(description, "training")
    values = {"run": folder.absolute().name, "method_name": description.get("name")}
    values |= {key: training.get(name) for key, name in KEYS.items()}
    values["length"] = entries(description, "model").get("max_length")
    return cast(Row, {key: value for key, value in values.items() if value is not None})


def entries(description: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an object of a config.json by its name. If it is missing or not an object, it is empty."""
    value = description.get(name)
    return value if isinstance(value, dict) else {}


def percent(share: float) -> float:
    """Return a share as rows have it: in percent, rounded to two digits."""
    return round(100 * round(share, 4), 2)


def labeled(latents: int | str, is_off_distribution: bool) -> str:
    """Return n as people read it: off-distribution ones are labeled."""
    return f"{latents} (off-distribution)" if is_off_distribution else str(latents)


def bounds_of(interval: Sequence[float] | None, digits: int = 1) -> str:
    """Return an interval as people read it. It is empty without one."""
    return "" if interval is None else f"{interval[0]:.{digits}f} - {interval[1]:.{digits}f}"


def speed_in_words(per_second: float) -> str:
    """Return a speed as people read it: three digits, and no exponent."""
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def value_of(row: Row, name: str) -> float:
    """Return the value of a metric."""
    return cast(Mapping[str, float], row)[name]


def metric_of(row: Row) -> float:
    """Return the value of the row's own metric."""
    return value_of(row, row["metric"])


def judged_by(row: Row) -> str:
    """Return the evaluator model of a row in words, empty if a verifier scored it."""
    return f", evaluator {row['judge']}" if "judge" in row else ""


def row_hash(row: Mapping[str, object]) -> str:
    """Return the hash of a row as JSON has it, without the entry of the hash itself."""
    content = json.loads(json.dumps({name: value for name, value in row.items() if name != HASH}))
    return short_hash(json.dumps(content, sort_keys=True).encode(), ROW_HASH_DIGITS)


def with_hash(row: Row) -> Row:
    """Return a row with the hash of its content."""
    return {**row, HASH: row_hash(row)}


def append_result(path: Path, row: Row) -> None:
    """Append one row with its hash.

    Raises:
        OSError: the file cannot be written. The message names it.
    """
    append_line(path, with_hash(row))


def read_results(path: Path, needed: Sequence[str] = ()) -> list[Row]:
    """Return the rows of a results file. A missing file has no rows.

    Args:
        path: a .jsonl file.
        needed: keys that each row must have.

    Raises:
        ValueError: a row was changed after it was written, or a key is missing. The message names
            the first.
    """
    rows = read_lines(path)
    for number, row in enumerate(rows, start=1):
        missing = [name for name in needed if name not in row]
        problem = f"has no {', '.join(missing)}" if missing else ""
        if HASH in row and row[HASH] != row_hash(row):
            problem = "was changed after it was measured"
        if problem:
            fix = "Remove the row, and it is measured again"
            raise ValueError(f"{path}, row {number}: {problem}. {fix}")
    return [cast(Row, row) for row in rows]


def check_equal(path: Path, first: Row, second: Row) -> None:
    """Check that two rows of one recipe agree. Times, versions and hashes of the row may differ.

    Raises:
        ValueError: they differ in a measured value.
    """
    before: Mapping[str, object] = first
    after: Mapping[str, object] = second
    for name in before.keys() & after.keys() - NOT_MEASURED:
        if before[name] != after[name]:
            values = f"{str(before[name])[:40]} and {str(after[name])[:40]}"
            raise ValueError(
                f"{path}: two rows of recipe {first['recipe']} differ in {name} ({values})."
                " Remove the one that is wrong"
            )
