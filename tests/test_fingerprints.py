"""Values that no refactoring changes: losses, samples, recipe hashes, version 0.1 files and loss curves."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GOLDEN = json.loads((ROOT / "tests" / "data" / "golden_curves.json").read_text())
sys.path.append(str(ROOT / "scripts"))

from fingerprints import differences  # noqa: E402
from golden_curves import TRAINED, curve  # noqa: E402


@pytest.mark.slow
def test_fingerprints_are_those_that_are_stored():
    command = [sys.executable, str(ROOT / "scripts" / "fingerprints.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_differences_of_fingerprints_are_listed_by_name():
    stored = {"mdm": {"losses": ["0x1.0000000000000p+0", "0x1.8p+1"], "sample": "a"}, "gone": 1}
    found = {"mdm": {"losses": ["0x1.0000001000000p+0", "0x1.9p+1"], "sample": "b"}, "new": [2]}
    assert differences(stored, stored) == []
    assert differences(stored, found) == [
        "gone: 1 before, nothing now",
        "mdm / losses / 1: 0x1.8p+1 before, 0x1.9p+1 now",
        "mdm / sample: a before, b now",
        "new / 0: nothing before, 2 now",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("method", GOLDEN)
def test_loss_curve_stays_within_the_spread_of_seeds(method, tmp_path):
    found = curve(method, 0, tmp_path)
    assert found.keys() == GOLDEN[method].keys()
    for point, (mean, tolerance) in GOLDEN[method].items():
        assert found[point] == pytest.approx(mean, abs=tolerance), point


def test_every_method_has_a_golden_curve():
    assert list(GOLDEN) == TRAINED
