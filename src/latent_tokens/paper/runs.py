"""Running recipes: what is missing is made, trained and measured, once; what was interrupted goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from latent_tokens.bench.machine import fastest_device
from latent_tokens.checkpoints.pretrained import from_pretrained
from latent_tokens.checkpoints.tensor_files import file_sha256, read_tensor_file, tensors_sha256
from latent_tokens.configs import DataConfig
from latent_tokens.data.datasets import make_counted, task_of
from latent_tokens.evaluation.evaluate import evaluate
from latent_tokens.evaluation.results import append_result, check_equal, read_results, same_weights
from latent_tokens.network.transformer import Transformer
from latent_tokens.paper.recipes import Recipe
from latent_tokens.paper.texts import measure_text
from latent_tokens.storage import append_line, read_description, read_lines, source_commit
from latent_tokens.training.locking import LockedError
from latent_tokens.training.loop import fit
from latent_tokens.training.state import saved_step

SITTINGS = "sittings.jsonl"  # in a run folder: the seconds of each stretch that it was trained in

NEEDED = (  # in each row
    "recipe", "model", "task", "metric", "num_samples", "train_seed", "seed", "cell", "problems", "problems_sha256", "data_sha256",
    "weights_sha256", "relative_cost", "paper_cost", "train_seconds", "evaluate_seconds", "made_with",
)  # fmt: skip

Row = dict[str, Any]


def run(
    recipes: Sequence[Recipe], results: Path, *, on_row: Callable[[Row], None] = lambda row: None
) -> list[Row]:
    """The row of every recipe, of which those that are not in `results` are measured and added to it as soon as they are there.

    Ctrl-C saves and ends; the same call goes on. Raises ValueError where a folder holds something else than the recipe says.
    """
    found = measured(results)
    for recipe in recipes:
        if recipe.hash not in found:
            row = measure(recipe)
            found |= measured(results)  # another process may have measured it meanwhile
            if recipe.hash in found:
                continue
            append_result(results, row)
            found[recipe.hash] = row
            on_row(row)
    return [found[recipe.hash] for recipe in recipes]


def measured(results: Path) -> dict[str, Row]:
    """The rows of a results file by the hash of their recipe. Raises ValueError if one was changed, or if two of one recipe differ."""
    found: dict[str, Row] = {}
    for row in read_results(results, NEEDED):
        check_equal(results, found.setdefault(str(row["recipe"]), row), row)
    return found


def measure(recipe: Recipe) -> Row:
    """A recipe's row, its data set made and its model trained where they are not yet: what was measured, and all that it came from."""
    folder = ready_model(recipe)
    if recipe.problems is not None:
        ready(recipe.problems)
    net, begun = from_pretrained(folder).to(fastest_device()), time.perf_counter()
    row = measure_puzzles(net, recipe) if recipe.judge is None else measure_text(net, recipe)
    weights = read_tensor_file(folder / "model.safetensors")
    about, sittings = read_description(folder, "config.json", "run"), read_lines(folder / SITTINGS)
    return {
        **row,
        "recipe": recipe.hash,
        "model": recipe.model,
        "train_seed": recipe.training.seed,
        "cell": asdict(recipe.cell),
        "data_sha256": about.get("data_sha256", {}).get("train"),
        "weights_sha256": tensors_sha256(weights),
        "weights_file_sha256": file_sha256(weights),  # what rows of version 0.1 name weights_sha256
        "trained_with": about["made_with"],
        **({"imported": about["imported"]} if recipe.imported else {}),
        "trained_at": list(dict.fromkeys(sitting.get("commit") for sitting in sittings)),
        "train_seconds": round(sum(sitting["seconds"] for sitting in sittings), 1),
        "evaluate_seconds": round(time.perf_counter() - begun, 1),
    }


def measure_puzzles(net: Transformer, recipe: Recipe) -> Row:
    """The row of problems solved."""
    task, variant = task_of(recipe.data), recipe.variant
    watcher = partial(variant.watcher, task) if variant.watcher else None
    (row,) = evaluate(net, task, recipe.evaluation, adjust=variant.adjust, watcher=watcher)
    return row


def ready_model(recipe: Recipe) -> Path:
    """The folder of a recipe's model, trained to its end. Raises ValueError where one that is to be imported is not there."""
    if not recipe.imported:
        ready(recipe.data)
        return train(recipe)
    folder, name = recipe.training.folder, recipe.training.method
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"{folder}: no model there; this takes a published one: latent-tokens import FILE {folder} --method {name} --tokenizer gpt2"
        )
    return folder


def ready(config: DataConfig) -> None:
    """Makes a data set where it is missing."""
    if (config.folder / "manifest.json").is_file():
        return
    if config.from_file and not Path(str(config.source)).exists():
        raise ValueError(
            f"source={config.source}: no such text; fetch it with python scripts/english.py {config.source}, or put your own there"
        )
    make_counted(config)


def train(recipe: Recipe) -> Path:
    """The run folder of a recipe's model, trained to its end."""
    folder = recipe.training.folder
    if is_trained(recipe):
        return folder
    with timed(folder):
        return fit(replace(recipe.training, resume="auto"))


def is_trained(recipe: Recipe) -> bool:
    """Whether a recipe's model has had its last step."""
    return recipe.imported or saved_step(recipe.training.folder) == recipe.training.steps


@contextmanager
def timed(folder: Path) -> Iterator[None]:
    """Writes down how long the block took and which code it was, however it ends, once there is a run to go on with."""
    begun = time.perf_counter()
    trained = True
    try:
        yield
    except LockedError:
        trained = False
        raise
    finally:
        if trained and (folder / "config.json").is_file():
            append_line(
                folder / SITTINGS, {"seconds": time.perf_counter() - begun, "commit": source_commit()}
            )


def check_together(rows: Sequence[Row], results: Path) -> None:
    """Raises ValueError where two rows of one model differ in its weights, two of one task in its data, or in the problems of one name."""

    def problems(row: Row) -> tuple[Any, ...]:
        return (
            row["task"],
            row["num_samples"],
            row["problems"] or row["seed"],
        )  # those that are made on the spot are a seed's

    for key, what in (
        (itemgetter("model"), "weights_sha256"),
        (itemgetter("task"), "data_sha256"),
        (problems, "problems_sha256"),
    ):
        first: dict[Any, Row] = {}
        for row in rows:
            other = first.setdefault(key(row), row)
            same = same_weights(row, other) if what == "weights_sha256" else row[what] == other[what]
            if not same:
                both = f"rows {other['recipe']} and {row['recipe']} of {row['model']} differ in {what} ({other[what][:12]}, {row[what][:12]})"
                raise ValueError(
                    f"{results}: {both}, so no table can hold both; remove one of them, and it is measured anew"
                )
