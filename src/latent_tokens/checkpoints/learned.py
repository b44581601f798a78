"""The task that a model learned, and whether a network and a task suit each other."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from torch import nn

from latent_tokens.network.transformer import Transformer
from latent_tokens.storage import read_description
from latent_tokens.tasks import Language, Solvable, Text, described, differing_settings, task_named

OF_SEQUENCES = ("padding", "numbers", "length", "tokenizer")
"""Settings of our tasks that a model and its task must share. How puzzles are made may differ."""


def check_attributes(net: nn.Module) -> None:
    """Raise ValueError if a network lacks an attribute that evaluation and config.json need."""
    for name in ("method", "vocab_size", "max_length"):
        if getattr(net, name, None) is None:
            raise ValueError(f"net.{name} is None: set it to the {name} of its training")


def check_fits(net: Transformer, task: Language) -> None:
    """Raise ValueError if the net has no method, or another length or vocabulary than the task."""
    check_attributes(net)
    if (net.max_length, net.vocab_size) != (task.length, task.vocab_size):
        learned = f"this model learned sequences of {net.max_length} over {net.vocab_size} tokens"
        sizes = f"{task.length} positions over {task.vocab_size} tokens"
        raise ValueError(f"{task.name} has {sizes}, {learned}. Use a run of {task.name}.")


def learned_task(folder: Path, name: str | None = None) -> Solvable | Text:
    """Return the task that the model of a run directory learned, or the typed one of this name.

    Raise ValueError if it cannot be made from its description, or is not the typed one.
    """
    config = read_description(folder, "config.json", "model")
    if name is not None:
        task = task_named(name)
        check_learned(name, task, folder)
        if not isinstance(task, Solvable | Text):
            fix = "Inherit from latent_tokens.TaskBase."
            raise ValueError(f"task={name}: has no count_solutions. {fix}")
        return task
    if "imported" in config and "task" not in config:
        problem = "was imported without a tokenizer, so it cannot generate text"
        fix = "Import it again with --tokenizer gpt2 or a directory with one."
        raise ValueError(f"{folder}: {problem}. {fix}")
    try:
        return described(config.get("task"), folder)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}. In Python, pass task to load.") from None


def learned_text(folder: Path) -> Text:
    """Return the text that a model learned. Raise ValueError if it learned a puzzle."""
    learned = read_description(folder, "config.json", "model").get("task")
    name = learned.get("name") if isinstance(learned, dict) else None
    if name not in (None, Text.name):
        raise ValueError(f"{folder}: learned {name}, which is not text. Use a text model.")
    return cast(Text, learned_task(folder))


def check_learned(name: str, task: Language, folder: Path) -> None:
    """Raise ValueError if a task is another one than the model's, or differs in a setting.

    `name` is that of the task as it was typed. A model without a description of its task has any.
    """
    learned = read_description(folder, "config.json", "model").get("task")
    if not isinstance(learned, dict):
        return
    differing = differing_settings(task, learned)
    if learned.get("name", task.name) != task.name:
        differing = {"name": (task.name, learned["name"])}
    fix = "Leave it out, or name an instance with this setting, as module:name"
    for setting, (value, other) in differing.items():
        if "module" in learned or setting in ("name", *OF_SEQUENCES):
            problem = f"has {setting}={value}, and the model learned {setting}={other}"
            raise ValueError(f"task={name}: {problem}. {fix}.")
