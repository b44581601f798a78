"""The spelling of settings in messages: as the flags and arguments that were typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from latent_tokens.commands import COMMANDS
from latent_tokens.commands.options import Option, options_of

NAME_AND_VALUE = re.compile(r"(?<![\w./=(-])([a-z]\w*)=('[^']*'|\([^)]*\)|[^\s:;,]*(?<!\.))")
IS_FLAG = re.compile(r"--|-[a-z]$")
AT_THE_START = re.compile(r"([a-z]\w*)=(.*?)(?=: | with [a-z]\w*=| is not supported|$)")


def values_of(option: Option, arguments: Sequence[str]) -> list[str]:
    """Return the values that were typed after an option's last flag: one, unless the option takes several."""
    values: list[str] = []
    reading = False
    for typed in arguments:
        flag, equals, value = typed.partition("=")
        if IS_FLAG.match(typed):
            reading = flag.replace("_", "-") in option.flags
            values = ([value] if equals else []) if reading else values
        elif reading:
            values.append(typed)
    return values if " " in option.metavar else values[:1]


def flag_of(option: Option, arguments: Sequence[str]) -> str:
    """Return the flag of an option as it was typed, or the metavar of a positional argument."""
    if option.positional:
        return option.metavar
    typed = {word.split("=")[0] for word in arguments}
    return next(
        (flag for flag in option.flags if flag in typed and not flag.startswith("--no-")), option.flags[0]
    )


def as_typed(message: str, arguments: Sequence[str]) -> str:
    """Return a message with its settings spelled as flags.

    `latents=4` becomes `--latents 4`, `task=x` becomes `TASK 'x'`. In Python the message stays as it was
    raised. A name that is not an option of the command stays too.
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
