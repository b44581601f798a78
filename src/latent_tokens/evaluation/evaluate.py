"""Evaluation: decode problems, score the samples, measure the cost. One row per setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from copy import deepcopy
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import Any, Unpack, cast

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import nn

from latent_tokens import processes
from latent_tokens.checkpoints.learned import check_fits
from latent_tokens.checks import changed, function_name, refuse
from latent_tokens.configs import SWEPT, EvalConfig
from latent_tokens.core.cost import relative_cost
from latent_tokens.core.decoding import Decoding, blocks_of, check_decoding
from latent_tokens.core.denoiser import unwrap
from latent_tokens.core.method import Method
from latent_tokens.core.selection import FixedCount
from latent_tokens.data.loading import fingerprint
from latent_tokens.devices import device_name, limit_threads, warn_if_slow
from latent_tokens.evaluation.compare import packed_outcomes
from latent_tokens.evaluation.intervals import wilson
from latent_tokens.evaluation.problems import (
    batches,
    decode_batch,
    device_of,
    find_problems,
    policy_for,
    without_prompt,
)
from latent_tokens.evaluation.rows import SETTINGS_AND_COSTS, SHARES, Row, percent, trained_run
from latent_tokens.evaluation.settings import (
    NONE,
    check_policy,
    decoding_for,
    label,
    order_for,
    row_settings,
    shown_candidates,
    shown_latents,
    split_functions,
    with_protocol,
)
from latent_tokens.evaluation.text import DEFAULT_TEXTS, Evaluator, evaluator_of, scores_of_texts
from latent_tokens.keywords import EvalKeywords
from latent_tokens.network.check import check_once
from latent_tokens.network.transformer import Transformer
from latent_tokens.progress import progress
from latent_tokens.storage import provenance
from latent_tokens.tasks import TASKS, Examples, Language, Task, Text, task_or_named
from latent_tokens.tasks.base import scores_of
from latent_tokens.tasks.examples import Tokens

HALF = {torch.bfloat16: "bf16", torch.float16: "fp16"}


def evaluate_in_parallel(
    net: Transformer,
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
        net: the network of a model directory, with its method.
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
    name = type(net).__name__ if net.folder is None else net.folder.name
    title = f"evaluating {name} in {num_processes} processes"
    with workers, progress(title, len(single)) as advance:
        for row in workers(delayed(evaluate_one)(net, task, config) for config in single):
            rows.append(row)
            on_row(row)
            advance(1, f"n={row['latents']} k={row['candidates']}: {row[row['metric']]}%")
    return rows


def evaluate_one(net: Transformer, task: str, config: EvalConfig) -> Row:
    """Return the one row of a config, without progress bars."""
    with redirect_stderr(StringIO()):
        (row,) = evaluate(net, TASKS[task], config)
    return row


def evaluate(
    net: Transformer | nn.Module,
    task: Language | str,
    config: EvalConfig | None = None,
    *,
    evaluator: str | Evaluator | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
    **settings: Unpack[EvalKeywords],
) -> list[Row]:
    """Return the rows of results.jsonl, one per combination of settings.

    Percentages are of samples, and seconds of decoding only. `processed` is tokens processed per
    sample, `relative_cost` relative to an input with all masked tokens at every step, and
    `paper_cost` the same by the paper's formula (D-21, relative cost). Generated text has
    perplexity, entropy (nats) and distinct-1 to 3. docs/formats.md lists all keys.

    Args:
        net: the model, also in a wrapper. It is left in eval mode.
        task: the task that it learned, or its name.
        config: the settings. None is `EvalConfig()`.
        evaluator: the evaluator model of generated text. Rank 0 scores with it and has the rows.
            None: trigrams of `data`.
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
    inner = unwrap(net)
    if not isinstance(inner, nn.Module):
        problem = "must be a torch.nn.Module, to be put in eval mode and on a device"
        fix = "generate(net, METHOD, ...) for another function"
        refuse(f"net={type(inner).__name__}", problem, fix)
    net = cast(Transformer, inner)
    task = task if isinstance(task, Text) else task_or_named(cast("Task | str", task))
    named, functions = split_functions(settings)
    config = changed(EvalConfig() if config is None else config, named)
    of_problems: Row = {} if config.protocol is None else {"protocol": config.protocol}
    config = with_protocol(net, task, config, functions)
    decodings = checked_decodings(net, task, config, functions, evaluator)
    problems, score = problems_and_score(net, task, config, evaluator)
    if not (~problems.known & problems.inside).any():
        refuse(f"{len(problems)} problems of {task.name}", "nothing is left to decode", "others")
    if not isinstance(task, Text):
        name = config.data.name if config.data else None
        of_problems |= {"problems": name, "problems_sha256": fingerprint(problems)}

    # Decode, score and report one row at a time.
    net.eval()
    model = deepcopy(net).bfloat16() if config.precision == "bf16" else net
    halves = (HALF[weight.dtype] for weight in model.parameters() if weight.dtype in HALF)
    precision = next(halves, config.precision)  # of a network that the caller converted
    warn_if_slow(config.precision, device_of(net))
    rows: list[Row] = []
    with limit_threads(config.threads):
        policy = functions.get("latent_policy") or policy_for(model, task, config)
        for checked in decodings:
            decoding = replace(checked, latent_policy=policy)
            samples, costs = answer(model, problems, config, decoding)
            scores = score(samples)
            if scores is None:  # of text, on another rank than 0
                continue
            row: Row = {
                **row_settings(net.method, task, config, decoding, functions),
                **scores,
                **costs,
                **of_problems,
                "precision": precision,
                "made_with": provenance(),
                "units": 2,
                **trained_run(net),
            }
            rows.append(row)
            if processes.is_main():
                on_row(row)
    return rows


def checked_decodings(
    net: Transformer,
    task: Language,
    config: EvalConfig,
    functions: Mapping[str, Any] = NONE,
    evaluator: str | Evaluator | None = None,
) -> list[Decoding]:
    """Return the decoding of each row. `functions` are as for `decoding_for`.

    Raises:
        ValueError: the net is not of the task, its method cannot decode so, or a verifier scores
            the task and there is an evaluator model.
    """
    check_fits(net, task)
    if evaluator is not None and not isinstance(task, Text):
        problem = f"is for generated text, and {task.name} has a verifier"
        raise ValueError(f"evaluator={evaluator}: {problem}. Leave it out.")
    order = order_for(net.method, task, config, functions)
    if order == "left_to_right" and not config.refresh:
        problem = "there is no random order to reshuffle"
        raise ValueError(f"refresh=False with order={order}: {problem}. Leave it out.")
    counts = [functions["latents"]] if "latents" in functions else config.values("latents")
    check_policy(net.method, config, counts)
    check_once(net, net.method, task.length)
    decodings = [
        decoding_for(net.method, task, sampling, functions) for sampling in config.samplings
    ]
    for decoding in decodings:
        check_decoding(net.method, decoding)
    return decodings


def problems_and_score(
    net: Transformer, task: Language, config: EvalConfig, evaluator: str | Evaluator | None
) -> tuple[Examples, Callable[[Tokens], Row | None]]:
    """Return the problems, and a function of all samples that returns their metrics, or None."""
    if not isinstance(task, Text):
        puzzles = find_problems(cast(Task, task), config)
        return puzzles, partial(scored, cast(Task, task), puzzles)
    if evaluator is None or isinstance(evaluator, str):
        evaluator = evaluator_of(evaluator, config, task, device_of(net))
    count = DEFAULT_TEXTS if config.num_samples is None else config.num_samples
    texts = without_prompt(net, task, count, config.seed)
    return texts, partial(scores_of_texts, task, evaluator)


def scored(task: Task, problems: Examples, samples: Tokens) -> Row:
    """Return the metrics of the samples of some problems."""
    values = scores_of(task, samples, problems)
    if names := sorted(values.keys() & SETTINGS_AND_COSTS):
        problem = "rows have another entry of this name. Rename it in score"
        raise ValueError(f"score of {task.name} has {names[0]}: {problem}.")
    means = {name: float(of_samples.mean()) for name, of_samples in values.items()}
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
    if np.isin(values[task.metric], (0, 1)).all():
        row["outcomes"] = packed_outcomes(values[task.metric] == 1)
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
    most_tokens = 0
    seconds = 0.0
    with progress(label(net.method, decoding), len(shard)) as advance:
        for batch in batches(problems, config.batch_size, device, shard):
            decoded = decode_batch(net, batch, decoding, config.seed)
            samples.append(decoded.samples)
            processed += decoded.processed
            passes += int(decoded.generated.passes.sum())
            most_passes = max(most_passes, decoded.generated.forward_passes)
            most_tokens += batch.most_tokens
            seconds += decoded.seconds
            num_done = sum(map(len, samples))
            advance(len(decoded.samples), f"{num_done / seconds:.3g} samples/s")

    # Gather samples and costs from all ranks. The seconds are those of the slowest.
    shares = processes.all_gather_object((processed, most_tokens, passes, most_passes, seconds))
    all_processed, all_most_tokens, all_passes, all_most_passes, all_seconds = zip(
        *shares, strict=True
    )
    slowest = max(all_seconds)
    costs = Row(
        processed=sum(all_processed) / count,
        relative_cost=round(sum(all_processed) / sum(all_most_tokens), 4),
        paper_cost=paper_cost_of(net.method, decoding, length),
        forward_passes=max(all_most_passes),
        forward_passes_mean=round(sum(all_passes) / count, 2),
        seconds=round(slowest, 3),
        samples_per_second=round(count / slowest, 2),
        seed=config.seed,
        temperature=decoding.temperature,
        top_p=decoding.top_p,
        refresh=decoding.refresh,
        latent_policy=function_name(decoding.latent_policy),
        device=device_name(device),
        threads=torch.get_num_threads(),
    )
    return processes.gather_rows(np.concatenate(samples)), costs


def paper_cost_of(method: Method, decoding: Decoding, length: int) -> float | None:
    """Return `relative_cost` by the paper's formula, which has one token per step and no blocks.

    It is None for other decodings, with drafts or remasking, and if n or k follows a rule.
    """
    if decoding.select != FixedCount(1) or blocks_of(method, decoding) is not None:
        return None
    if decoding.drafts or decoding.remask is not None:
        return None
    k = shown_candidates(method, decoding)
    n = shown_latents(method, decoding)
    k = length if k == "all" else k
    n = length if n == "all" else n
    if isinstance(k, str) or isinstance(n, str):
        return None
    return round(relative_cost(length, k, n), 4)
