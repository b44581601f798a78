"""The served models: described at the start, loaded on first use, a few of them kept in memory."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from safetensors import SafetensorError

from latent_tokens.checkpoints.pretrained import find, from_pretrained, method_from, shapes_of
from latent_tokens.checks import first_line
from latent_tokens.configs import DEFAULT_CANDIDATES
from latent_tokens.core.methods import Method, name_of
from latent_tokens.data.tensors import as_tensors
from latent_tokens.storage import read_description
from latent_tokens.tasks import Examples, Solvable
from latent_tokens.trace.boards import COMPARISONS, chosen, examples, measured, measured_for, view
from latent_tokens.trace.record import LoadedModel, has_free_latents, solvable

MOST_KEPT = 4
SHOWN = 100  # signs of a wrong name


class UnknownError(ValueError):
    """There is no model of that name."""


class Shelf:
    """Models by name: run directories and bundled models. `task_of` returns the task of a directory's model.

    Raises ValueError if a directory has no complete model, or if its task has no puzzles.
    """

    def __init__(self, names: Sequence[str], task_of: Callable[[Path], Any], most: int = MOST_KEPT) -> None:
        self.most = most
        self.folders = {name: find(name) for name in names}
        self.tasks = {name: solvable(name, task_of(folder)) for name, folder in self.folders.items()}
        self.described = sorted(
            (described(name, self.folders[name], task) for name, task in self.tasks.items()),
            key=lambda row: not row["dial"],
        )
        self.kept: OrderedDict[str, LoadedModel] = OrderedDict()
        self.lock = Lock()

    def task(self, name: str) -> Solvable:
        """What the model of that name learned. Raises UnknownError where there is none."""
        if name not in self.tasks:
            raise UnknownError(f"model={name[:SHOWN]}: must be one of {', '.join(self.tasks)}")
        return self.tasks[name]

    def model(self, name: str) -> LoadedModel:
        """The model of that name, loaded where it is not there; the one that was not asked for longest makes room. Raises as `task`."""
        self.task(name)
        with self.lock:
            self.kept[name] = self.kept.pop(name) if name in self.kept else self.load(name)
            if len(self.kept) > self.most:
                self.kept.popitem(last=False)
            return self.kept[name]

    def load(self, name: str) -> LoadedModel:
        """The model of that name, read."""
        return LoadedModel(name, from_pretrained(self.folders[name]), self.tasks[name])


def described(name: str, folder: Path, task: Solvable) -> dict[str, Any]:
    """A line of /api/models, for which no weights are loaded. Raises ValueError where the folder holds no whole model."""
    try:
        return describe(name, folder, task)
    except (OSError, SafetensorError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"run={name}: holds no whole model ({first_line(error)}); go on with its training (--resume auto), or leave it out"
        ) from None


def describe(name: str, folder: Path, task: Solvable) -> dict[str, Any]:
    """That line. Raises whatever a file that is missing or damaged raises."""
    method = method_from(read_description(folder, "config.json", "model")["method"])
    weights = folder / "model.safetensors"
    puzzles = [puzzle for puzzle in examples(task) if takes(method, task.encode(puzzle))]
    drawn = view(task, task.encode(puzzles[0]))
    record = measured_for(task, weights)
    return {
        "name": name,
        "task": task.name,
        "kind": drawn.kind,
        "method": name_of(method),
        "parameters": sum(math.prod(shape) for shape in shapes_of(weights).values()),
        "dial": has_free_latents(method),
        "side": drawn.columns if drawn.box else None,
        "box": None if drawn.box is None else list(drawn.box),
        "left_to_right": method.is_left_to_right,
        "continues_prefix": method.readout == "shifted",
        "candidates": measured().get(task.name, {}).get("candidates", DEFAULT_CANDIDATES),
        "examples": [example_of(puzzle, record) for puzzle in puzzles],
    }


def example_of(puzzle: str, record: dict[str, Any] | None) -> dict[str, str]:
    """A puzzle with its label, and its caption if it was selected by decoding with this model."""
    if set(puzzle) == {"."}:
        return {"puzzle": puzzle, "label": "empty board", "caption": ""}
    kinds = {example["puzzle"]: example["kind"] for example in (record or {}).get("examples", [])}
    if record is None or puzzle not in kinds:
        return {"puzzle": puzzle, "label": "", "caption": ""}
    return {"puzzle": puzzle, "label": COMPARISONS[kinds[puzzle]], "caption": chosen(kinds[puzzle], record)}


def takes(method: Method, problem: Examples) -> bool:
    """Whether a method can take what a problem gives: a shifted readout only continues a prefix."""
    try:
        method.check_known(as_tensors(problem)[1])
    except ValueError:
        return False
    return True
