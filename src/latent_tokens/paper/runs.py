"""Running recipes: what is missing is made, trained and measured, once; what was interrupted goes on."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from latent_tokens.configs import DataConfig
from latent_tokens.data import counts_of, load_data, make_data, read_manifest, task_of
from latent_tokens.evaluation import evaluate
from latent_tokens.paper.foresight import foresight
from latent_tokens.paper.recipes import Recipe
from latent_tokens.pretrained import from_pretrained
from latent_tokens.progress import counting
from latent_tokens.state import saved_step
from latent_tokens.storage import append_line, read_description, read_lines
from latent_tokens.tasks import Examples, SudokuPuzzle
from latent_tokens.training import fit

SITTINGS = "sittings.jsonl"  # in a run folder: the seconds of each stretch that it was trained in

Row = dict[str, Any]


def run(recipes: Sequence[Recipe], results: Path, *, on_row: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """The row of every recipe, of which those that are not in `results` are measured and added to it as soon as they are there.

    Ctrl-C saves and ends; the same call goes on. Raises ValueError where a folder holds something else than the recipe says.
    """
    found = measured(results)
    for recipe in recipes:
        if recipe.hash not in found:
            row = measure(recipe)
            append_line(results, row)
            found[recipe.hash] = row
            on_row(row)
    return [found[recipe.hash] for recipe in recipes]


def measured(results: Path) -> dict[str, Row]:
    """The rows of a results file by the hash of their recipe; a later one stands for an earlier one."""
    return {row["recipe"]: row for row in read_lines(results)}


def measure(recipe: Recipe) -> Row:
    """A recipe's row, its data set made and its model trained where they are not yet: what was measured, and all that it came from."""
    manifest = ready(recipe.data)
    folder = train(recipe)
    problems = None if recipe.problems is None else to_infill(recipe.problems, recipe.evaluation.num_samples)
    net, task, begun = from_pretrained(folder), task_of(recipe.data), time.perf_counter()
    adjust = recipe.variant.adjust or (lambda net, task, decoding: decoding)
    (row,) = evaluate(net, task, recipe.evaluation, problems=problems, adjust=partial(adjust, net, task))
    if recipe.variant.watched:
        row["foresight"] = foresight(net, task, recipe.evaluation)
    about = read_description(folder, "config.json", "run")
    return {
        **row,
        "recipe": recipe.hash,
        "model": recipe.model,
        "train_seed": recipe.training.seed,
        "cell": asdict(recipe.cell),
        "data_sha256": manifest["splits"]["train"]["sha256"],
        "weights_sha256": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "trained_with": about["made_with"],
        "train_seconds": round(sum(sitting["seconds"] for sitting in read_lines(folder / SITTINGS)), 1),
        "evaluate_seconds": round(time.perf_counter() - begun, 1),
    }


def ready(config: DataConfig) -> Row:
    """The manifest of a data set, which is made where it is missing."""
    if not (config.folder / "manifest.json").is_file():
        total = None if config.from_file else sum(counts_of(task_of(config), config).values())
        with counting(f"making {config.task}", total) as count:
            make_data(config, count)
    return read_manifest(config.folder)[1]


def train(recipe: Recipe) -> Path:
    """The run folder of a recipe's model, trained to its end."""
    folder = recipe.training.folder
    if is_trained(recipe):
        return folder
    with timed(folder):
        return fit(replace(recipe.training, resume=(folder / "config.json").is_file()))


def is_trained(recipe: Recipe) -> bool:
    """Whether a recipe's model has had its last step."""
    return saved_step(recipe.training.folder) == recipe.training.steps


@contextmanager
def timed(folder: Path) -> Iterator[None]:
    """Writes down how long the block took, however it ends."""
    begun = time.perf_counter()
    try:
        yield
    finally:
        if folder.is_dir():
            append_line(folder / SITTINGS, {"seconds": time.perf_counter() - begun})


def to_infill(config: DataConfig, count: int | None) -> Examples:
    """The first puzzles of a data set's test split, as boards with known cells. Raises ValueError for a task without boards."""
    ready(config)
    task, splits = load_data(config.folder, ("test",))
    if not isinstance(task, SudokuPuzzle):
        raise ValueError(f"problems={task.name}: only Sudoku puzzles can be infilled by a model of boards")
    return task.to_infill(splits["test"].take(slice(count)))


def check_together(rows: Sequence[Row], results: Path) -> None:
    """Raises ValueError where two rows of one model differ in its weights, or two rows of one task in its data."""
    for key, what in (("model", "weights_sha256"), ("task", "data_sha256")):
        first: dict[str, Row] = {}
        for row in rows:
            other = first.setdefault(row[key], row)
            if row[what] != other[what]:
                both = f"rows {other['recipe']} and {row['recipe']} of {row[key]} differ in {what} ({other[what][:12]}, {row[what][:12]})"
                raise ValueError(f"{results}: {both}, so no table can hold both; remove one of them, and it is measured anew")
