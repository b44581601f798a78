"""The command line: parses, calls, prints. A user's mistake is one line and exit code 2."""

from __future__ import annotations

import ast
import io
import os
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import MISSING, fields
from functools import cache
from inspect import cleandoc, getsource
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

import tyro
from tyro.conf import DisallowNone, FlagCreatePairsOff, PositionalRequiredArgs, arg, subcommand

from latent_tokens import processes
from latent_tokens.checks import first_line, one_line, our_word
from latent_tokens.commands import COMMANDS, RUN
from latent_tokens.commands.train import Train, flags_of_run
from latent_tokens.configs import IN_HELP, SWEPT, EvalConfig, InputConfig
from latent_tokens.storage import package_version

PROGRAM = "latent-tokens"
METAVARS = {
    "first": "METHOD:STEPS",
    "mask": "ID|TEXT|new",
    "lora_targets": "attention|all|NAME,...",
    "prompt": "TEXT",
    "tasks": "TASK [TASK ...]",
}
"""The metavars of flags that take text, but for those named as their flag."""
ARGUMENTS = {"out": "DIR"}
"""The metavars of arguments without a flag, but for those named as their field."""
SWEPT_METAVARS = {"latents": "N|all", "candidates": "N|all|growing"}
"""The metavars of settings that have several values in an evaluation, but for those named X."""
OUT_OF_MEMORY = "out of memory|allocate memory|not enough memory"  # of PyTorch's messages
LESS_MEMORY = "Reduce the batch size or the number of samples."
PURPOSE = """\
Train, sample from and evaluate masked diffusion models and their relatives, and set the number of latent
tokens at inference. `latent-tokens COMMAND --help` explains a command, `latent-tokens --version` prints the
version.

Examples:
    latent-tokens solve 1.....3............2................ --latents all
    latent-tokens evaluate sudoku-6-scdm --latents 0 4 all --order left_to_right --num-samples 100"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Returns:
        0; 1 for an unsolved puzzle or a problem of the installation; 2 for a user's mistake; 130 for
        Ctrl-C; 75 if another signal stopped the training after a checkpoint was saved.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    code = 2
    command = None
    try:
        if arguments == ["--version"]:
            print(f"{PROGRAM} {package_version()}")
            return 0
        command = parse(arguments)
        return RUN[type(command)](command)
    except SystemExit as stop:  # after the help or the error of the parser
        return int(stop.code or 0)
    except BrokenPipeError:  # of a closed pipe, as in `latent-tokens ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ValueError, OSError) as error:
        message = one_line(as_flags(str(error), command))
    except (MemoryError, RuntimeError) as error:
        # Out of memory is an error type of its own on an accelerator only.
        if isinstance(error, RuntimeError) and not re.search(OUT_OF_MEMORY, str(error)):
            raise
        message = f"out of memory ({one_line(first_line(error), 200)}). {LESS_MEMORY}"
    except KeyboardInterrupt as stop:
        message = f"{str(stop) or 'stopped'}{resume_hint(stop, arguments)}"
        code = getattr(stop, "code", 130)
    process = "" if processes.is_main() else f"process {processes.rank()}: "
    print(f"{PROGRAM}: {process}{message}", file=sys.stderr)
    return code


def parse(arguments: Sequence[str]) -> Any:
    """Return the command of the arguments. Raise SystemExit after the help, or if they are not a command.

    Raises:
        ValueError: an option is a word of other libraries, or an argument without a flag.
    """
    config = (PositionalRequiredArgs, DisallowNone, FlagCreatePairsOff)
    texts = {name: cleandoc(kind.__doc__ or "") for name, kind in COMMANDS.items()}

    # Of one command, so that its errors name its own help.
    name = next(iter(arguments), "")
    if name in COMMANDS:
        check_words(name, arguments)
        kind = COMMANDS[name]
        explain_flags(kind)
        about, _, examples = texts[name].partition("\nExamples:\n")
        paragraphs = re.sub(r"(?<=\S)\n(?=\S)", " ", about)
        text = f"{paragraphs}\nExamples:\n{examples}"
        words = [word for argument in arguments for word in argument.split("=", 1)]
        files = [Path(file) for flag, file in pairwise(words) if flag == "--config"]
        is_config = bool(files) and kind is Train
        default = flags_of_run(files[-1], other_data="--data" in words) if is_config else None
        return tyro.cli(
            kind,
            prog=f"{PROGRAM} {name}",
            description=text,
            args=arguments[1:],
            default=default,
            config=config,
        )

    # Of all commands, to list them.
    choices = [
        Annotated[kind, subcommand(name, description=texts[name].partition("\n")[0])]
        for name, kind in COMMANDS.items()
    ]
    every = cast(Any, Union[tuple(choices)])
    return tyro.cli(every, prog=PROGRAM, description=PURPOSE, args=arguments, config=config)


def argument_name(name: str) -> str:
    """Return the metavar of an argument without a flag."""
    return ARGUMENTS.get(name, name.upper())


def check_words(command: str, arguments: Sequence[str]) -> None:
    """Raise ValueError for an option of other libraries, with ours, or for an argument without a flag."""
    defaults = {field.name: field.default for field in fields(COMMANDS[command])}
    for argument in arguments:
        flag = argument.partition("=")[0]
        name = flag.removeprefix("--").replace("-", "_")
        if flag == name:
            continue
        if defaults.get(name) is MISSING:
            raise ValueError(f"{flag}: has no flag. Use {PROGRAM} {command} {argument_name(name)}.")
        ours = our_word(name, defaults)
        if ours is not None:
            option = f"--{ours.replace('_', '-')}" if ours in defaults else ours
            word = (
                f"{PROGRAM} {command} {argument_name(ours)}"
                if defaults.get(ours) is MISSING
                else option
            )
            raise ValueError(f"{flag}: is not an option of {command}. Use {word}.")


@cache  # once per process: finding the source of a class takes milliseconds
def explain_flags(kind: type) -> None:
    """Set the help of each flag: its docstring on one line, and its default if that is a value.

    The docstring states what a default of None means. The metavar of a text is its name, not STR.
    """
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        body = cast(ast.ClassDef, ast.parse(getsource(base)).body[0]).body
        for field, below in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                text = " ".join(ast.literal_eval(below.value).split())
                for name, listed in IN_HELP.items():
                    text = text.replace(f"{{{name}}}", listed)
                texts[ast.unparse(field.target)] = text

    def hint(default: str) -> str:
        return "" if default in ("", "None", "True", "False") else f"(default: {default})"

    for name in getattr(kind, "several", ()):
        texts[name] += " Several values: one run each."
    hints = get_type_hints(kind, include_extras=True)
    metavars = {name: name.upper() for name in hints if hints[name] in (str, str | None)} | METAVARS
    several = issubclass(kind, EvalConfig)
    for name in set(SWEPT) & hints.keys() if issubclass(kind, InputConfig) else ():
        value = SWEPT_METAVARS.get(name, "X")
        metavars[name] = f"{value} [{value} ...]" if several else value
        texts[name] += " Several values: one result row each." * several
        if get_origin(hints[name]) is Union:  # not replaced by an earlier call
            types = get_args(hints[name])
            hints[name] = Union[(*(t for t in types if (get_origin(t) is tuple) == several), None)]
    for name in texts.keys() & hints.keys():
        flag = arg(metavar=metavars.get(name), help=texts[name], help_behavior_hint=hint)
        hints[name] = Annotated[hints[name], flag]
    kind.__annotations__ = hints


def as_flags(message: str, command: object) -> str:
    """Return a message with its settings spelled as flags: `latents=4` becomes `--latents 4`.

    Without a command, as when its arguments are refused, the message stays.
    """
    if command is None:
        return message
    defaults = {field.name: field.default for field in fields(cast(Any, command))}

    def flag(match: re.Match[str]) -> str:
        name, value = match.groups()
        name = name if name in defaults else f"{name}s"
        if name not in defaults:
            return match[0]
        if value.startswith(("(", "'")):
            value = re.sub(r"[(),']", "", value)
        value = re.sub(r"^blockwise\((\d+)\)$", r"blockwise:\1", value)
        if defaults[name] is MISSING:
            return f"{argument_name(name)} {value!r}"
        flag = "from" if name == "start" else name.replace("_", "-")
        if value == "False":
            return f"--no-{flag}" if defaults[name] is True else f"no --{flag}"
        return f"--{flag}" if value in ("True", "None", "") else f"--{flag} {value}"

    spaced = [re.escape(str(typed)) for typed in vars(command).values() if " " in str(typed)]
    value = "|".join([*spaced, r"\([^)]*\)", "'[^']*'", r"[^\s;,]*?(?=[.:]?(?:[\s;,]|$))"])
    spelled = re.sub(rf"(?<![\w./=(-])([a-z]\w*)=({value})", flag, message)
    options = "|".join(name for name, default in defaults.items() if default is not MISSING)
    return re.sub(rf"(?<=Leave )({options})()(?= out)", flag, spelled)


def resume_hint(stop: KeyboardInterrupt, arguments: Sequence[str]) -> str:
    """Return how to resume what was interrupted, if it can be resumed."""
    if arguments[:1] not in (["train"], ["reproduce"]) or not stop.args:
        return ""
    words = re.split("[ =]", " ".join(arguments))
    resume = [after for flag, after in pairwise(words) if flag == "--resume"][-1:]
    is_new = arguments[0] == "train" and resume in ([], ["no"])
    command = [*arguments, "--resume", "auto"] if is_new else [*arguments]
    return f". Resume with: {PROGRAM} {shlex.join(command)}"


def entry() -> None:
    """Run the `latent-tokens` command, and end the process."""
    # A terminal that lacks a character of a sample shows its escape.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    code = main()
    # After an error, another rank may be waiting in the group.
    if code in (0, processes.EX_TEMPFAIL):
        processes.leave()
    sys.exit(code)


if __name__ == "__main__":
    entry()
