"""Process groups as torchrun starts them, forked from a process that has imported torch to start quickly."""

import multiprocessing
import os
import socket
import sys
import tempfile
from pathlib import Path

FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(
    [
        "latent_tokens.training.loop",
        "latent_tokens.evaluation.evaluate",
        "latent_tokens.cli",
        "torch._dynamo",
        "torch.distributed.fsdp",
    ]
)
SECONDS = 300


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def main_of(program):
    """The entry point of a helper by its module, or that of the command line."""
    from importlib import import_module

    return import_module(program).entry


def rank_main(program, arguments, environment, folder, stdout, stderr):
    """Runs the command line in this process, as one rank, in a directory."""
    os.environ.update(environment)
    os.chdir(folder)
    for path, stream in ((stdout, 1), (stderr, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
    sys.argv = ["latent-tokens", *arguments]
    main_of(program)()


def run_ranks(world_size, *arguments, program="latent_tokens.cli", cwd="."):
    """Run a command on that many ranks. Return (largest exit code, stdout and stderr of all ranks)."""
    group = {
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
    }
    with tempfile.TemporaryDirectory() as folder:
        files = [(Path(folder, f"{rank}.out"), Path(folder, f"{rank}.err")) for rank in range(world_size)]
        ranks = []
        for rank, paths in enumerate(files):
            environment = group | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            ranks.append(
                FORKSERVER.Process(
                    target=rank_main,
                    args=(program, list(map(str, arguments)), environment, Path(cwd).resolve(), *paths),
                    daemon=True,
                )
            )
            ranks[-1].start()
        for process in ranks:
            process.join(SECONDS)
            process.kill()
            process.join()
        codes = [process.exitcode for process in ranks]
        out, err = ("".join(pair[stream].read_text() for pair in files) for stream in (0, 1))
    return max(codes, key=abs), out, err
