"""Evaluation: decode problems, score the samples, measure the cost. One row per number of latent tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from copy import deepcopy
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import nn

from latent_tokens import processes
from latent_tokens.checkpoints.directory import check_fits, from_pretrained
from latent_tokens.checks import changed
from latent_tokens.configs import SWEPT, EvalConfig
from latent_tokens.core.cost import relative_cost
from latent_tokens.core.decoding import Decoding, blocks_of, check_decoding
from latent_tokens.core.denoiser import unwrap
from latent_tokens.core.method import Method
from latent_tokens.core.policies import nearest
from latent_tokens.core.selection import FixedCount
from latent_tokens.data.loading import fingerprint
from latent_tokens.evaluation.intervals import wilson
from latent_tokens.evaluation.problems import (
    batches,
    decode_batch,
    device_of,
    find_problems,
    policy_for,
)
from latent_tokens.evaluation.rows import SHARES, Row, percent, trained_run
from latent_tokens.evaluation.settings import (
    NONE,
    check_policy,
    decoding_for,
    label,
    name_of_function,
    row_settings,
    shown_candidates,
    shown_latents,
    split_functions,
    with_protocol,
)
from latent_tokens.network.check import check_once
from latent_tokens.network.kernels import warn_if_slow
from latent_tokens.network.transformer import Transformer
from latent_tokens.progress import progress
from latent_tokens.storage import provenance
from latent_tokens.tasks import TASKS, Examples, Language, Task, task_or_named
from latent_tokens.tasks.base import scores_of
from latent_tokens.tasks.examples import Tokens


def evaluate_in_parallel(
    model: Path,
    task: str,
    configs: Sequence[EvalConfig],
    num_processes: int,
    *,
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Return the rows of all configs in their order. Each row is measured by a process of one thread.

    Samples do not depend on the number of processes. The seconds of a row are measured while other
    rows are.

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
        replace(config, threads=1, **{name: getattr(sampling, name) for name in SWEPT})
        for config in configs
        for sampling in config.samplings
    ]
    rows: list[Row] = []
    workers = Parallel(
        n_jobs=num_processes, return_as="generator", pre_dispatch=num_processes, batch_size=1
    )
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


Adjust = Callable[[Transformer, Any, Decoding], Decoding]


def evaluate(
    net: Transformer | nn.Module,
    task: Task | str,
    config: EvalConfig | None = None,
    *,
    adjust: Adjust | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
    **settings: Any,
) -> list[Row]:
    """Return the rows of results.jsonl, one per number of latent tokens.

    Percentages are of samples, and seconds of decoding only. `processed` is tokens processed per
    sample, `relative_cost` relative to an input with all masked tokens at every step, and
    `paper_cost` the same by the paper's formula (D-21, relative cost). docs/formats.md lists all
    keys.

    Args:
        net: the model, also in a wrapper. It is left in eval mode.
        task: the task that it learned, or its name.
        config: the settings. None is `EvalConfig()`.
        adjust: changes the decoding of each row last.
        on_row: receives each row as soon as it is measured.
        **settings: fields of `EvalConfig` that replace those of `config` (`latents=(0, 4)`), or your
            own functions for fields of `Decoding` (`confidence=mine`, `select=mine`), which rows name.

    Raises:
        ValueError: the net is not of the task, its method cannot decode so, or it does not suit the
            protocol.

    Example:
        >>> len(evaluate(net, "sudoku-6", latents=(0, 4), num_samples=2))
        2
    """
    # Check the request before anything is computed.
    net = cast(Transformer, unwrap(net))
    task = task_or_named(task)
    named, functions = split_functions(settings)
    config = changed(EvalConfig() if config is None else config, named)
    protocol = config.protocol
    config = with_protocol(net, task, config)
    decodings = checked_decodings(net, task, config, functions)
    problems = find_problems(task, config)
    of_problems: Row = {
        "problems": config.data.name if config.data else None,
        "problems_sha256": fingerprint(problems),
    }
    if protocol is not None:
        of_problems["protocol"] = protocol
    score = partial(scored, task, problems)
    return measure(
        net, task, config, decodings, problems, score, of_problems, adjust=adjust, on_row=on_row
    )


def measure(
    net: Transformer,
    task: Language,
    config: EvalConfig,
    decodings: Sequence[Decoding],
    problems: Examples,
    score: Callable[[Tokens], Row | None],
    of_problems: Row,
    *,
    adjust: Adjust | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Return one row per decoding: a sample of each problem, and its cost.

    `score` returns the metrics of all samples, or None on a rank that has no row. `of_problems` are
    the entries on the problems. `adjust` and `on_row` are as for `evaluate`.
    """
    net.eval()
    model = deepcopy(net).bfloat16() if config.precision == "bf16" else net
    warn_if_slow(config.precision, device_of(net))
    rows: list[Row] = []
    with processes.limit_threads(config.threads):
        policy = policy_for(model, task, config)
        for checked in decodings:
            own = checked.latent_policy is not nearest
            decoding = checked if own else replace(checked, latent_policy=policy)
            if adjust is not None:
                decoding = adjust(model, task, decoding)
            samples, costs = answer(model, problems, config, decoding)
            scores = score(samples)
            if scores is None:
                continue
            row: Row = {
                **row_settings(net.method, task, config, decoding),
                **scores,
                **costs,
                **of_problems,
                "precision": config.precision,
                "made_with": provenance(),
                "units": 2,
                **trained_run(net),
            }
            rows.append(row)
            if processes.is_main():
                on_row(row)
    return rows


def checked_decodings(
    net: Transformer, task: Language, config: EvalConfig, functions: Mapping[str, Any] = NONE
) -> list[Decoding]:
    """Return the decoding of each row. `functions` are as for `decoding_for`.

    Raises:
        ValueError: the net is not of the task, or its method cannot decode so.
    """
    check_fits(net, task)
    check_policy(net.method, config, config.latents or ())
    check_once(net, net.method, task.length)
    decodings = [
        decoding_for(net.method, task, sampling, functions) for sampling in config.samplings
    ]
    for decoding in decodings:
        check_decoding(net.method, decoding)
    return decodings


def scored(task: Task, problems: Examples, samples: Tokens) -> Row:
    """Return the metrics of the samples of some problems."""
    means = {
        name: float(values.mean()) for name, values in scores_of(task, samples, problems).items()
    }
    share = means[task.metric]
    scores = {
        name: percent(mean) if name in SHARES else round(mean, 4) for name, mean in means.items()
    }
    row = {
        "metric": task.metric,
        **scores,
        task.metric: round(100 * share, 2),
        "ci95": [round(100 * bound, 2) for bound in wilson(share, len(samples))],
        "num_samples": len(samples),
    }
    return cast(Row, row)


def answer(
    net: Transformer, problems: Examples, config: EvalConfig, decoding: Decoding
) -> tuple[Tokens, Row]:
    """Return a sample for each problem, and the entries of a row on their cost.

    Each rank decodes its shard, and all ranks return all samples.
    """
    device = device_of(net)
    count, length = problems.tokens.shape
    shard = processes.shard_indices(count)

    # Decode this rank's problems. A rank without problems has an empty array.
    samples: list[Tokens] = [np.zeros((0, length), np.uint8)]
    processed = 0
    passes = 0
    most_passes = 0
    most = 0
    seconds = 0.0
    with progress(label(net.method, decoding), len(shard)) as advance:
        for batch in batches(problems, config.batch_size, device, shard):
            decoded = decode_batch(net, batch, decoding, config.seed)
            samples.append(decoded.samples)
            processed += decoded.processed
            passes += int(decoded.generated.passes.sum())
            most_passes = max(most_passes, decoded.generated.forward_passes)
            most += batch.most_tokens
            seconds += decoded.seconds
            num_done = sum(map(len, samples))
            advance(len(decoded.samples), f"{num_done / seconds:.3g} samples/s")

    # Gather samples and costs from all ranks. The seconds are those of the slowest.
    shares = processes.all_gather_object((processed, most, passes, most_passes, seconds))
    all_processed, all_most, all_passes, all_most_passes, all_seconds = zip(*shares, strict=True)
    slowest = max(all_seconds)
    costs = Row(
        processed=sum(all_processed) / count,
        relative_cost=round(sum(all_processed) / sum(all_most), 4),
        paper_cost=paper_cost_of(net.method, decoding, length),
        forward_passes=max(all_most_passes),
        forward_passes_mean=round(sum(all_passes) / count, 2),
        seconds=round(slowest, 3),
        samples_per_second=round(count / slowest, 2),
        seed=config.seed,
        temperature=decoding.temperature,
        top_p=decoding.top_p,
        refresh=decoding.refresh,
        latent_policy=name_of_function(decoding.latent_policy),
        device=str(device),
        threads=torch.get_num_threads(),
    )
    return processes.gather_rows(np.concatenate(samples)), costs


def paper_cost_of(method: Method, decoding: Decoding, length: int) -> float | None:
    """Return `paper_cost`, or None for several tokens per step or blocks, which the formula does not have."""
    if decoding.selection != FixedCount(1) or blocks_of(method, decoding) is not None:
        return None
    return paper_cost(length, shown_candidates(method, decoding), shown_latents(method, decoding))


def paper_cost(length: int, candidates: int | str, latents: int | str) -> float | None:
    """Return `relative_cost` by the paper's formula, to 4 digits; None if n or k is a rule."""
    if any(isinstance(count, str) and count != "all" for count in (candidates, latents)):
        return None
    k, n = (length if isinstance(count, str) else count for count in (candidates, latents))
    return round(relative_cost(length, k, n), 4)
