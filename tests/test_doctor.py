"""The doctor passes a correct installation, and names each deliberate fault with its fix."""

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
from latent_tokens.checkpoints.files import bundled_names
from latent_tokens.cli import main
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


def findings_of(printed):
    """Return the JSON lines of a doctor by subject."""
    return {finding["about"]: finding for finding in map(json.loads, printed.splitlines())}


def doctor_without(absent, folder, **environment):
    """Return the exit code and the findings of a process in which a library cannot be imported."""
    command = [sys.executable, "-c", WITHOUT.format(absent=absent)]
    settings = {"cwd": folder, "env": os.environ | environment, "capture_output": True, "text": True}
    done = subprocess.run(command, **settings, check=False)
    assert done.stderr == ""
    return done.returncode, findings_of(done.stdout)


def test_working_part_is_reported_as_ok(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--json"]) == 0
    findings = findings_of(capsys.readouterr().out)
    assert {finding["verdict"] for finding in findings.values()} <= {"ok", "note"}
    assert findings["torch"]["found"] == torch.__version__
    for about in ("latent-tokens", *(f"model {name}" for name in bundled_names())):
        assert findings[about]["verdict"] == "ok"
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize("absent", ["torch", "safetensors"])
def test_broken_library_is_named_and_the_doctor_goes_through(absent, tmp_path):
    code, findings = doctor_without(absent, tmp_path)
    assert code == 1
    assert absent in findings["self-test"]["found"]


def test_a_sampler_that_is_wrong_is_seen(monkeypatch):
    """The fake sampler never draws token 0, so its samples are wrong."""
    real = fast.generate

    def sharp(*arguments, seed):
        made = real(*arguments, seed=seed)
        return type(made)(made.tokens.where(made.tokens > 0, 1), made.order, made.processed, made.passes)

    monkeypatch.setattr(fast, "generate", sharp)
    (finding,) = [finding for finding in self_test() if finding.about == "model sudoku-6-scdm"]
    assert finding.verdict == "problem"


def test_a_model_that_was_damaged_in_a_copied_package_is_named(tmp_path):
    """Truncated, changed and complete models in one directory: each is named, and all are checked."""
    package = tmp_path / "latent_tokens"
    no_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(latent_tokens.__file__).parent, package, ignore=no_caches)
    names = ("sudoku-6-arm", "sudoku-6-mdm")
    cut, changed = (package / "bundled" / name / "model.safetensors" for name in names)
    cut.write_bytes(cut.read_bytes()[:-1000])
    content = changed.read_bytes()
    changed.write_bytes(content[:-20_000] + content[-40_000:-20_000])
    code, findings = doctor_without("nothing", tmp_path, PYTHONPATH=str(tmp_path))
    assert code == 1
    problems = {about for about, finding in findings.items() if finding["verdict"] == "problem"}
    assert problems == {f"model {name}" for name in names}
    assert "corrupt" in findings["model sudoku-6-arm"]["found"]
    assert "its logits differ" in findings["model sudoku-6-mdm"]["found"]
    assert "pip install --force-reinstall" in findings["model sudoku-6-mdm"]["hint"]
