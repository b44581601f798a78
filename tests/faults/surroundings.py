"""Run commands in surroundings that are seldom right: full devices, closed streams, odd names of directories.

    python -m faults.surroundings
Each command succeeds, or is refused in one line. The script stops at the first other result.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

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


def main(folder):
    """Run all cases."""
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
