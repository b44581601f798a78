"""Rows of text: generated texts, and the exact likelihood of held-out sequences."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from latent_tokens.core.policies import LatentPolicy
from latent_tokens.data.loading import fingerprint
from latent_tokens.evaluation.intervals import half_interval
from latent_tokens.evaluation.likelihood import nats_along_orders
from latent_tokens.evaluation.problems import device_of, policy_for, read_split
from latent_tokens.evaluation.rows import HeldOut, Row
from latent_tokens.evaluation.text import evaluate_text, find_judge
from latent_tokens.network.transformer import Transformer
from latent_tokens.paper.design.recipes import Recipe
from latent_tokens.progress import counting
from latent_tokens.storage import read_description
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
