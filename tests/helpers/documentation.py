"""Pages of documentation, whose code is run as a reader types it."""

import os
import re
import shlex
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

from helpers.ranks import run_ranks
from latent_tokens.cli import main

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

import bench  # noqa: E402

ENVIRONMENT = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def blocks(page, language):
    """Return the content of the page's code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.S)


def commands(page):
    """Return the page's lines for a shell."""
    return [line for block in blocks(page, "bash") for line in block.splitlines() if line]


def run(commands, folder):
    """Run commands in their order, in one directory.

    Those of latent-tokens are calls, which start quickly, unless a shell redirects their output. So are
    those of the benchmark, which looks at the machine briefly. The ranks of torchrun are forked.
    tests/test_processes.py starts a real torchrun.
    """
    for command in commands:
        name, *arguments = shlex.split(command, comments=True)
        if name == "latent-tokens" and ">" not in arguments:
            with chdir(folder):
                assert main(arguments) == 0, command
        elif name == "torchrun":
            fork_torchrun(arguments, folder)
        elif arguments[:1] == ["benchmarks/bench.py"]:
            with patch.multiple(bench, SIDE=512, COPIED=1 << 24):
                assert bench.main(arguments[1:]) == 0, command
        else:
            output = {"capture_output": True, "text": True}
            done = subprocess.run(command, shell=True, cwd=folder, env=ENVIRONMENT, check=False, **output)
            assert done.returncode == 0, f"{command}\n{done.stdout[-2_000:]}\n{done.stderr[-2_000:]}"


def fork_torchrun(arguments, folder):
    """Run the ranks of a torchrun command line, which torchrun itself parses."""
    from torch.distributed.run import get_args_parser

    launch = get_args_parser().parse_args(arguments)
    assert (launch.module, launch.training_script) == (True, "latent_tokens"), arguments
    code, _, err = run_ranks(int(launch.nproc_per_node), *launch.training_script_args, cwd=folder)
    assert code == 0, err[-2_000:]
