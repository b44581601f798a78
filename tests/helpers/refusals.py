"""A wrong call or command is refused in one line."""

import os
import shlex
from contextlib import contextmanager

import pytest

from latent_tokens.cli import main

PROGRESS = ("making", "generating", "Loading weights")  # of data sets, samples and transformers


@contextmanager
def refused(*parts):
    """Expect a ValueError of one line with these parts. With CHECK_SHAPES, beartype may refuse first."""
    kinds = (ValueError, TypeError) if os.environ.get("CHECK_SHAPES") else ValueError
    with pytest.raises(kinds) as error:
        yield
    if isinstance(error.value, ValueError):
        assert "\n" not in str(error.value)
        assert all(part in str(error.value) for part in parts), str(error.value)


def refused_command(capsys, command, *parts):
    """Run a command, a text or a list, that is refused in one line with these parts. Return the line."""
    capsys.readouterr()
    assert main(shlex.split(command) if isinstance(command, str) else [*map(str, command)]) == 2
    lines = capsys.readouterr().err.strip().split("\n")
    (line,) = [line for line in lines if not line.strip().startswith(PROGRESS)]
    assert line.startswith("latent-tokens: ")
    assert all(part in line for part in parts), line
    return line
