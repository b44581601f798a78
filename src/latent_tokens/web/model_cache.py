"""The served models: described at the start, loaded on first use, and cached."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

from safetensors import SafetensorError

from latent_tokens.checkpoints.directory import from_pretrained
from latent_tokens.checkpoints.files import find, shapes_of, shipped_names
from latent_tokens.checkpoints.stored_methods import method_from
from latent_tokens.checks import first_line
from latent_tokens.configs import DEFAULT_CANDIDATES
from latent_tokens.core.method import Method, name_of
from latent_tokens.data.loading import as_tensors
from latent_tokens.storage import read_description
from latent_tokens.tasks import Examples, Language, Solvable
from latent_tokens.trace.boards import COMPARISONS, ExampleSet, chosen, examples, measured, measured_for, view
from latent_tokens.trace.record import LoadedModel, has_free_latents, solvable
from latent_tokens.web.payloads import Example, ModelEntry

MAX_MODELS = 4
MAX_NAME = 100  # characters of a wrong name


class UnknownModelError(ValueError):
    """There is no model of that name."""


class ModelCache:
    """Models by name: run directories and bundled models, the `most` latest of them in memory.

    Args:
        names: run directories and names of bundled models.
        task_of: returns the task of the model in a directory.
        most: number of models in memory.

    Raises:
        ValueError: a directory has no complete model, or its task has no puzzles.
    """

    def __init__(
        self, names: Sequence[str], task_of: Callable[[Path], Language], most: int = MAX_MODELS
    ) -> None:
        self.most = most
        self.folders = {name: find(name) for name in names}
        self.tasks = {name: solvable(name, task_of(folder)) for name, folder in self.folders.items()}
        entries = [checked_entry(name, self.folders[name], task) for name, task in self.tasks.items()]
        self.entries = sorted(entries, key=lambda entry: entry["in_page"] and not entry["dial"])
        self.loaded: OrderedDict[str, LoadedModel] = OrderedDict()
        self.lock = Lock()

    def task(self, name: str) -> Solvable:
        """Return the task of a model. Raise UnknownModelError if there is no model of that name."""
        if name not in self.tasks:
            raise UnknownModelError(f"model={name[:MAX_NAME]}: must be one of {', '.join(self.tasks)}")
        return self.tasks[name]

    def model(self, name: str) -> LoadedModel:
        """Return a model, loaded if necessary in place of the least recently used one.

        Raise as `task` does.
        """
        self.task(name)
        with self.lock:
            if name not in self.loaded:
                self.loaded[name] = LoadedModel(name, from_pretrained(self.folders[name]), self.tasks[name])
            self.loaded.move_to_end(name)
            if len(self.loaded) > self.most:
                self.loaded.popitem(last=False)
            return self.loaded[name]


def checked_entry(name: str, folder: Path, task: Solvable) -> ModelEntry:
    """Return the entry of a model in /api/models. Raise ValueError if the directory has no complete model."""
    try:
        return model_entry(name, folder, task)
    except (OSError, SafetensorError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"run={name}: has no complete model ({first_line(error)}). "
            "Resume its training (--resume auto), or leave it out."
        ) from None


def model_entry(name: str, folder: Path, task: Solvable) -> ModelEntry:
    """Return the entry of a model without loading its weights.

    Raise the errors of missing and corrupt files.
    """
    method = method_from(read_description(folder, "config.json", "model")["method"])
    weights = folder / "model.safetensors"
    puzzles = [puzzle for puzzle in examples(task) if accepts(method, task.encode(puzzle))]
    board = view(task, task.encode(puzzles[0]))
    record = measured_for(task, weights)
    task_record = measured().get(task.name)
    return {
        "name": name,
        "task": task.name,
        "kind": board.kind,
        "method": name_of(method),
        "parameters": sum(math.prod(shape) for shape in shapes_of(weights).values()),
        "dial": has_free_latents(method),
        "side": board.columns if board.box else None,
        "box": None if board.box is None else list(board.box),
        "left_to_right": method.is_left_to_right,
        "continues_prefix": method.readout == "shifted",
        "candidates": DEFAULT_CANDIDATES if task_record is None else task_record["candidates"],
        "in_page": name in shipped_names(),
        "examples": [example_entry(puzzle, record) for puzzle in puzzles],
    }


def example_entry(puzzle: str, record: ExampleSet | None) -> Example:
    """Return a puzzle with its label, and with its caption if it was selected by decoding with this model."""
    if set(puzzle) == {"."}:
        return {"puzzle": puzzle, "label": "empty board", "caption": ""}
    if record is not None:
        for example in record["examples"]:
            if example["puzzle"] == puzzle:
                kind = example["kind"]
                return {"puzzle": puzzle, "label": COMPARISONS[kind], "caption": chosen(kind, record)}
    return {"puzzle": puzzle, "label": "", "caption": ""}


def accepts(method: Method, problem: Examples) -> bool:
    """Return whether a method supports the given tokens. A shifted readout only continues a prefix."""
    try:
        method.check_known(as_tensors(problem)[1])
    except ValueError:
        return False
    return True
