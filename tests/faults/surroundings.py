"""Run commands in surroundings that are seldom right: full devices, closed streams, odd names, two writers.

    python -m faults.surroundings
Each command succeeds, or is refused in one line. The script stops at the first other result.
"""

import faulthandler
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

import latent_tokens as lt
from helpers.ranks import free_port
from helpers.runs import complete_step, timeless
from latent_tokens.cli import main as command

HANGS = 600  # seconds after which it prints where it waits, and ends
MODEL = "sudoku-6-scdm"
SAMPLE = ("sample", MODEL, "--num-samples", "1")
ODD = "\u00e9 \u6f22 <!-- script"  # a directory with spaces and letters that are not ASCII
FEW = "--size pico --batch-size 4 --num-train 8 --num-validation 8 --precision fp32 --warmup 1"
TRAIN = ("train", "sudoku-4", "scdm", *FEW.split())


def check(code, text, expected, *case):
    """Check the exit code of a command, and that it prints no traceback, but one line if it is refused."""
    assert code == expected, (case, code, text)
    assert "Traceback" not in text, text
    lines = [line for line in text.splitlines() if line.startswith("latent-tokens: ")]
    assert len(lines) == (expected == 2), text


def expect(code, arguments, redirection="", **environment):
    """Run a command in a shell, and check how it ends."""
    line = ["bash", "-c", f'"$@" {redirection}', "bash", sys.executable, "-m", "latent_tokens", *arguments]
    environment = {**os.environ, **environment}
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    check(done.returncode, done.stderr, code, arguments, redirection)


def expect_here(code, *arguments):
    """Run a command in this process, and check how it ends."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as printed:
        ended = command([*map(str, arguments)])
    check(ended, printed.getvalue(), code, arguments)


def start(*arguments, launcher=()):
    """Return the process of a command, whose output is read at its end."""
    line = [sys.executable, *launcher, "-m", "latent_tokens", *map(str, arguments)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def terminate_two(folder):
    """Send SIGTERM to torchrun with two processes. They save, and the same command ends the run."""
    options = ("--steps", 400, "--save-every", 20, "--resume", "auto", "--out")
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port())
    both = start(*TRAIN, *options, folder, launcher=launcher)
    while not list(folder.glob("state-*")) and both.poll() is None:
        time.sleep(0.02)
    both.send_signal(signal.SIGTERM)
    _, text = both.communicate()
    step = complete_step(folder)
    assert f"stopped at step {step} of 400" in text, text
    again = start(*TRAIN, *options, folder, launcher=launcher)
    _, text = again.communicate()
    assert again.returncode == 0, text
    expect_here(0, *TRAIN, *options, folder.with_name("undisturbed"))
    runs = (folder, folder.with_name("undisturbed"))
    losses = [[row[name] for row in timeless(run) for name in row if "loss" in name] for run in runs]
    np.testing.assert_allclose(*losses, atol=1e-4)


def interrupt_twice(folder):
    """Press Ctrl-C twice while a run trains. It ends at once, in one line."""
    child = start(*TRAIN, "--out", folder, "--steps", 100_000)
    while not (folder / "metrics.jsonl").exists() and child.poll() is None:
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    child.send_signal(signal.SIGINT)
    _, text = child.communicate()
    assert child.returncode == 130, (child.returncode, text)
    assert "Traceback" not in text, text
    assert (folder / "config.json").exists()


def write_twice(folder):
    """Export two models into one directory at a time. It has one of them, complete."""
    both = [start("export", name, folder) for name in ("sudoku-6-scdm", "sudoku-6-mdm")]
    ends = [(child.communicate()[1], child.returncode) for child in both]
    assert all(code == 0 or (code == 2 and "Traceback" not in text) for text, code in ends), ends
    assert lt.load(folder).generate(num_samples=1).tokens.shape == (1, 36)


def follow_links(folder):
    """Read a model whose files are links, as in a cache of the Hub. Its export has no links."""
    lt.load(MODEL).save_pretrained(folder / "files")
    (folder / "links").mkdir()
    for path in (folder / "files").iterdir():
        (folder / "links" / path.name).symlink_to(path)
    lt.load(folder / "links").save_pretrained(folder / "copy")
    assert not [path for path in (folder / "copy").iterdir() if path.is_symlink()]


def open_strange_names():
    """Names that no directory has and the Hub refuses get one line."""
    for name in ("../../etc/passwd", "a/..", "OWNER/\x1b[31m", "a\nb/c", "a/" + "b" * 300):
        line = ""
        try:
            lt.load(name)
        except ValueError as error:
            line = str(error)
        assert line, name
        assert line.isprintable(), line


def decode_the_smallest():
    """Decode and score one position, a vocabulary of one token, and a batch of no rows."""
    for method in lt.METHODS.values():
        if method.readout == "left":  # it has no first position
            continue
        for rows, length, tokens in ((2, 1, 3), (2, 4, 1), (0, 4, 3), (2, 0, 3)):
            net = lt.Transformer(lt.Size(8, 2, 1), tokens, length).eval()
            known = torch.zeros(rows, length, dtype=torch.bool)
            samples = lt.generate(net, method, known.long(), known)
            assert (samples.tokens < tokens).all()
            numbers = torch.full((rows,), length)
            scored = lt.log_likelihood(net, method, samples.tokens, samples.order, 0 * numbers, numbers)
            assert scored.shape == (rows, length)


def main(folder):
    """Run all cases."""
    decode_the_smallest()
    open_strange_names()
    follow_links(folder)
    write_twice(folder / "both")
    interrupt_twice(folder / "run")
    terminate_two(folder / "two")
    expect_here(2, "export", MODEL, "/proc/model")
    for arguments in (("--version",), ("sample", "--help"), SAMPLE):
        expect(2, arguments, ">/dev/full")
    expect(0, SAMPLE, ">&-")
    expect(0, SAMPLE, "<&- 2>&-", OMP_NUM_THREADS="0")
    os.umask(0o077)
    model = folder / ODD / "model"
    expect_here(0, "export", MODEL, model)
    assert (model.stat().st_mode & 0o077) == 0
    expect_here(0, "sample", model, "--num-samples", "1")
    expect_here(0, "page", model, "--out", folder / ODD / "page.html")


if __name__ == "__main__":
    faulthandler.dump_traceback_later(HANGS, exit=True)
    with TemporaryDirectory() as name:
        main(Path(name))
    print("every command ended as it should")
