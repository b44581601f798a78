"""A model with the task that it learned, opened by the names that a user typed."""

from __future__ import annotations

from pathlib import Path

from latent_tokens.checkpoints.pretrained import from_pretrained
from latent_tokens.checkpoints.stored_methods import load_method
from latent_tokens.core.method import Method, name_of
from latent_tokens.network.transformer import Transformer
from latent_tokens.processes import fastest_device
from latent_tokens.storage import read_description
from latent_tokens.tasks import Language, Solvable, Text, described, differing_settings, named

OF_SEQUENCES = ("padding", "numbers", "length", "tokenizer")
"""Settings of our tasks that a model and its task must share. How puzzles are made may differ."""


def model_of(run: str | Path, method: str | None = None, base: str | Path | None = None) -> Transformer:
    """Return the model of a run directory or a bundled model, on the fastest device available.

    Args:
        run: the directory or name.
        method: the typed name of its method. None: that of the model.
        base: the model that a LoRA adapter belongs to. None: the one that it was trained with.

    Raises:
        ValueError: there is no such model, or it has another method.
    """
    return opened(run, method, base).to(fastest_device())


def opened(run: str | Path, method: str | None = None, base: str | Path | None = None) -> Transformer:
    """Return the model of `model_of`, on the CPU. Raise as it does."""
    loaded = None if method is None else load_method(method)
    net = from_pretrained(run, base=base)
    if loaded is not None:
        check_method(str(method), loaded, net.method)
    return net


def check_method(name: str, typed: Method, trained: Method) -> None:
    """Raise ValueError if the typed method, of this name, is not the one that a model was trained with."""
    if typed != trained:
        raise ValueError(f"method={name}: the model has another method, {name_of(trained)}. Leave it out.")


def learned_task(folder: Path, name: str | None = None) -> Solvable | Text:
    """Return the task that the model of a run directory learned.

    Args:
        folder: the directory.
        name: the typed name of the task. None: that of the model.

    Raises:
        ValueError: the task cannot be made from its description, or is another one than the typed one.
    """
    if name is not None:
        task = named(name)
        check_learned(name, task, folder)
        if not isinstance(task, Solvable | Text):
            raise ValueError(f"task={name}: has no count_solutions. Inherit from latent_tokens.TaskBase.")
        return task
    config = read_description(folder, "config.json", "model")
    if "imported" in config and "task" not in config:
        raise ValueError(
            f"{folder}: was imported without a tokenizer, so it cannot generate text. "
            "Import it again with --tokenizer gpt2 or a directory with one."
        )
    try:
        return described(config.get("task"), folder)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}. In Python, pass task to load.") from None


def learned_text(folder: Path) -> Text:
    """Return the text that the model of a run directory learned. Raise ValueError if it learned a puzzle."""
    learned = read_description(folder, "config.json", "model").get("task")
    name = learned.get("name") if isinstance(learned, dict) else None
    if name not in (None, Text.name):
        raise ValueError(f"{folder}: learned {name}, which is not text. Use a text model.")
    task = learned_task(folder)
    assert isinstance(task, Text)
    return task


def check_learned(name: str, task: Language, folder: Path) -> None:
    """Raise ValueError if a task is another one than the model's, or differs in a setting.

    Args:
        name: the name of the task, as it was given.
        task: the task.
        folder: the run directory of the model. Without a task in its description nothing is compared.
    """
    learned = read_description(folder, "config.json", "model").get("task")
    if not isinstance(learned, dict):
        return
    if learned.get("name", task.name) != task.name:
        problem = f"is {task.name}, and the model learned {learned['name']}"
        raise ValueError(f"task={name}: {problem}. Leave it out.")
    is_own = "module" in learned
    for setting, (value, other) in differing_settings(task, learned).items():
        if is_own or setting in OF_SEQUENCES:
            problem = f"has {setting}={value}, and the model learned {setting}={other}"
            fix = "Name an instance with this setting, as module:name." if is_own else "Leave it out."
            raise ValueError(f"task={name}: {problem}. {fix}")
