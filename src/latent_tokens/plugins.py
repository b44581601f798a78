"""Tasks and methods of users: module:Name, and the entry points of installed packages.

A module is imported only if its name was typed. Names that are read from a file import nothing.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Literal

from latent_tokens.checks import did_you_mean, first_line

PluginKind = Literal["task", "method"]


def is_dotted(name: str) -> bool:
    """Return whether a name is module:Name."""
    return ":" in name


@cache
def installed(kind: PluginKind) -> dict[str, EntryPoint]:
    """Return the entry points `latent_tokens.tasks` or `latent_tokens.methods` of installed packages."""
    return {entry.name: entry for entry in entry_points(group=f"latent_tokens.{kind}s")}


def load_plugin(kind: PluginKind, name: str) -> object:
    """Return the object of module:Name, or of an entry point.

    The current directory is searched first, as by `python -m`.

    Raises:
        ValueError: the module cannot be imported, or has no such attribute.
    """
    module_name, _, attribute = (
        name if is_dotted(name) else installed(kind)[name].value
    ).partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), *attribute.split(".")]):
        raise ValueError(f"{kind}={name}: is not of the form module:Name, such as my_module:MyTask")
    value: object = imported(kind, name, module_name)
    for part in attribute.split("."):
        if not hasattr(value, part):
            hint = did_you_mean(part, vars(value)) or ". Check its name."
            raise ValueError(f"{kind}={name}: {module_name} has no {attribute}{hint}")
        value = getattr(value, part)
    return value


def imported(kind: PluginKind, name: str, module_name: str) -> ModuleType:
    """Return a module. Raise ValueError, naming the line at fault, if it cannot be imported."""
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.insert(0, str(Path.cwd()))
    try:
        return import_module(module_name)
    except Exception as error:
        problem = fault_of(error)
        missing = str(getattr(error, "name", None))
        if f"{module_name}.".startswith(f"{missing}."):
            fault = "neither in the current directory nor installed"
            problem = f"{type(error).__name__}: {first_line(error)}, {fault}"
        raise ValueError(f"{kind}={name}: cannot be imported ({problem}).") from error


def fault_of(error: Exception) -> str:
    """Return an error of a user's code in one line, with the file and the line that raised it."""
    last = extract_tb(error.__traceback__)[-1]
    place = f"in {Path(last.filename).name}, line {last.lineno}"
    return f"{type(error).__name__}: {first_line(error)}, {place}"
