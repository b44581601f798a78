"""A short `make drill` and a short `make fuzz`, and tests that the fuzzer detects each problem."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from faults import fuzz
from helpers.documentation import ROOT


def run(*arguments):
    """Return the output of a program in a separate process: it forks, which one with threads must not."""
    path = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it forks and mounts")
def test_a_run_survives_a_handful_of_faults_of_each_kind():
    done = run("faults.drill", "--short")
    assert int(re.search(r"run: (\d+) faults so far", done.stdout)[1]) >= 15
    assert not done.stderr


@pytest.mark.slow
def test_every_reader_refuses_what_is_wrong_in_one_line():
    done = run("faults.fuzz", "--inputs", "15")
    assert len(re.findall("accepted, [0-9]+ refused in one line", done.stdout)) == 15


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
def test_commands_end_in_one_line_in_odd_surroundings():
    assert "every command ended" in run("faults.surroundings").stdout


def raises(error):
    def read(folder):
        raise error

    return read


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        (raises(ValueError("a\nb")), "not one line"),
        (raises(ValueError()), "not one line"),
        (raises(KeyError("x")), "KeyError"),
        (lambda folder: Path(os.environ["MARK"]).touch(), "executed"),
    ],
)
def test_a_fault_of_a_reader_is_found(tmp_path, monkeypatch, read, problem):
    monkeypatch.setenv("MARK", "")
    assert fuzz.attempt({"a.txt": b"1 2 3"}, read, tmp_path).startswith(problem)
