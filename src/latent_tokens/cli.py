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
from latent_tokens.storage import package_version

PROGRAM = "latent-tokens"
LESS_MEMORY = "reduce the batch size or the number of samples"
PARSING_FAILED = 2  # tyro's exit code
PURPOSE = (
    "Train, sample from and evaluate masked diffusion models and their relatives, and set the number of latent tokens at inference. "
    "`latent-tokens COMMAND --help` explains a command, `latent-tokens --version` prints the version."
)
NAME_AND_VALUE = re.compile(r"(?<![\w./=(-])([a-z]\w*)=('[^']*'|\([^)]*\)|[^\s:;,]*)")
AT_THE_START = re.compile(r"([a-z]\w*)=(.*?)(?=: | with [a-z]\w*=| is not supported|$)")


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
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ValueError, OSError) as error:
        message = one_line(as_typed(str(error), arguments))
    except MemoryError as error:
        message = f"{one_line(as_typed(str(error), arguments)) or 'out of memory'}; {LESS_MEMORY}"
    except (
        RuntimeError
    ) as error:  # torch has an error of its own for memory on an accelerator, and none on a CPU
        if "memory" not in str(error):
            raise
        message = f"out of memory ({one_line(first_line(error), 200)}); {LESS_MEMORY}"
    except KeyboardInterrupt as stop:
        print(
            f"{PROGRAM}: {of_process()}{str(stop) or 'stopped'}{resume_hint(stop, arguments)}",
            file=sys.stderr,
        )
        return getattr(stop, "code", 130)
    print(f"{PROGRAM}: {of_process()}{message}", file=sys.stderr)
    return 2


def resume_hint(stop: KeyboardInterrupt, arguments: Sequence[str]) -> str:
    """Return how to resume what was interrupted, if it can be resumed."""
    if arguments[:1] not in (["train"], ["reproduce"]) or not stop.args:
        return ""
    is_auto = arguments[0] == "reproduce" or "--resume" in arguments
    again = [*arguments, *([] if is_auto else ["--resume", "auto"])]
    return f"; resume with: {PROGRAM} {shlex.join(again)}"


def parse(arguments: Sequence[str]) -> Any:
    """Return the command that the arguments describe. Raises ValueError with one sentence if they describe none."""
    check_names(arguments)
    choices = [
        Annotated[kind, subcommand(name, description=DESCRIPTIONS[name])] for name, kind in COMMANDS.items()
    ]
    said = io.StringIO()
    try:
        with redirect_stderr(said), REGISTRY:
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
        raise ValueError(one_sentence(said.getvalue(), arguments)) from None
    return build()


def check_names(arguments: Sequence[str]) -> None:
    """Raises ValueError if the command or one of its options does not exist, with the closest one that does."""
    if not arguments:
        raise ValueError(f"COMMAND is missing: must be one of {', '.join(COMMANDS)}; see {PROGRAM} --help")
    name = arguments[0]
    if name not in COMMANDS:
        if name in ("-h", "--help"):
            return
        if name.startswith("-"):
            raise ValueError(
                f"{name}: there is no such option{did_you_mean(name, ['--help', '--version']) or f'; see {PROGRAM} --help'}"
            )
        raise ValueError(
            f"COMMAND {name!r}: must be one of {', '.join(COMMANDS)}{did_you_mean(name, COMMANDS)}"
        )
    positionals = {
        f"--{option.name}": option.metavar for option in options_of(COMMANDS[name]) if option.positional
    }
    flags = [
        "--help",
        *(flag for option in options_of(COMMANDS[name]) if not option.positional for flag in option.flags),
    ]
    for typed in arguments[1:]:
        flag = typed.split("=")[0].replace("_", "-")
        if flag in positionals:
            raise ValueError(
                f"{flag}: {positionals[flag]} has no flag; the command is {usage_of(name)} [OPTIONS]"
            )
        if typed.startswith("--") and flag not in flags:
            hint = did_you_mean(flag, flags) or f"; see {PROGRAM} {name} --help"
            raise ValueError(f"{typed.split('=')[0]}: {name} has no such option{hint}")


def one_sentence(box: str, arguments: Sequence[str]) -> str:
    """What the parser prints in a box, as one sentence. `arguments` begin with the name of a command."""
    name = arguments[0]
    options = options_of(COMMANDS[name])
    see_help = f"; see {PROGRAM} {name} --help"
    usage = f"the command is {usage_of(name)} [OPTIONS]"
    lines = [
        re.sub(r"\u256d.*|[\u2500-\u257f]|-{9,}", "", line).strip() for line in box.splitlines()
    ]  # without the frame, drawn or in ASCII
    text = re.sub(r" ?For full helptext.*", "", " ".join(" ".join(lines).split()))

    metavars = [option.metavar for option in options if option.positional]
    missing = [metavar for metavar in metavars if "Missing from" in text and metavar in lines]
    unknown = re.search(r"Unrecognized options: (.*?)(?= Perhaps| Available|$)", text)
    about = re.search(r"(?:argument '|Error parsing )(\S+?)['. :]", text)
    option = about and option_named(about[1], options)
    if missing:
        sentence = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: {usage}"
    elif unknown:
        words = unknown[1].split(", ")
        flag = next((word for word in words if word.startswith("-")), None)
        sentence = (
            f"{flag}: {name} has no such option"
            if flag
            else f"{words[0]!r} is one argument too many: {usage}"
        )
    elif not option:
        sentence = text
    elif "Missing value" in text:
        sentence = f"{flag_of(option, arguments)}: its value is missing, {option.allowed}"
    else:
        return about_value(option, text, arguments) + ("" if option.choices else see_help)
    return sentence + see_help


def about_value(option: Option, text: str, arguments: Sequence[str]) -> str:
    """What is wrong with the value of an option, from the parser's text."""
    quoted = re.search(r"invalid choice '(.*?)' for", text)
    value = quoted[1] if quoted else " ".join(values_of(option, arguments))
    if " " in option.metavar:  # a list, which is not one word for a shell
        return f"{flag_of(option, arguments)} {value}: must be {option.allowed}"
    if option.choices:
        return f"{option.name}={value}: must be one of {', '.join(option.choices)}{did_you_mean(value, option.choices)}"
    return f"{option.name}={value}: must be {option.allowed}"


def usage_of(name: str) -> str:
    """A command with its positional arguments: latent-tokens train TASK METHOD."""
    return " ".join(
        [PROGRAM, name, *(option.metavar for option in options_of(COMMANDS[name]) if option.positional)]
    )


def option_named(spelling: str, options: Sequence[Option]) -> Option | None:
    """The option of a flag, or of a positional argument's name."""
    return next((option for option in options if spelling in (*option.flags, option.name)), None)


def values_of(option: Option, arguments: Sequence[str]) -> list[str]:
    """The values that were typed after an option's last flag."""
    values: list[str] = []
    reading = False
    for typed in arguments:
        flag, equals, value = typed.partition("=")
        if typed.startswith("--"):
            reading = flag.replace("_", "-") in option.flags
            values = ([value] if equals else []) if reading else values
        elif reading:
            values.append(typed)
    return values


def flag_of(option: Option, arguments: Sequence[str]) -> str:
    """The spelling of an option: the flag that was typed if it has several, the metavar of a positional argument."""
    if option.positional:
        return option.metavar
    typed = {word.split("=")[0] for word in arguments}
    return next(
        (flag for flag in option.flags if flag in typed and not flag.startswith("--no-")), option.flags[0]
    )


def as_typed(message: str, arguments: Sequence[str]) -> str:
    """Spell the settings of a message as they are typed: `latents=4` becomes `--latents 4`, `task=x` becomes `TASK 'x'`.

    Python callers read the message as it was raised. A name that is no option of the command stays as it is.
    """
    command = COMMANDS.get(arguments[0]) if arguments else None
    options = {option.name: option for option in options_of(command)} if command else {}

    def spelled(match: re.Match[str]) -> str:
        option = options.get(match[1]) or options.get(f"{match[1]}s")
        value = match[2]
        if option is None:
            return match[0]
        flag = flag_of(option, arguments)
        if isinstance(option.default, bool):
            return f"--no-{flag[2:]}" if value == "False" else flag
        if value in ("", "None"):
            return flag
        if " " in option.metavar:  # a list
            return " ".join([flag, *re.findall(r"[^(),' ]+", value)])
        bare = value[1:-1] if re.fullmatch(r"'[^']*'", value) else value
        return f"{flag} {bare!r}" if option.positional else f"{flag} {shlex.quote(bare)}"

    start = AT_THE_START.match(message)
    if start is None:
        return NAME_AND_VALUE.sub(spelled, message)
    return spelled(start) + NAME_AND_VALUE.sub(spelled, message[start.end() :])


def of_process() -> str:
    """The rank of the process that reports, unless it is rank 0."""
    return "" if processes.is_main() else f"process {processes.rank()}: "


def entry() -> None:
    """The `latent-tokens` command."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
