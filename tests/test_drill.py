"""After a few faults of each kind, a run equals an uninterrupted one. `make drill` runs hundreds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.documentation import ROOT


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="it counts threads, and finds processes, in /proc"
)
def test_a_run_survives_a_handful_of_faults_of_each_kind():
    """In a separate process: it forks, which a process with threads must not."""
    command = [sys.executable, "-m", "faults.drill", "--short"]
    path = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"faults injected (\d+)", done.stdout)[1]) >= 20
    assert "wrong results 0" in done.stdout
    assert not done.stderr
