"""The doctor passes a correct installation, and names each deliberate fault with its fix."""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch

import latent_tokens
from latent_tokens.checkpoints.files import bundled_names
from latent_tokens.cli import main
from latent_tokens.commands import doctor
from latent_tokens.commands.doctor import Finding
from latent_tokens.network import fast


def of(findings, about):
    """Return the finding about a subject."""
    (found,) = [finding for finding in findings if finding.about == about]
    return found


def test_working_part_is_reported_as_ok(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--json"]) == 0
    findings = [Finding(**json.loads(line)) for line in capsys.readouterr().out.splitlines()]
    assert {finding.verdict for finding in findings} <= {"ok", "note"}
    assert of(findings, "torch").found == torch.__version__
    for about in ("latent-tokens", *(f"model {name}" for name in bundled_names())):
        assert of(findings, about).verdict == "ok"
    assert list(tmp_path.iterdir()) == []


def test_doctor_prints_one_line_per_finding(monkeypatch, capsys):
    few = [
        Finding("disk", "ok", "8 GB free"),
        Finding("torch", "problem", "not installed", "pip install torch"),
        Finding("threads", "note", "1"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda: iter(few))
    assert main(["doctor"]) == 1
    plain = capsys.readouterr().out
    assert plain.splitlines() == [
        "ok      disk: 8 GB free",
        "problem torch: not installed -> pip install torch",
        "note    threads: 1",
        "1 problem",
    ]
    monkeypatch.setattr(doctor, "examine", lambda: iter(few[:1]))
    assert main(["doctor"]) == 0


def lacking(monkeypatch, absent, instead=None):
    """Make a library missing, or of another version."""
    real = doctor.version

    def version(name):
        if name != absent:
            return real(name)
        if instead is None:
            raise PackageNotFoundError(name)
        return instead

    monkeypatch.setattr(doctor, "version", version)


def test_library_that_is_missing_or_too_old(monkeypatch):
    monkeypatch.setattr(doctor, "self_test", lambda: iter(()))
    lacking(monkeypatch, "numba")
    found = of(list(doctor.examine()), "numba")
    assert (found.verdict, found.found) == ("problem", "not installed")
    assert found.hint.startswith("pip install 'numba")
    lacking(monkeypatch, "torch", "1.13.0")
    found = of(list(doctor.examine()), "torch")
    assert found.verdict == "problem"
    assert found.found.startswith("1.13.0, and ")


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


@pytest.mark.parametrize("absent", ["torch", "numba", "jaxtyping", "safetensors"])
def test_broken_library_is_named_and_the_doctor_goes_through(absent, tmp_path):
    command = [sys.executable, "-c", WITHOUT.format(absent=absent)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    findings = [Finding(**json.loads(line)) for line in done.stdout.splitlines()]
    assert absent in of(findings, "self-test").found


def test_a_sampler_that_is_wrong_is_seen(monkeypatch):
    """The fake sampler never draws token 0, so its samples are wrong."""
    real = fast.generate

    def sharp(*arguments, seed):
        made = real(*arguments, seed=seed)
        return type(made)(made.tokens.where(made.tokens > 0, 1), made.order, made.processed, made.passes)

    monkeypatch.setattr(fast, "generate", sharp)
    assert of(list(doctor.self_test()), "model sudoku-6-scdm").verdict == "problem"


def test_a_model_that_was_damaged_in_a_copied_package_is_named(tmp_path):
    """Truncated, changed and complete models in one directory: each is named, and all are checked."""
    shutil.copytree(
        Path(latent_tokens.__file__).parent,
        tmp_path / "latent_tokens",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    bundled = tmp_path / "latent_tokens" / "bundled"
    cut, changed = (bundled / name / "model.safetensors" for name in ("sudoku-6-arm", "sudoku-6-mdm"))
    cut.write_bytes(cut.read_bytes()[:-1000])
    content = changed.read_bytes()
    changed.write_bytes(content[:-20_000] + content[-40_000:-20_000])
    script = "import sys; from latent_tokens.cli import main; sys.exit(main(['doctor', '--json']))"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    findings = [Finding(**json.loads(line)) for line in done.stdout.splitlines()]
    assert {finding.about for finding in findings if finding.verdict == "problem"} == {
        "model sudoku-6-arm",
        "model sudoku-6-mdm",
    }
    assert "corrupt" in of(findings, "model sudoku-6-arm").found
    assert "its logits differ" in of(findings, "model sudoku-6-mdm").found
    assert "pip install --force-reinstall" in of(findings, "model sudoku-6-mdm").hint
