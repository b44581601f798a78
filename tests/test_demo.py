"""The parts of the demo: rows from several processes, threads, and an installation without extras."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from helpers.refusals import refused
from helpers.runs import tiny_run
from latent_tokens import TASKS, EvalConfig, evaluate, fit, from_pretrained
from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.checks import MOST_THREADS
from latent_tokens.configs import DemoConfig, TrainConfig
from latent_tokens.evaluation.evaluate import evaluate_in_parallel

ROOT = Path(__file__).parents[1]
CLOCK = ("seconds", "samples_per_second", "made_with")


def timeless(row):
    return {name: value for name, value in row.items() if name not in CLOCK}


def test_rows_of_two_processes_are_those_of_one():
    folder = BUNDLED / "sudoku-6-scdm"
    top_prob = EvalConfig(latents=(0, "all"), candidates=4, num_samples=3)
    configs = [top_prob, replace(top_prob, latents=None, candidates=None, order="uniform")]
    kept = []
    rows = evaluate_in_parallel(folder, "sudoku-6", configs, 2, on_row=kept.append)
    expected = [
        row
        for config in configs
        for row in evaluate(from_pretrained(folder), TASKS["sudoku-6"], replace(config, threads=1))
    ]
    assert list(map(timeless, rows)) == list(map(timeless, expected))
    assert [row["threads"] for row in rows] == [1, 1, 1]
    assert kept == rows


def test_threads_hold_during_training_and_evaluation_only(tmp_path, monkeypatch):
    seen = []

    def batches(*arguments, original=torch.Tensor.backward, **named):
        seen.append(torch.get_num_threads())
        return original(*arguments, **named)

    monkeypatch.setattr(torch.Tensor, "backward", batches)
    run = fit(tiny_run(tmp_path / "run", steps=2, threads=2))
    fit(tiny_run(tmp_path / "free", steps=2))
    assert set(seen) == {1, 2}
    assert torch.get_num_threads() == 1
    net = from_pretrained(run)
    for threads, used in ((2, 2), (None, 1)):
        (row,) = evaluate(net, TASKS["sudoku-4"], EvalConfig(num_samples=2, threads=threads))
        assert row["threads"] == used
        assert torch.get_num_threads() == 1


def test_threads_are_not_stored_and_may_change_on_resume(tmp_path):
    config = tiny_run(tmp_path / "run", steps=2, threads=2)
    stored = json.loads((fit(config) / "config.json").read_text())["training"]
    assert "threads" not in stored
    fit(replace(config, threads=1, resume="yes"))


@pytest.mark.parametrize("threads", [0, 1.5, True, MOST_THREADS + 1])
def test_a_wrong_number_of_threads_is_refused(threads):
    for config in (partial(TrainConfig, "sudoku-4", "scdm"), EvalConfig, DemoConfig):
        with refused(f"threads={threads}: must be"):
            config(threads=threads)


@pytest.mark.parametrize("wrong", [{"scale": "tiny"}, {"precision": "fp16"}, {"seed": -1}])
def test_demo_refuses_an_unknown_value(wrong):
    with refused(f"{next(iter(wrong))}="):
        DemoConfig(**wrong)


def test_demo_takes_the_text_of_a_directory():
    assert DemoConfig("runs/demo").out == Path("runs/demo")


def test_the_demo_needs_no_extra():
    """Make the libraries of the extras unavailable, as if they were not installed."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {
        re.match(r"[\w-]+", requirement)[0].replace("-", "_")
        for extra in extras.values()
        for requirement in extra
    } - {"latent_tokens"}
    assert {"transformers", "peft", "pytest"} <= names
    code = (
        f"import sys\nsys.modules |= dict.fromkeys({sorted(names)!r})\n"
        "from latent_tokens import demo\nfrom latent_tokens.commands.page import run_demo"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_make_demo_installs_no_extra(tmp_path):
    """A developer's environment is used as it is."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)

    def commands(target):
        done = subprocess.run(
            ["make", "-n", target], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert "-e . -c constraints.txt" in commands("demo")
    assert "[dev]" not in commands("demo")
    assert "[dev]" in commands("test")
    assert "[dev]" in commands("release-models")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".ready").touch()
    assert "pip install" not in commands("demo")
    assert "latent-tokens demo --out runs/demo" in commands("demo")
