"""Run recipes: make data, train and measure what is missing, and resume what was interrupted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Literal

from latent_tokens.checkpoints.files import read_tensor_file, tensors_sha256
from latent_tokens.checkpoints.learned import learned_text
from latent_tokens.data.config import DataConfig
from latent_tokens.data.datasets import make_counted, task_of
from latent_tokens.data.loading import fingerprint
from latent_tokens.devices import fastest_device
from latent_tokens.evaluation.evaluate import evaluate
from latent_tokens.evaluation.intervals import half_interval
from latent_tokens.evaluation.likelihood import nats_along_orders
from latent_tokens.evaluation.problems import device_of, policy_for, read_split
from latent_tokens.evaluation.rows import Row, append_result, check_equal, read_results
from latent_tokens.evaluation.text import find_evaluator
from latent_tokens.hf.directory import from_pretrained
from latent_tokens.network.transformer import Transformer
from latent_tokens.paper.recipes import Recipe
from latent_tokens.progress import counting
from latent_tokens.storage import append_line, kind_of, read_description, read_lines, source_commit
from latent_tokens.tasks.base import evenly
from latent_tokens.training.checkpoint import saved_step
from latent_tokens.training.loop import fit
from latent_tokens.training.run import LockedError


def measure_text(net: Transformer, recipe: Recipe) -> Row:
    """Return the row of generated texts, and of the nats of held-out sequences along one random order.

    The order of a sequence is the same for every n. The sequences are evenly spaced in the test
    split. Raise ValueError if the model is not of text, or the evaluator model is missing.
    """
    config = recipe.evaluation
    task = learned_text(recipe.training.folder)
    validation = None if config.data is None else read_split(task, config.data, "validation")
    evaluator = find_evaluator(str(recipe.evaluator), task, validation, device_of(net))
    (row,) = evaluate(net, task, config, evaluator=evaluator)
    if config.data is None or not recipe.num_held_out:
        return {**row, "problems": None, "problems_sha256": None}

    test = read_split(task, config.data, "test")
    examples = test.take(evenly(len(test.tokens), recipe.num_held_out))
    with counting("held-out likelihood", len(examples.tokens)) as report:
        (nats,) = nats_along_orders(
            net,
            examples,
            order=config.order,
            latents=recipe.cell.latents,
            seed=recipe.training.seed,
            report=report,
            latent_policy=policy_for(net, task, config),
        )
    return {
        **row,
        "problems": config.data.name,
        "problems_sha256": fingerprint(examples),
        "held_out_nats": nats.round(4).tolist(),
        "held_out_tokens": int(examples.lengths.sum()),
    }


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


Hash = Literal["weights_sha256", "data_sha256", "problems_sha256"]

TRAINING_TIMES = "sittings.jsonl"  # in a run directory: the seconds of each part of its training

STORED_KEYS = (  # in each row
    "recipe", "model", "task", "metric", "num_samples", "train_seed", "seed", "cell",
    "problems", "problems_sha256", "data_sha256",
    "weights_sha256", "relative_cost", "paper_cost", "train_seconds", "evaluate_seconds", "made_with",
)  # fmt: skip


def run(
    recipes: Sequence[Recipe], results: Path, *, on_row: Callable[[Row], None] = lambda row: None
) -> list[Row]:
    """Return the row of every recipe. Missing ones are measured and appended to `results` at once.

    Ctrl-C saves a checkpoint, and the same call resumes. Raises ValueError if a directory holds
    something other than the recipe.
    """
    rows = rows_by_recipe(results)
    for recipe in recipes:
        if recipe.hash not in rows:
            row = measure_recipe(recipe)
            rows |= rows_by_recipe(results)  # another process may have measured it meanwhile
            if recipe.hash in rows:
                continue
            append_result(results, row)
            rows[recipe.hash] = row
            on_row(row)
    return [rows[recipe.hash] for recipe in recipes]


def rows_by_recipe(results: Path) -> dict[str, Row]:
    """Return the rows of a results file by the hash of their recipe.

    Raises ValueError if a row was changed, or if two rows of one recipe differ.
    """
    by_hash: dict[str, Row] = {}
    for row in read_results(results, STORED_KEYS):
        check_equal(results, by_hash.setdefault(str(row["recipe"]), row), row)
    return by_hash


def measure_recipe(recipe: Recipe) -> Row:
    """Return a recipe's row, after making its data set and training its model if they are missing."""
    folder = ready_model(recipe)
    if recipe.problems is not None:
        ready(recipe.problems)
    net = from_pretrained(folder).to(fastest_device())
    begun = time.perf_counter()
    if recipe.evaluator:
        row = measure_text(net, recipe)
    else:
        (row,) = evaluate(net, task_of(recipe.data), recipe.evaluation)
    weights = read_tensor_file(folder / "model.safetensors")
    description = read_description(folder, "config.json", "run")
    training_times = read_lines(folder / TRAINING_TIMES)
    imported: Row = {"imported": description["imported"]} if recipe.imported else {}
    return {
        **row,
        "recipe": recipe.hash,
        "model": recipe.model,
        "train_seed": recipe.training.seed,
        "cell": recipe.cell.entries,
        "data_sha256": description.get("data_sha256", {}).get("train"),
        "weights_sha256": tensors_sha256(weights),
        "trained_with": description["made_with"],
        **imported,
        "trained_at": list(dict.fromkeys(entry.get("commit") for entry in training_times)),
        "train_seconds": round(sum(entry["seconds"] for entry in training_times), 1),
        "evaluate_seconds": round(time.perf_counter() - begun, 1),
    }


def ready_model(recipe: Recipe) -> Path:
    """Return the directory of a recipe's trained model.

    Raises ValueError if a model to import is missing.
    """
    if not recipe.imported:
        ready(recipe.data)
        return train_recipe(recipe)
    folder, name = recipe.training.folder, recipe.training.method
    if kind_of(folder) != "model":
        command = f"latent-tokens import FILE {folder} --method {name} --tokenizer gpt2"
        raise ValueError(f"{folder}: is missing. Import the published model: {command}")
    return folder


def ready(config: DataConfig) -> None:
    """Make a data set if it is missing."""
    if kind_of(config.folder) == "data":
        return
    if config.from_file and not Path(str(config.source)).exists():
        fix = f"Create it with python scripts/english.py {config.source}, or put your own there"
        raise ValueError(f"source={config.source}: is missing. {fix}.")
    make_counted(config)


def train_recipe(recipe: Recipe) -> Path:
    """Train a recipe's model to its end, and return its run directory.

    The seconds of each part of its training, and the commit of the code, are appended to a file
    there.
    """
    folder = recipe.training.folder
    if saved_step(folder) == recipe.training.steps:
        return folder
    begun = time.perf_counter()
    is_locked = False
    try:
        return fit(replace(recipe.training, resume="auto"))
    except LockedError:
        is_locked = True
        raise
    finally:
        if not is_locked and kind_of(folder) == "model":
            row = {"seconds": time.perf_counter() - begun, "commit": source_commit()}
            append_line(folder / TRAINING_TIMES, row)


def check_together(rows: Sequence[Row], results: Path) -> None:
    """Check that rows can be in one table.

    Raises ValueError if two rows of one model differ in its weights, two of one task in its data,
    or two of one name in the problems. Text of another tokenizer is a task of its own.
    """
    first: dict[Hashable, Row] = {}
    for row in rows:
        groups: dict[Hash, Hashable] = {
            "weights_sha256": row["model"],
            "data_sha256": (row["task"], row["cell"]["task"]),
            # Problems that are made on the spot are those of a seed.
            "problems_sha256": (row["task"], row["num_samples"], row["problems"] or row["seed"]),
        }
        for what, group in groups.items():
            other = first.setdefault((what, group), row)
            if row[what] != other[what]:
                two = f"rows {other['recipe']} and {row['recipe']} of {row['model']}"
                values = f"{str(other[what])[:12]}, {str(row[what])[:12]}"
                fix = "Remove all rows of one of the two, and they are measured again"
                raise ValueError(f"{results}: {two} differ in {what} ({values}). {fix}.")
