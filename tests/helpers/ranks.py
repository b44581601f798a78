"""Process groups as torchrun starts them, forked from a process that has imported torch to start quickly."""

import json
import multiprocessing
import os
import socket
import sys
import tempfile
from importlib import import_module
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


def rank_main(program, arguments, environment, folder, streams):
    """Run the entry point of a module in this process, as one rank, in a directory."""
    os.environ.update(environment)
    os.chdir(folder)
    for number, path in enumerate(streams, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.argv = ["latent-tokens", *arguments]
    import_module(program).entry()


def run_ranks(world_size, *arguments, program="latent_tokens.cli", cwd="."):
    """Run a command on that many ranks. Return (largest exit code, stdout and stderr of all ranks)."""
    group = {"WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size)}
    group |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    with tempfile.TemporaryDirectory() as folder:
        files = [(Path(folder, f"{rank}.out"), Path(folder, f"{rank}.err")) for rank in range(world_size)]
        ranks = []
        for rank, streams in enumerate(files):
            environment = group | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            start = (program, [*map(str, arguments)], environment, Path(cwd).resolve(), streams)
            ranks.append(FORKSERVER.Process(target=rank_main, args=start, daemon=True))
            ranks[-1].start()
        for process in ranks:
            process.join(SECONDS)
            process.kill()
            process.join()
        codes = [process.exitcode for process in ranks]
        out, err = ("".join(pair[stream].read_text() for pair in files) for stream in (0, 1))
    return max(codes, key=abs), out, err


def run_jobs(world_size, jobs):
    """Run programs of helpers.rank_programs on the same ranks. Return their answers as run_ranks does."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "jobs.json")
        with_ports = {name: [free_port(), *map(str, job)] for name, job in jobs.items()}
        file.write_text(json.dumps(with_ports))
        code, _, err = run_ranks(world_size, file, program="helpers.rank_programs")
        assert code == 0, err
        ranks = [json.loads(file.with_suffix(f".{rank}").read_text()) for rank in range(world_size)]
    answers = {name: [rank[name] for rank in ranks] for name in jobs}
    return {
        name: (
            max(code for code, _, _ in each),
            *("".join(rank[stream] for rank in each) for stream in (1, 2)),
        )
        for name, each in answers.items()
    }
