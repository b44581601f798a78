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
from typing import Annotated, Any, Union

import tyro
from tyro.conf import PositionalRequiredArgs, subcommand

from latent_tokens import processes
from latent_tokens.checks import one_line
from latent_tokens.commands import RUN, Bench, Data, Doctor, Evaluate, Export, Import, Likelihood, Sample, Serve, Solve, Trace
from latent_tokens.configs import DemoConfig, ReproduceConfig, TrainConfig

PARSING_FAILED = 2  # tyro's exit code

Command = Union[
    Annotated[Data, subcommand("data")],
    Annotated[TrainConfig, subcommand("train", description="Train a model; the run folder holds all that repeats it.")],
    Annotated[Evaluate, subcommand("evaluate")],
    Annotated[Sample, subcommand("sample")],
    Annotated[Solve, subcommand("solve")],
    Annotated[Serve, subcommand("serve")],
    Annotated[Trace, subcommand("trace")],
    Annotated[DemoConfig, subcommand("demo")],
    Annotated[Bench, subcommand("bench")],
    Annotated[ReproduceConfig, subcommand("reproduce")],
    Annotated[Import, subcommand("import")],
    Annotated[Likelihood, subcommand("likelihood")],
    Annotated[Export, subcommand("export")],
    Annotated[Doctor, subcommand("doctor")],
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code: 0, 1 for an unsolved puzzle or an ailing installation, 2 for a user's mistake, 130 for Ctrl-C,
    75 where training was stopped by another signal, and saved.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        command = parse(arguments)
        return RUN[type(command)](command)
    except BrokenPipeError:  # whoever read the output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ValueError, OSError) as error:
        print(f"latent-tokens: {of_process()}{one_line(str(error))}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"latent-tokens: {of_process()}{one_line(str(error)) or 'out of memory'}; ask for less at once", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        again = [*arguments, *(["--resume", "auto"] if arguments[:1] == ["train"] and "--resume" not in arguments else [])]
        way_out = f"; go on with: latent-tokens {shlex.join(again)}" if arguments[:1] in (["train"], ["reproduce"]) and stop.args else ""
        print(f"latent-tokens: {of_process()}{str(stop) or 'stopped'}{way_out}", file=sys.stderr)
        return getattr(stop, "code", 130)


def parse(arguments: Sequence[str]) -> Any:
    """The command that the arguments mean. Raises ValueError where they mean none: what the parser says in a box, as one line."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(Command, prog="latent-tokens", args=arguments, config=(PositionalRequiredArgs,))
    except SystemExit as stop:
        if stop.code != PARSING_FAILED:
            raise
    text = re.sub(r"\u256d.*|[\u2500-\u257f]|\[/?bold\]", " ", said.getvalue())  # the box: its title, its frame, its markup
    text = re.sub(r"For full helptext.*|Argument helptext:.*|Error parsing \S*\.config: |\bconfig\.", "", text, flags=re.S)
    raise ValueError(f"{' '.join(text.split())}; see --help")


def of_process() -> str:
    """Which process speaks, where it is not the first of those that torchrun or accelerate launch started."""
    return "" if processes.is_first() else f"process {processes.number()}: "


def entry() -> None:
    """The `latent-tokens` command."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
