"""Evaluation on a CPU by several processes of one thread each, which is faster for a small network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path

from joblib import Parallel, delayed

from latent_tokens.checkpoints.pretrained import from_pretrained
from latent_tokens.configs import EvalConfig
from latent_tokens.evaluation.evaluate import evaluate
from latent_tokens.evaluation.rows import Row
from latent_tokens.progress import progress
from latent_tokens.tasks import TASKS


def evaluate_in_parallel(
    model: Path,
    task: str,
    configs: Sequence[EvalConfig],
    num_processes: int,
    *,
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Return the rows of all configs in their order. Each row is measured by a process of one thread.

    Samples do not depend on the number of processes. The seconds of a row are measured while other rows are.

    Args:
        model: the model directory.
        task: the name of its task.
        configs: the settings.
        num_processes: the number of processes.
        on_row: receives the rows in their order, each when it and those before it are measured.

    Raises:
        ValueError: the model is not of the task, or its method cannot decode so.
    """
    single = [
        replace(
            config, latents=sampling.latents if sampling.latents is None else (sampling.latents,), threads=1
        )
        for config in configs
        for sampling in config.samplings
    ]
    rows: list[Row] = []
    workers = Parallel(n_jobs=num_processes, return_as="generator", pre_dispatch=num_processes, batch_size=1)
    title = f"evaluating {model.name} in {num_processes} processes"
    with workers, progress(title, len(single)) as advance:
        for row in workers(delayed(evaluate_one)(model, task, config) for config in single):
            rows.append(row)
            on_row(row)
            advance(1, f"n={row['latents']} k={row['candidates']}: {row[row['metric']]}%")
    return rows


def evaluate_one(model: Path, task: str, config: EvalConfig) -> Row:
    """Return the one row of a config, without progress bars."""
    with redirect_stderr(StringIO()):
        (row,) = evaluate(from_pretrained(model), TASKS[task], config)
    return row
