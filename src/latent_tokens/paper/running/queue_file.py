"""The file of a queue: entries that models fit, and the order that they give to models."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latent_tokens.checks import check_choice, check_int, is_whole
from latent_tokens.configs import ReproduceConfig
from latent_tokens.core.method import METHODS
from latent_tokens.paper.design.scales import SCALES
from latent_tokens.paper.running.plan import Work

KEYS = ("task", "methods", "seeds", "steps")

Table = dict[str, Any]
"""An entry as TOML has it."""


@dataclass(frozen=True)
class Entry:
    """Some models of a queue: those of a task of the paper with these methods, seeds and steps. None: all."""

    task: str
    methods: tuple[str, ...] | None = None
    seeds: tuple[int, ...] | None = None
    steps: int | None = None

    def fits(self, work: Work) -> bool:
        """Return whether a model is one of the entry."""
        recipe = work.recipes[0]
        return (
            recipe.cell.task == self.task
            and (self.methods is None or recipe.training.method in self.methods)
            and (self.seeds is None or recipe.training.seed in self.seeds)
            and self.steps in (None, recipe.training.steps)
        )


def read_queue(path: Path, config: ReproduceConfig) -> list[Entry]:
    """Return the entries of a queue: a TOML file with a table [[models]] for each.

    Raises:
        ValueError: the file is missing or is not TOML, or an entry has an unknown key, task or method, or a
            value of the wrong type. The message names the file and the entry.

    Example:
        [[models]]
        task = "sudoku-gen-9x9"
        methods = ["mdm", "scdm"]  # all methods without this line
        seeds = [0]                # all seeds without this line
        steps = 4000               # any number of training steps without this line
    """
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"queue={path}: cannot be read ({error.strerror}). Name a TOML file.") from None
    except ValueError as error:
        raise ValueError(f"queue={path}: is not TOML ({error}). Correct it.") from None
    tables = content.get("models")
    are_tables = isinstance(tables, list) and all(isinstance(table, dict) for table in tables)
    if not tables or not are_tables or set(content) != {"models"}:
        raise ValueError(f"queue={path}: must have tables [[models]] and nothing else")
    return [
        entry_of(table, f"queue={path}: models {number}", config) for number, table in enumerate(tables, 1)
    ]


def entry_of(table: Table, source: str, config: ReproduceConfig) -> Entry:
    """Return the entry of a table. Raises as `read_queue`, with the source of the table."""
    for key in table:
        check_choice(f"{source}: key", key, KEYS)
    if "task" not in table:
        raise ValueError(f'{source}: has no task. Add a line like task = "sudoku-gen".')
    check_choice(f"{source}: task", table["task"], tuple(SCALES[config.scale].budgets))
    if "methods" in table:
        check_list(f"{source}: methods", table["methods"], lambda item: isinstance(item, str), '["mdm"]')
        check_methods(table["methods"], source)
    if "seeds" in table:
        check_list(f"{source}: seeds", table["seeds"], lambda item: is_whole(item, 0), "[0, 1]")
    if "steps" in table:
        check_int(f"{source}: steps", table["steps"], 1)
    methods, seeds = (tuple(table[key]) if key in table else None for key in ("methods", "seeds"))
    return Entry(table["task"], methods, seeds, table.get("steps"))


def check_list(name: str, value: object, is_item: Callable[[object], bool], example: str) -> None:
    """Raise ValueError unless a value of TOML is a list with items, all of one kind.

    The message has spaces around "=", so that the command line does not take it for a flag.
    """
    as_toml = f"{name} = {json.dumps(value, default=str)}"
    if not isinstance(value, list) or not all(is_item(item) for item in value):
        raise ValueError(f"{as_toml}: must be a list like {example}")
    if not value:
        raise ValueError(f"{as_toml}: is empty. Remove the line for all of them, or write {example}.")


def check_methods(names: Sequence[str], source: str) -> None:
    """Raise ValueError, with the source of the names, if a method does not exist."""
    for name in names:
        try:
            _ = METHODS[name]
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None


def in_order(works: Sequence[Work], entries: Sequence[Entry]) -> list[Work]:
    """Return models in the order of the entries that they fit first. Those that fit none come last."""

    def first_entry(work: Work) -> int:
        return next((i for i, entry in enumerate(entries) if entry.fits(work)), len(entries))

    return sorted(works, key=first_entry)
