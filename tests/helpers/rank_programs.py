"""Programs that ranks run one after another: commands, some in an unusual setting."""

import gc
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import torch
from accelerate.state import AcceleratorState
from torch.nn.parallel import DistributedDataParallel

from helpers.own_network import Tied
from latent_tokens import TrainConfig, fit, processes
from latent_tokens.cli import main
from latent_tokens.training import loop


def share(tensors):
    """Return the share of the elements of tensors that is on this rank."""
    parts = [(getattr(tensor, "_local_tensor", tensor).numel(), tensor.numel()) for tensor in tensors]
    return round(sum(local for local, _ in parts) / sum(full for _, full in parts), 2)


def with_shards(*arguments):
    """Print the share of weights, EMA weights and optimizer state that is on this rank."""

    def train(run, observe, original=loop.train_steps):
        original(run, observe)
        moments = [values["exp_avg"] for values in run.optimizer.state.values()]
        print("held", share(run.net.parameters()), share(run.ema.module.parameters()), share(moments))

    with patch.object(loop, "train_steps", train):
        return main(arguments)


def with_writes(*arguments):
    """Print how many files of the run directory this rank opened to write."""
    folder = arguments[arguments.index("--out") + 1]
    written = set()

    def note(event, values):
        is_file = event == "open" and isinstance(values[0], str) and values[0].startswith(folder)
        if is_file and values[2] & (os.O_WRONLY | os.O_RDWR):
            written.add(values[0])

    sys.addaudithook(note)
    code = main(arguments)
    print(f"rank {processes.rank()} wrote {len(written)} files")
    return code


def on_unequal_cpus(*arguments):
    """Only rank 0 has instructions for bf16."""
    capabilities = {"avx512_bf16": False, "amx_bf16": processes.is_main()}
    with patch("torch.cpu.get_capabilities", lambda: capabilities, create=True):
        return main(arguments)


def one_row_at_once(*arguments):
    """Only one row of a batch fits into memory."""
    with patch("latent_tokens.network.memory.TRAINING_BYTES", 1):
        return main(arguments)


def resumed(*arguments):
    """Lose the latest checkpoint, and resume."""
    code = main(arguments)
    if processes.is_main():
        folder = Path(arguments[arguments.index("--out") + 1])
        max(folder.glob("state-*")).unlink()
    processes.barrier()
    return code or main([*arguments, "--resume", "auto"])


def own_network(out, parallel):
    """Train a network of the user's own."""
    torch.manual_seed(0)
    net = Tied()
    net.dropout.p = 0.0  # which differs between ranks
    settings = {"batch_size": 8, "num_train": 50, "num_validation": 16, "evaluate_every": 5, "warmup": 5}
    settings |= {"steps": 10, "precision": "fp32", "parallel": parallel}
    fit(TrainConfig("sudoku-4", "scdm", Path(out), **settings), net=net)
    return 0


def leaves(*arguments):
    """Train, evaluate, and print the models that are alive when the rank leaves its group.

    The run is in a cycle of references, and nothing collects garbage before.
    """
    gc.disable()

    def in_a_cycle(*settings, original=loop.setup):
        run = original(*settings)
        run.itself = run
        return run

    with patch.object(loop, "setup", in_a_cycle):
        code = main(arguments)
    code = code or main(["evaluate", arguments[-1], "--num-samples", "2", "--json"])
    destroy = torch.distributed.destroy_process_group

    def count():
        found = (isinstance(each, DistributedDataParallel) for each in gc.get_objects())
        print(f"left with {sum(found)} models")
        destroy()

    with patch("torch.distributed.destroy_process_group", count):
        processes.leave()
    gc.enable()
    return code


def entry():
    """Run the programs of a file of JSON, {name: [port, program, argument, ...]}, and write the answers."""
    jobs = Path(sys.argv[1])
    answers = {}
    for name, (port, program, *arguments) in json.loads(jobs.read_text()).items():
        os.environ["MASTER_PORT"] = port
        processes.leave()  # so that each program starts a group
        AcceleratorState._reset_state(reset_partial_state=True)
        with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
            code = main(arguments) if program == "main" else globals()[program](*arguments)
        answers[name] = code, out.getvalue(), err.getvalue()
    jobs.with_suffix(f".{processes.rank()}").write_text(json.dumps(answers))
