"""The tasks by name: their examples, text and scores, with numpy and numba only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import cast

from latent_tokens.checks import LONGEST_LABEL, Registry, check_choice, first_line, one_line
from latent_tokens.plugins import installed, is_dotted, load_plugin
from latent_tokens.storage import Json, json_bytes
from latent_tokens.tasks.base import (
    SPLITS,
    Answerable,
    Keys,
    Language,
    Scores,
    Solvable,
    Task,
    TaskBase,
    check_vocab,
    errors_of,
    hash_rows,
    split_by_key,
)
from latent_tokens.tasks.countdown import Countdown
from latent_tokens.tasks.examples import Examples, Known, Tokens, joined
from latent_tokens.tasks.sudoku.boards import BOARD_SIZES, PATTERN_9, Sudoku
from latent_tokens.tasks.sudoku.puzzles import SudokuPuzzle
from latent_tokens.tasks.text.task import Text, text_described
from latent_tokens.tasks.zebra.compact import CompactZebra
from latent_tokens.tasks.zebra.puzzles import Zebra

OTHER_NAMES = {"sudoku-gen": "sudoku-9", "sudoku-large": "sudoku-36"}  # the paper's
# Fields that make a task what it is
FIXED = (
    *("name", "box_rows", "box_columns", "num_train", "length"),
    *("num_houses", "num_attributes", "max_clues"),
)
OWN_FIXED = ("name", "num_train", "length")
SMALL = 100_000  # training examples of the small siblings

EVERY: tuple[Solvable, ...] = (
    *BOARD_SIZES,
    PATTERN_9,
    SudokuPuzzle("sudoku-puzzle", 3, 3),
    SudokuPuzzle("sudoku-6-puzzle", 2, 3, num_train=SMALL),
    Zebra("zebra"),
    Zebra("zebra-3", houses=(3,), attributes=(3,), num_train=SMALL, length=96),
    CompactZebra("zebra-compact-3", num_houses=3, num_attributes=3, max_clues=9),
    CompactZebra("zebra-compact-4", num_houses=4, num_attributes=4, max_clues=15),
    Countdown("countdown", 5),
    Countdown("countdown-3", 3, num_train=SMALL),
    Countdown("countdown-4", 4, num_train=SMALL),
)
BY_NAME = {task.name: task for task in EVERY}


def refuse_text(name: str) -> None:
    """Raise ValueError for the name of text, which is not an entry of TASKS."""
    if name == Text.name:
        raise ValueError(
            "task=text: its length and tokenizer are those of a data set. Use Text(length=256)."
        )


TASKS: Registry[Solvable] = Registry(
    "task",
    BY_NAME | {paper: BY_NAME[ours] for paper, ours in OTHER_NAMES.items()},
    refuse_text,
    also=("text",),
)


def task_named(name: str) -> Language:
    """Return the task of a name: ours, text, that of an installed package, or module:Name of yours.

    Raise ValueError if there is no such task, or it cannot be imported.
    """
    if is_dotted(name) or name in installed("task"):
        task = load_plugin("task", name)
        task = task() if isinstance(task, type) else task
        if not isinstance(task, Task):
            raise ValueError(f"task={name}: is not a task. Inherit from latent_tokens.TaskBase.")
        check_instance(task)
        return task
    check_choice("task", name, (*TASKS, *installed("task"), Text.name, "module:Name"))
    return Text() if name == Text.name else TASKS[name]


def task_or_named(task: Task | str) -> Task:
    """Return a task, or that of a name. Raise ValueError if there is no such task, or it is a class."""
    if isinstance(task, str):
        return cast(Task, task_named(task))
    check_instance(task)
    return task


def check_instance(task: Language) -> None:
    """Raise ValueError if a task is a class, which has no values of its properties, or lacks one."""
    if isinstance(task, type):
        raise ValueError(f"task={task.__name__}: is a class. Use {task.__name__}().")
    if isinstance(task, TaskBase):
        if not (hasattr(task, "length") and hasattr(task, "vocab_size")):
            raise ValueError(f"task={task.name}: lacks length or vocab. Set it in the class.")
        check_vocab(task)
    try:
        json_bytes(description(task))
    except TypeError as error:
        fix = "Fields must be texts, numbers or tuples of them"
        raise ValueError(f"task={task.name}: {first_line(error)}. {fix}.") from None


def description(task: Language) -> dict[str, Json]:
    """Return the entries of manifests and config.json from which `described` restores the task."""
    if isinstance(task, Text):
        return dict(task.description())
    names: list[str] = [field.name for field in fields(task)] if is_dataclass(task) else []
    is_own = isinstance(task, TaskBase)  # of a user, whose fields may have names of ours
    fixed = OWN_FIXED if is_own else FIXED
    settings = {name: getattr(task, name) for name in names if name not in fixed}
    entries: dict[str, Json] = {"name": task.name}
    if is_own:
        entries["module"] = f"{type(task).__module__}:{type(task).__qualname__}"
    return entries | settings


def differing_settings(task: Language, entries: Mapping[str, Json]) -> dict[str, tuple[Json, Json]]:
    """Return the settings of a task that stored entries of `description` have other values of: both, by name.

    Settings that one of the two lacks are left out, and so is the module of a task of a user.
    """
    own: dict[str, Json] = json.loads(json_bytes(description(task)))
    names = sorted(own.keys() & entries.keys() - {"module"})
    return {name: (own[name], entries[name]) for name in names if own[name] != entries[name]}


def is_described(task: Language, entries: object) -> bool:
    """Return whether a task is that of a description. Its module may have been imported by another name."""
    own = json.loads(json_bytes(description(task)))
    return isinstance(entries, dict) and {**own, "module": None} == {**entries, "module": None}


def signature(task: Language) -> str:
    """Return the properties that a data set and a model must share. How puzzles are made may differ."""
    if isinstance(task, Text):
        settings = f"padding=none, tokenizer={task.tokenizer} ({task.fingerprint})"
    else:
        properties = {"padding": "none", **description(task)}
        names = [name for name in ("padding", "numbers") if name in properties]
        settings = ", ".join(f"{name}={properties[name]}" for name in names)
    return f"{type(task).__name__} of {task.length} positions over {task.vocab_size} tokens, {settings}"


def configured(name: str, settings: Mapping[str, Json]) -> Solvable:
    """Return a task with other settings. Raise ValueError if it lacks one, or a value is out of range.

    Example:
        >>> configured("sudoku-6-puzzle", {"clues": 10}).clues
        10
    """
    task = cast(Solvable, task_named(name))
    allowed = [other for other in description(task) if other not in ("name", "module")]
    values = {}
    for setting, value in settings.items():
        if setting not in allowed:
            fix = f"Use {', '.join(allowed)}" if allowed else "Leave it out"
            raise ValueError(f"{setting}={value}: {name} has no such setting. {fix}.")
        values[setting] = tuple(value) if isinstance(value, list) else value
    return replace(task, **values) if values else task  # type: ignore[type-var]


def described(entries: object, folder: Path | None = None) -> Solvable | Text:
    """Return the task of a description.

    Raise ValueError if it is none of this version, or code of a module, which is not imported.
    """
    settings = dict(entries) if isinstance(entries, dict) else {}
    name = settings.pop("name", None)
    if name == Text.name:
        return text_described(settings, folder)
    if isinstance(name, str) and name in installed("task"):
        return cast(Solvable, task_named(name))
    if "module" in settings:
        module = one_line(str(settings["module"]), LONGEST_LABEL)
        reason = "is code of another module, and opening files imports no code"
        raise ValueError(f"its task {module} {reason}. Add --task {module} where a command has it")
    if not isinstance(name, str) or name not in TASKS:
        raise ValueError(f"{entries}: no task of this version")
    return configured(name, settings)
