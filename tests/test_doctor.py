"""The doctor names each deliberate fault of an installation with its fix. tests/test_wheel.py has none."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

import latent_tokens
from latent_tokens.commands.doctor import installed, self_test
from latent_tokens.network import fast

WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, *others):
        if name.partition(".")[0] == {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}")
sys.meta_path.insert(0, Absent())
from latent_tokens.cli import main
sys.exit(main(["doctor", "--json"]))
"""


def doctor_without(absent, folder, **environment):
    """Return the exit code and the findings of a process in which a library cannot be imported."""
    command = [sys.executable, "-c", WITHOUT.format(absent=absent)]
    settings = {"cwd": folder, "env": os.environ | environment, "capture_output": True, "text": True}
    done = subprocess.run(command, **settings, check=False)
    assert done.stderr == ""
    findings = map(json.loads, done.stdout.splitlines())
    return done.returncode, {finding["about"]: finding for finding in findings}


@pytest.mark.parametrize(
    ("requirement", "found", "hint"),
    [
        ("no-such-library>=2", "not installed", "pip install 'no-such-library>=2'"),
        ("torch<1.0", f"{torch.__version__}, and <1.0 is needed", "pip install 'torch<1.0'"),
    ],
)
def test_library_that_is_missing_or_too_old_is_a_problem(requirement, found, hint):
    finding = installed(Requirement(requirement))
    assert (finding.verdict, finding.found, finding.hint) == ("problem", found, hint)


def test_broken_library_is_named_and_the_doctor_goes_through(tmp_path):
    code, findings = doctor_without("torch", tmp_path)
    assert code == 1
    assert "torch" in findings["self-test"]["found"]


def test_a_sampler_that_is_wrong_is_seen(monkeypatch):
    """The fake sampler never draws token 0, so its samples are wrong."""
    real = fast.generate

    def sharp(*arguments, seed):
        made = real(*arguments, seed=seed)
        return type(made)(made.tokens.where(made.tokens > 0, 1), made.order, made.processed, made.passes)

    monkeypatch.setattr(fast, "generate", sharp)
    finding = next(finding for finding in self_test() if finding.about == "model sudoku-6-scdm")
    assert finding.verdict == "problem"


@pytest.mark.slow
def test_damaged_models_of_a_copied_package_are_named(tmp_path):
    """One is truncated, one is changed, and one is complete."""
    package = tmp_path / "latent_tokens"
    left_out = shutil.ignore_patterns("__pycache__", "sudoku-9-*", "sudoku-6-sidm", "sudoku-6-ar-mtp")
    shutil.copytree(Path(latent_tokens.__file__).parent, package, ignore=left_out)
    truncated, changed = (package / f"bundled/sudoku-6-{name}/model.safetensors" for name in ("arm", "mdm"))
    truncated.write_bytes(truncated.read_bytes()[:-1000])
    content = changed.read_bytes()
    changed.write_bytes(content[:-20_000] + content[-40_000:-20_000])
    code, findings = doctor_without("nothing", tmp_path, PYTHONPATH=str(tmp_path))
    assert code == 1
    problems = {about for about, finding in findings.items() if finding["verdict"] == "problem"}
    assert problems == {"model sudoku-6-arm", "model sudoku-6-mdm"}
    assert findings["torch"]["found"] == torch.__version__
    assert findings["model sudoku-6-scdm"]["verdict"] == "ok"
    assert "corrupt" in findings["model sudoku-6-arm"]["found"]
    assert "its logits differ" in findings["model sudoku-6-mdm"]["found"]
    assert "pip install --force-reinstall" in findings["model sudoku-6-mdm"]["hint"]
