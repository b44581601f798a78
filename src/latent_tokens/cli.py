"""The command line: parses, calls, prints. A user's mistake is one line and exit code 2."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Union

import tyro
from tyro.conf import PositionalRequiredArgs, subcommand

from latent_tokens.commands import RUN, Data, Evaluate, Sample, Solve
from latent_tokens.configs import DemoConfig, TrainConfig

Command = Union[
    Annotated[Data, subcommand("data")],
    Annotated[TrainConfig, subcommand("train", description="Train a model; the run folder holds all that repeats it.")],
    Annotated[Evaluate, subcommand("evaluate")],
    Annotated[Sample, subcommand("sample")],
    Annotated[Solve, subcommand("solve")],
    Annotated[DemoConfig, subcommand("demo")],
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code: 0, 1 for an unsolved puzzle, 2 for a user's mistake, 130 for Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        command: Any = tyro.cli(Command, prog="latent-tokens", args=arguments, config=(PositionalRequiredArgs,))
        return RUN[type(command)](command)
    except BrokenPipeError:  # whoever read the output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except (ValueError, OSError) as error:
        print(f"latent-tokens: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        again = [*arguments, *([] if "--resume" in arguments else ["--resume"])]
        way_out = f"; go on with: latent-tokens {shlex.join(again)}" if arguments[:1] == ["train"] and stop.args else ""
        print(f"latent-tokens: {str(stop) or 'stopped'}{way_out}", file=sys.stderr)
        return 130


def entry() -> None:
    """The `latent-tokens` command."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
