"""A short `make fuzz`, and tests that it detects each problem."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from faults import fuzz
from helpers.documentation import ROOT
from helpers.refusals import refused
from latent_tokens.storage import read_lines


@pytest.mark.slow
def test_every_reader_refuses_what_is_wrong_in_one_line():
    """In a separate process: it forks, which a process with threads must not."""
    path = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "faults.fuzz", "--inputs", "30"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "wrong results 0" in done.stdout
    assert len(re.findall("accepted, [0-9]+ refused in one line", done.stdout)) == 15


def two_lines(folder):
    raise ValueError("a\nb")


def nothing(folder):
    raise ValueError


def executes(folder):
    Path(os.environ["MARK"]).touch()


FAULTS = {
    "two lines": (two_lines, "not one line"),
    "no line": (nothing, "not one line"),
    "another error": (lambda folder: {}["x"], "KeyError"),
    "a call": (executes, "executed"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_reader_is_found(tmp_path, monkeypatch, name):
    monkeypatch.setenv("MARK", "")
    read, problem = FAULTS[name]
    assert fuzz.attempt({"a.txt": b"1 2 3"}, read, tmp_path).startswith(problem)


def test_line_that_is_not_a_row_is_named(tmp_path):
    path = tmp_path / "x.jsonl"
    for text, part in (
        ("3\n", "line 1: is not a row of JSON"),
        ("[" * 100_000 + "\n", "line 1: is not a row"),
        ('{"a": 1}\n' + "1" * 5_000 + "\n", "line 2: is not a row"),
    ):
        path.write_text(text)
        with refused(part):
            read_lines(path)
