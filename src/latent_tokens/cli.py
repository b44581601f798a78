"""The command line: parses, calls, prints. A user's mistake is one line and exit code 2."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import Annotated, Any, Union, cast

import tyro
from tyro.conf import DisallowNone, PositionalRequiredArgs, subcommand

from latent_tokens import processes
from latent_tokens.checks import did_you_mean, first_line, one_line
from latent_tokens.commands import COMMANDS, DESCRIPTIONS, EXAMPLES, RUN
from latent_tokens.commands.options import REGISTRY, Option, options_of
from latent_tokens.commands.spelling import as_typed, flag_of, values_of
from latent_tokens.storage import package_version

PROGRAM = "latent-tokens"
LESS_MEMORY = "Reduce the batch size or the number of samples."
PARSING_FAILED = 2  # tyro's exit code
PURPOSE = (
    "Train, sample from and evaluate masked diffusion models and their relatives, "
    "and set the number of latent tokens at inference. "
    "`latent-tokens COMMAND --help` explains a command, `latent-tokens --version` prints the version."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Returns:
        0; 1 for an unsolved puzzle or a problem of the installation; 2 for a user's mistake; 130 for Ctrl-C;
        75 if another signal stopped the training after a checkpoint was saved.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"{PROGRAM} {package_version()}")
        return 0
    try:
        command = parse(arguments)
        return RUN[type(command)](command)
    except BrokenPipeError:  # of a closed pipe, as in `latent-tokens ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ValueError, OSError) as error:
        message = one_line(as_typed(str(error), arguments))
    except MemoryError as error:
        message = f"{one_line(as_typed(str(error), arguments)) or 'out of memory'}. {LESS_MEMORY}"
    except RuntimeError as error:
        # Out of memory is an error type of its own on an accelerator only.
        if "memory" not in str(error):
            raise
        message = f"out of memory ({one_line(first_line(error), 200)}). {LESS_MEMORY}"
    except KeyboardInterrupt as stop:
        reason = str(stop) or "stopped"
        print(f"{PROGRAM}: {of_process()}{reason}{resume_hint(stop, arguments)}", file=sys.stderr)
        return getattr(stop, "code", 130)
    print(f"{PROGRAM}: {of_process()}{message}", file=sys.stderr)
    return 2


def resume_hint(stop: KeyboardInterrupt, arguments: Sequence[str]) -> str:
    """Return how to resume what was interrupted, if it can be resumed."""
    if arguments[:1] not in (["train"], ["reproduce"]) or not stop.args:
        return ""
    is_auto = arguments[0] == "reproduce" or "--resume" in arguments
    command = [*arguments] if is_auto else [*arguments, "--resume", "auto"]
    return f". Resume with: {PROGRAM} {shlex.join(command)}"


def parse(arguments: Sequence[str]) -> Any:
    """Return the command of the arguments. Raise ValueError with one sentence if they are not a command."""
    check_names(arguments)
    choices = [
        Annotated[kind, subcommand(name, description=DESCRIPTIONS[name])] for name, kind in COMMANDS.items()
    ]
    errors = io.StringIO()
    try:
        with redirect_stderr(errors), REGISTRY:
            build = tyro.cli(
                cast(Any, Union[tuple(choices)]),
                prog=PROGRAM,
                description=PURPOSE,
                args=arguments,
                config=(PositionalRequiredArgs, DisallowNone),
            )
    except SystemExit as stop:
        if stop.code != PARSING_FAILED:
            print("examples:", *EXAMPLES.get(arguments[0], EXAMPLES[""]), sep=f"\n  {PROGRAM} ")
            raise
        raise ValueError(one_sentence(errors.getvalue(), arguments)) from None
    return build()


def check_names(arguments: Sequence[str]) -> None:
    """Raise ValueError if the command or an option does not exist, and suggest the closest one."""
    if not arguments:
        raise ValueError(f"COMMAND is missing: must be one of {', '.join(COMMANDS)}. See {PROGRAM} --help.")
    name = arguments[0]
    if name not in COMMANDS:
        if name in ("-h", "--help"):
            return
        if name.startswith("-"):
            hint = did_you_mean(name, ["--help", "--version"]) or f". See {PROGRAM} --help."
            raise ValueError(f"{name}: no such option{hint}")
        raise ValueError(
            f"COMMAND {name!r}: must be one of {', '.join(COMMANDS)}{did_you_mean(name, COMMANDS)}"
        )
    options = options_of(COMMANDS[name])
    positionals = {f"--{option.name}": option.metavar for option in options if option.positional}
    flags = ["--help", *(flag for option in options if not option.positional for flag in option.flags)]
    for typed in arguments[1:]:
        flag = typed.split("=")[0].replace("_", "-")
        if flag in positionals:
            raise ValueError(
                f"{flag}: {positionals[flag]} has no flag. The command is {usage_of(name)} [OPTIONS]."
            )
        if typed.startswith("--") and flag not in flags:
            hint = did_you_mean(flag, flags) or f". See {PROGRAM} {name} --help."
            raise ValueError(f"{typed.split('=')[0]}: {name} has no such option{hint}")


def one_sentence(box: str, arguments: Sequence[str]) -> str:
    """Return the error of the parser, which is printed in a box, as one sentence.

    `arguments` begin with the name of a command.
    """
    # The text of the box, without its frame, which is drawn or in ASCII.
    name = arguments[0]
    options = options_of(COMMANDS[name])
    see_help = f". See {PROGRAM} {name} --help."
    usage = f"the command is {usage_of(name)} [OPTIONS]"
    lines = [re.sub(r"\u256d.*|[\u2500-\u257f]|-{9,}", "", line).strip() for line in box.splitlines()]
    text = re.sub(r" ?For full helptext.*", "", " ".join(" ".join(lines).split()))

    # The problem: missing or unknown arguments, or an option and its value.
    metavars = [option.metavar for option in options if option.positional]
    missing = [metavar for metavar in metavars if "Missing from" in text and metavar in lines]
    unknown = re.search(r"Unrecognized options: (.*?)(?= Perhaps| Available|$)", text)
    subject = re.search(r"(?:argument '|Error parsing )(\S+?)['. :]", text)
    option = subject and option_named(subject[1], options)
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        sentence = f"{' and '.join(missing)} {verb} missing: {usage}"
    elif unknown:
        words = unknown[1].split(", ")
        flag = next((word for word in words if word.startswith("-")), None)
        if flag:
            sentence = f"{flag}: {name} has no such option"
        else:
            sentence = f"{words[0]!r} is one argument too many: {usage}"
    elif not option:
        sentence = text
    elif "Missing value" in text:
        sentence = f"{flag_of(option, arguments)}: its value is missing, {option.allowed}"
    else:
        return value_error(option, text, arguments) + ("" if option.choices else see_help)
    return sentence + see_help


def value_error(option: Option, text: str, arguments: Sequence[str]) -> str:
    """Return the error in the value of an option, from the parser's text."""
    quoted = re.search(r"invalid choice '(.*?)' for", text)
    value = quoted[1] if quoted else " ".join(values_of(option, arguments))
    if " " in option.metavar:  # a list, which is not one word for a shell
        return f"{flag_of(option, arguments)} {value}: must be {option.allowed}"
    if option.choices:
        hint = did_you_mean(value, option.choices)
        return f"{option.name}={value}: must be one of {', '.join(option.choices)}{hint}"
    return f"{option.name}={value}: must be {option.allowed}"


def usage_of(name: str) -> str:
    """Return a command with its positional arguments: latent-tokens train TASK METHOD."""
    metavars = [option.metavar for option in options_of(COMMANDS[name]) if option.positional]
    return " ".join([PROGRAM, name, *metavars])


def option_named(spelling: str, options: Sequence[Option]) -> Option | None:
    """Return the option of a flag, or of a positional argument's name."""
    return next((option for option in options if spelling in (*option.flags, option.name)), None)


def of_process() -> str:
    """Return the rank of the process that reports, empty for rank 0."""
    return "" if processes.is_main() else f"process {processes.rank()}: "


def entry() -> None:
    """Run the `latent-tokens` command."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
