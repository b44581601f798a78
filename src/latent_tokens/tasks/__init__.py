"""The tasks by name: their examples, text and scores, with numpy and numba only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

from latent_tokens.checks import Registry, check_choice
from latent_tokens.storage import Json
from latent_tokens.tasks.base import (
    SPLITS,
    Examples,
    Keys,
    Known,
    Language,
    Scores,
    Solvable,
    Task,
    Tokens,
    hash_rows,
    joined,
    split_by_key,
)
from latent_tokens.tasks.countdown.puzzles import ANSWER_LENGTHS_0_1, Countdown
from latent_tokens.tasks.sudoku.boards import PATTERN_9, SIZES, Sudoku
from latent_tokens.tasks.sudoku.puzzles import SudokuPuzzle
from latent_tokens.tasks.text.task import Text, text_described
from latent_tokens.tasks.zebra.puzzles import Zebra

OTHER_NAMES = {"sudoku-gen": "sudoku-9", "sudoku-large": "sudoku-36"}  # the paper's
FIXED = ("name", "box_rows", "box_columns", "num_train", "length")  # fields that make a task what it is
SMALL = 100_000  # training examples of the small siblings

EVERY: tuple[Solvable, ...] = (
    *SIZES,
    PATTERN_9,
    SudokuPuzzle("sudoku-puzzle", 3, 3),
    SudokuPuzzle("sudoku-6-puzzle", 2, 3, num_train=SMALL),
    Zebra("zebra"),
    Zebra("zebra-3", houses=(3,), attributes=(3,), num_train=SMALL, length=96),
    Countdown("countdown", 5),
    Countdown("countdown-3", 3, num_train=SMALL),
    Countdown("countdown-4", 4, num_train=SMALL),
)
BY_NAME = {task.name: task for task in EVERY}
TASKS: Registry[Solvable] = Registry(
    "task", BY_NAME | {paper: BY_NAME[ours] for paper, ours in OTHER_NAMES.items()}
)

__all__ = [
    "SPLITS",
    "TASKS",
    "Countdown",
    "Examples",
    "Keys",
    "Known",
    "Language",
    "Scores",
    "Solvable",
    "Sudoku",
    "SudokuPuzzle",
    "Task",
    "Text",
    "Tokens",
    "Zebra",
    "configured",
    "described",
    "description",
    "form",
    "hash_rows",
    "joined",
    "named",
    "split_by_key",
]


def named(name: str) -> Language:
    """Return the task of a name, or text. Raise ValueError for any other name."""
    check_choice("task", name, (*TASKS, Text.name))
    return Text() if name == Text.name else TASKS[name]


def description(task: Language) -> dict[str, Json]:
    """Return the entries of manifests and config.json from which `described` restores the task."""
    if isinstance(task, Text):
        return dict(task.description())
    names: list[str] = [field.name for field in fields(task)] if is_dataclass(task) else []
    settings = {name: getattr(task, name) for name in names if name not in FIXED}
    return {"name": task.name} | settings


def form(task: Language) -> str:
    """Return the properties that a data set and a model must share. How puzzles are made may differ."""
    properties = {"padding": "none", **description(task)}
    if isinstance(task, Text):
        properties = {"tokenizer": f"{task.tokenizer} ({task.fingerprint})"}
    names = [name for name in ("padding", "numbers", "tokenizer") if name in properties]
    settings = ", ".join(f"{name}={properties[name]}" for name in names)
    return f"{type(task).__name__} of {task.length} positions over {task.vocab_size} tokens, {settings}"


def configured(name: str, settings: Mapping[str, Json]) -> Solvable:
    """Return a task with other settings. Raise ValueError if it lacks one, or a value is out of range.

    Example:
        >>> configured("sudoku-6-puzzle", {"clues": 10}).clues
        10
    """
    task = TASKS[name]
    allowed = [other for other in description(task) if other != "name"]
    for setting, value in settings.items():
        if setting not in allowed:
            raise ValueError(f"{setting}={value}: {name} has no such setting; it has {', '.join(allowed)}")
    values = {
        setting: tuple(value) if isinstance(value, list) else value for setting, value in settings.items()
    }
    return replace(task, **values)  # type: ignore[type-var]


def described(entries: object, folder: Path | None = None) -> Solvable | Text:
    """Return the task of a description. Raise ValueError if this version has no such task."""
    if isinstance(entries, dict) and entries.get("name") == Text.name:
        return text_described(entries, folder)
    name = entries.get("name") if isinstance(entries, dict) else None
    if not isinstance(entries, dict) or not isinstance(name, str) or name not in TASKS:
        raise ValueError(f"{entries}: no task of this version")
    settings = {setting: value for setting, value in entries.items() if setting != "name"}
    task = TASKS[name]
    try:
        if isinstance(task, Countdown) and "answer_length" not in settings:  # of version 0.1
            settings["answer_length"] = ANSWER_LENGTHS_0_1[settings.get("numbers", task.numbers)]
        return configured(name, settings)
    except (KeyError, TypeError):
        raise ValueError(f"{entries}: no task of this version") from None
