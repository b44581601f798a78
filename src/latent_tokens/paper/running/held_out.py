"""Rows of text: generated texts, and the exact likelihood of held-out sequences."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray

from latent_tokens.core.cost import tokens_processed
from latent_tokens.core.decoding import Decoding
from latent_tokens.core.policies import LatentPolicy
from latent_tokens.data.loading import fingerprint
from latent_tokens.evaluation.evaluate import checked_decodings, paper_cost
from latent_tokens.evaluation.intervals import half_interval, half_interval_of_ratio
from latent_tokens.evaluation.likelihood import nats_along_orders
from latent_tokens.evaluation.problems import device_of, policy_for, read_split
from latent_tokens.evaluation.rows import HeldOut, Row, RowCosts, joined, trained_run
from latent_tokens.evaluation.settings import row_settings, shown_latents
from latent_tokens.evaluation.text import evaluate_text, find_judge
from latent_tokens.network.transformer import Transformer
from latent_tokens.paper.design.recipes import Recipe
from latent_tokens.progress import counting
from latent_tokens.storage import provenance, read_description
from latent_tokens.tasks import Examples, Language, Text, described
from latent_tokens.tasks.base import evenly


def text_of_model(folder: Path) -> Text:
    """Return the task of a model of text. Raise ValueError if it is of another task."""
    task = described(read_description(folder, "config.json", "model").get("task"), folder)
    if not isinstance(task, Text):
        raise ValueError(f"{folder}: is a model of {task.name}, not of text")
    return task


def held_out_examples(task: Language, recipe: Recipe) -> Examples:
    """Return the held-out sequences of a recipe, evenly spaced in the test split of its data set."""
    assert recipe.evaluation.data is not None
    test = read_split(task, recipe.evaluation.data, "test")
    return test.take(evenly(len(test.tokens), recipe.num_held_out))


def measure_held_out(
    net: Transformer, task: Text, recipe: Recipe, latent_policy: LatentPolicy
) -> tuple[HeldOut, Examples]:
    """Return the nats of held-out sequences along one order, the same for every n, and the sequences."""
    examples = held_out_examples(task, recipe)
    with counting("held-out likelihood", len(examples.tokens)) as report:
        nats = nats_along_orders(
            net,
            examples,
            order=recipe.evaluation.order,
            latents=recipe.cell.latents,
            seed=recipe.training.seed,
            report=report,
            latent_policy=latent_policy,
        )
    return entries_of(examples, nats[0], recipe), examples


def entries_of(examples: Examples, nats: NDArray[np.float64], recipe: Recipe) -> HeldOut:
    """Return the entries of a row on its held-out sequences, with the nats of each (N)."""
    assert recipe.evaluation.data is not None
    return {
        "problems": recipe.evaluation.data.name,
        "problems_sha256": fingerprint(examples),
        "held_out_nats": nats.round(4).tolist(),
        "held_out_tokens": int(examples.lengths.sum()),
    }


def measure_text(net: Transformer, recipe: Recipe) -> Row:
    """Return the row of generated texts, and of the nats of held-out sequences along one random order.

    Raise ValueError if the model is not of text, or the evaluator model is missing.
    """
    data = recipe.evaluation.data
    task = text_of_model(recipe.training.folder)
    validation = None if data is None else read_split(task, data, "validation")
    (row,) = evaluate_text(
        net,
        task,
        recipe.evaluation,
        find_judge(str(recipe.judge), task, validation, device_of(net)),
    )
    entries: HeldOut = {"problems": None, "problems_sha256": None}
    if data is not None and recipe.num_held_out:
        policy = policy_for(net, task, recipe.evaluation)
        entries, _ = measure_held_out(net, task, recipe, policy)
    return {**row, **entries}


def measure_likelihood(net: Transformer, recipe: Recipe) -> Row:
    """Return the row of held-out nats alone: no text is generated."""
    task = text_of_model(recipe.training.folder)
    (decoding,) = checked_decodings(net, task, recipe.evaluation)
    decoding = replace(decoding, latent_policy=policy_for(net, task, recipe.evaluation))
    begun = time.perf_counter()
    entries, examples = measure_held_out(net, task, recipe, decoding.latent_policy)
    return likelihood_row(net, task, recipe, decoding, examples, entries, time.perf_counter() - begun)


def likelihood_row(
    net: Transformer,
    task: Language,
    recipe: Recipe,
    decoding: Decoding,
    examples: Examples,
    entries: HeldOut,
    seconds: float,
) -> Row:
    """Return the row of held-out nats.

    Args:
        net: the model.
        task: its task.
        recipe: the recipe of the row.
        decoding: the settings that the sequences were scored with.
        examples: the held-out sequences.
        entries: their nats.
        seconds: the time that they took.
    """
    costs = costs_of(net, decoding, examples, recipe, seconds)
    lengths = examples.lengths.tolist()
    mean = sum(entries["held_out_nats"]) / sum(lengths)
    half = half_interval_of_ratio(entries["held_out_nats"], lengths)
    return joined(
        row_settings(net.method, task, recipe.evaluation, decoding),
        {
            "metric": "nats_per_token",
            "nats_per_token": round(mean, 4),
            "ci95": [round(mean - half, 4), round(mean + half, 4)],
            "num_samples": len(lengths),
        },
        costs,
        {},
        entries,
        {"precision": "fp32", "made_with": provenance()},
        trained_run(net),
    )


def costs_of(
    net: Transformer, decoding: Decoding, examples: Examples, recipe: Recipe, seconds: float
) -> RowCosts:
    """Return the cost of scoring one token per step, as decoding with k = 1 counts it."""
    n = net.method.default_latents if decoding.latents is None else decoding.latents
    lengths = examples.lengths.tolist()
    known = examples.known.sum(1).tolist()
    processed = 0
    most = 0
    for length, given in zip(lengths, known, strict=True):
        processed += tokens_processed(length, given, 1, n)
        most += length * (length - given)
    return RowCosts(
        processed=processed / len(lengths),
        relative_cost=round(processed / most, 4),
        paper_cost=paper_cost(max(lengths), 1, shown_latents(net.method, decoding)),
        forward_passes=max(length - given for length, given in zip(lengths, known, strict=True)),
        seconds=round(seconds, 3),
        samples_per_second=round(len(lengths) / seconds, 2),
        seed=recipe.evaluation.seed,
        temperature=1.0,
        top_p=1.0,
        refresh=False,
        latent_policy=getattr(decoding.latent_policy, "__name__", "custom"),
        device=str(device_of(net)),
        threads=torch.get_num_threads(),
    )


def held_out(row: Row) -> float | None:
    """Return the nats per token of held-out text, or None."""
    return sum(row["held_out_nats"]) / row["held_out_tokens"] if "held_out_nats" in row else None


def nats_above(row: Row, first: Row) -> tuple[float, float] | None:
    """Return the nats per token that `row` is above `first`, and half of the 95% interval over sequences.

    None: a row has no held-out nats.
    """
    if "held_out_nats" not in row or "held_out_nats" not in first:
        return None
    count = len(row["held_out_nats"])
    apart = [
        (now - before) * count / row["held_out_tokens"]
        for before, now in zip(first["held_out_nats"], row["held_out_nats"], strict=True)
    ]
    return fmean(apart), half_interval(apart) if count > 1 else math.inf
