"""The options of every command: metavars, help and defaults. The configs do not depend on the parser."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from pathlib import Path
from textwrap import dedent
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tyro.conf import Positional, arg
from tyro.constructors import (
    MISSING,
    ConstructorRegistry,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

METAVARS = {
    "task": "TASK", "method": "METHOD", "run": "RUN", "runs": "[RUN ...]", "puzzle": "PUZZLE",
    "experiment": "NAME", "methods": "METHOD [METHOD ...]", "train": "SIZE:BATCHxLENGTH [...]",
    "apart_from": "DIR [DIR ...]", "size": "SIZE [SIZE ...]", "metric": "NAME", "csv": "FILE", "start": "RUN",
    "out": "DIR", "data": "DIR", "growth": "DIR", "png": "FILE", "text": "FILE",
    "source": "SOURCE", "tokenizer": "TOKENIZER", "field": "NAME", "judge": "EVALUATOR", "prompt": "TEXT",
    "tasks": "TASK [TASK ...]", "include_path": "DIR", "model": "MODEL",
    "license": "LICENSE", "order": "ORDER", "compare": "N|all|RUN", "clues": "N|minimal",
}  # fmt: skip
# Of names with two meanings.
OF_COMMANDS = {
    ("Trace", "out"): "FILE",
    ("Page", "out"): "FILE",
    ("LmEval", "out"): "FILE",
    ("ReproduceConfig", "runs"): "DIR",
}
NEW_NAMES = {"judge": "evaluator", "start": "from"}  # the flag of a field, whose name is an alias
SCALARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
WORDS = {"N": "a whole number", "X": "a number"}
IS_POSITIONAL = Positional[int].__metadata__[0]  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class Option:
    """One flag or positional argument of a command."""

    name: str
    hint: Any
    default: Any
    metavar: str
    help: str
    default_in_words: str | None  # of a default that is computed
    positional: bool
    flags: tuple[str, ...]

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed words, empty if the option takes other values too."""
        kinds = kinds_of(self.hint)
        return (
            tuple(map(str, get_args(kinds[0]))) if len(kinds) == 1 and get_origin(kinds[0]) is Literal else ()
        )

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        if self.metavar == "LOW HIGH":
            return "two whole numbers, lowest and highest"
        many = "..." in self.metavar
        words = [
            WORDS.get(word, word)
            for word in self.metavar.split(" ")[0].strip("[{}").replace(",", "|").split("|")
        ]
        listed = f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
        return f"one or more, each {listed}" if many else listed


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of an embedded config that are options of a command, as an annotation of the config.

    A setting that is left out has the default of the config.
    """

    names: tuple[str, ...]
    defaults: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The default of a setting, in words, if it is not that of the config."""
    helps: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The help of a setting, if it is not that of the config."""


def kinds_of(hint: Any) -> tuple[Any, ...]:
    """Return the types that a hint allows, without None and without annotations."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(kind for kind in get_args(hint) if kind is not type(None))
    return (hint,)


def metavar_of(name: str, hint: Any) -> str:
    """Return the metavar of an option in the help: TASK, N, N|all, {fp32,bf16}."""
    kinds = kinds_of(hint)
    if len(kinds) == 1 and get_origin(kinds[0]) is Literal and name not in ("task", "experiment"):
        return "{" + ",".join(map(str, get_args(kinds[0]))) + "}"
    if len(kinds) == 1 and get_origin(kinds[0]) is tuple and name not in METAVARS:
        item, *rest = get_args(kinds[0])
        each = metavar_of("", item)
        return f"{each} [{each} ...]" if rest == [Ellipsis] else "LOW HIGH"
    words = [
        word
        for kind in kinds
        for word in (get_args(kind) if get_origin(kind) is Literal else (SCALARS.get(kind, ""),))
    ]
    return METAVARS.get(name) or "|".join(map(str, words))


@cache
def helps_of(config: type) -> dict[str, str]:
    """Return the text below each field of a dataclass and of those that it extends, on one line."""
    texts: dict[str, str] = {}
    for base in config.__bases__:
        if dataclasses.is_dataclass(base):
            texts |= helps_of(base)
    (node,) = ast.parse(dedent(inspect.getsource(config))).body
    assert isinstance(node, ast.ClassDef)
    for field, below in zip(node.body, node.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(below, ast.Expr):
            continue
        if isinstance(below.value, ast.Constant):
            texts[ast.unparse(field.target)] = " ".join(str(below.value.value).split())
    return texts


@cache
def options_of(command: type) -> tuple[Option, ...]:
    """Return the options of a command, with those of the config that it embeds."""
    hints = get_type_hints(command, include_extras=True)
    options: list[Option] = []
    for field in dataclasses.fields(command):
        hint = hints[field.name]
        config = config_of(hint)
        of_config = config and embedded_options(config, settings_of(hint))
        options += of_config or [option_of(command, field, hint)]
    return tuple(options)


def config_of(hint: Any) -> type | None:
    """Return the config that a field embeds, or None."""
    (kind, *_) = kinds_of(hint)
    return kind if dataclasses.is_dataclass(kind) and isinstance(kind, type) else None


def settings_of(hint: Any) -> Settings | None:
    """Return the annotation of an embedded config, or None, by which all its settings are options."""
    annotations = hint.__metadata__ if get_origin(hint) is Annotated else ()
    return next((each for each in annotations if isinstance(each, Settings)), None)


def embedded_options(config: type, settings: Settings | None) -> list[Option]:
    """Return the options of an embedded config."""
    if settings is None:
        return list(options_of(config))
    return [
        dataclasses.replace(
            option,
            help=settings.helps.get(option.name, option.help),
            default_in_words=settings.defaults.get(option.name, option.default_in_words),
        )
        for option in options_of(config)
        if option.name in settings.names
    ]


def option_of(command: type, field: dataclasses.Field[Any], hint: Any) -> Option:
    """Return the option of one field."""
    annotations = hint.__metadata__ if get_origin(hint) is Annotated else ()
    default = MISSING if field.default is dataclasses.MISSING else field.default
    text = helps_of(command).get(field.name, "")
    in_words = None
    computed = re.fullmatch(r"(.*?) ?Default: (.*)\.", text)
    if computed:
        text, in_words = computed[1], computed[2]
    names = [NEW_NAMES[field.name], field.name] if field.name in NEW_NAMES else [field.name]
    flags = [f"--{name.replace('_', '-')}" for name in names]
    if isinstance(default, bool):
        flags.append(f"--no-{flags[0][2:]}")
    if (command.__name__, field.name) in (("Trace", "out"), ("Page", "out")):
        flags.append("-o")
    metavar = OF_COMMANDS.get((command.__name__, field.name)) or metavar_of(field.name, hint)
    positional = default is MISSING or IS_POSITIONAL in annotations
    return Option(field.name, hint, default, metavar, text, in_words, positional, tuple(flags))


REGISTRY = ConstructorRegistry()


@REGISTRY.struct_rule
def command_rule(info: StructTypeInfo) -> StructConstructorSpec | None:
    """Return the parser's view of a command: flat, with the metavars and help of this module.

    The parser returns a function that builds the command, so it does not catch the errors of the command.
    """
    if not (dataclasses.is_dataclass(info.type) and info.type.__module__.startswith("latent_tokens")):
        return None
    fields = tuple(
        StructFieldSpec(option.name, shown(option), option.default, option.help)
        for option in options_of(info.type)
    )
    return StructConstructorSpec(lambda **values: partial(build, info.type, values), fields)


def shown(option: Option) -> Any:
    """Return the type of an option, annotated with what the parser prints."""
    name = option.name.replace("_", "-")
    implied = (f"--{name}", f"--no-{name}")  # by the name of the field
    hint: str | Callable[[str], str] | None = None
    if option.default_in_words is not None:
        hint = f"(default: {option.default_in_words})"
    elif option.default in (None, ()):
        hint = ""
    return Annotated[
        option.hint,
        arg(
            aliases=None if option.positional else [flag for flag in option.flags if flag not in implied],
            metavar=None if isinstance(option.default, bool) else option.metavar,
            help_behavior_hint=hint,
        ),
    ]


def build(command: type, values: Mapping[str, Any], names: Collection[str] | None = None) -> Any:
    """Return the command with these values. Raise ValueError if a config refuses one.

    Args:
        command: the class of the command.
        values: its values, and those of the config that it embeds.
        names: the fields to set. The others have their default. None: all.
    """
    hints = get_type_hints(command, include_extras=True)
    arguments = {}
    for field in dataclasses.fields(command):
        if names is not None and field.name not in names:
            continue
        config = config_of(hints[field.name])
        if config is None:
            arguments[field.name] = values[field.name]
        else:
            settings = settings_of(hints[field.name])
            arguments[field.name] = build(config, values, None if settings is None else settings.names)
    return command(**arguments)
