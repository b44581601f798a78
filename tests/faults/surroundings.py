"""Run commands in surroundings that are seldom right: full devices, closed streams, odd names, two writers.

    python -m faults.surroundings
Each command succeeds, or is refused in one line. The script stops at the first other result.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import latent_tokens as lt

MODEL = "sudoku-6-scdm"
SAMPLE = ("sample", MODEL, "--num-samples", "1")
ODD = "\u00e9 \u6f22 <!-- script"  # a directory with spaces and letters that are not ASCII
CLOSED = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-"}


def expect(code, arguments, redirection="", **environment):
    """Run a command in a shell, and check its exit code and that it prints no traceback."""
    line = f'"$@" {redirection}'
    command = ["bash", "-c", line, "bash", sys.executable, "-m", "latent_tokens", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == code, (arguments, redirection, done.returncode, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    if code == 2:
        lines = [line for line in done.stderr.splitlines() if line.startswith("latent-tokens: ")]
        assert len(lines) == 1, done.stderr


def start(*arguments):
    """Return the process of a command, whose output is read at its end."""
    command = [sys.executable, "-m", "latent_tokens", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def interrupt_twice(folder):
    """Press Ctrl-C twice while a run trains. It ends at once, in one line."""
    few = "--size pico --batch-size 4 --num-train 8 --num-validation 8 --precision fp32 --warmup 1"
    train = ("train", "sudoku-4", "scdm", *few.split(), "--out", folder)
    child = start(*train, "--steps", 100_000)
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
        for rows, length, tokens in ((2, 1, 3), (2, 4, 1), (0, 4, 3)):
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
    expect(2, ("export", MODEL, "/proc/model"))
    for arguments in (("--version",), ("sample", "--help"), SAMPLE):
        expect(2, arguments, ">/dev/full")
    for redirection in CLOSED.values():
        expect(0, SAMPLE, redirection)
    expect(0, SAMPLE, OMP_NUM_THREADS="0")
    os.umask(0o077)
    model = folder / ODD / "model"
    expect(0, ("export", MODEL, model))
    assert (model.stat().st_mode & 0o077) == 0
    expect(0, ("sample", model, "--num-samples", "1"))
    expect(0, ("page", model, "--out", folder / ODD / "page.html"))


if __name__ == "__main__":
    with TemporaryDirectory() as name:
        main(Path(name))
    print("every command ended as it should")
