"""Every command and every line of Python in the README, the manual and docstrings runs."""

import doctest
import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import latent_tokens
from helpers.documentation import ENVIRONMENT, ROOT, blocks, commands, run
from latent_tokens import TASKS
from latent_tokens.cli import main
from latent_tokens.core.attention import semi_causal

sys.path.append(str(ROOT / "scripts"))

from lint_docs import example, public

README = (ROOT / "README.md").read_text()
COMMANDS = [command.split("#")[0].strip() for command in commands(README)]
# Shorter runs than a reader has, in the same commands and lines of Python.
SHORTER = {
    "bench --sizes nano --lengths 16": "bench --sizes nano --lengths 6",
    "--text README.md": "--text start.md",
    # The board of the large GIF, with 8 masked cells: 8 steps to draw instead of 45.
    ".942....51...34..9.2..9..8..429...13..5.6.89.9..3.....839.25.4...74.9.3.45..7..2.": (
        ".942....51...34279523796481642958713375162894918347652839625147267419538451873926"
    ),
    "--steps 600 --warmup 20 --evaluate-every 200": (
        "--steps 6 --warmup 2 --evaluate-every 3 --num-train 64 --num-validation 8"
    ),
    "--num-samples 500": "--num-samples 4",
    "range(300)": "range(100)",
    'SIZES["nano"]': 'SIZES["pico"]',
}
OF_README = {
    "train": "--steps 4 --num-train 64 --num-validation 8 --save-every 2",
    "evaluate": "--num-samples 4",
    "data": "--num-train 64",
    "reproduce": "--scale smoke",
    "bench": "--sizes nano --lengths 6 --train nano:4x6 --rounds 1",
}


def page(name):
    """Return a page of the manual with shorter runs."""
    text = (ROOT / "docs" / name).read_text()
    for long, short in SHORTER.items():
        text = text.replace(long, short)
    return text


def execute(code, name):
    exec(compile(code, name, "exec"), {"__name__": name})


def test_each_shortened_line_is_on_a_page():
    manual = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    assert [long for long in SHORTER if long not in manual] == []


@pytest.mark.slow
@pytest.mark.usefixtures("brief_look")
@pytest.mark.parametrize(
    ("name", "least", "written"),
    [
        ("concepts.md", 3, ""),
        ("hugging-face.md", 2, "models/sudoku-9/README.md"),
        ("index.md", 2, ""),
        ("performance.md", 1, ""),
        ("results.md", 3, ""),
        ("text.md", 2, "runs/manual"),
        ("tasks.md", 20, "data/small/manifest.json"),
        ("watching.md", 5, "decode.png"),
    ],
)
def test_commands_of_a_page_run(tmp_path, name, least, written):
    (tmp_path / "README.md").write_text(README)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "results" / "cpu").mkdir(parents=True)
    shutil.copy(ROOT / "results" / "cpu" / "rows.jsonl", tmp_path / "results" / "cpu")
    (tmp_path / "start.md").write_text(README[:500])
    typed = commands(page(name))
    assert len(typed) >= least
    run(typed, tmp_path)
    assert (tmp_path / written).exists()
    if name == "tasks.md":
        splits = json.loads((tmp_path / written).read_text())["splits"]
        assert [splits[split]["examples"] for split in ("train", "validation", "test")] == [247, 23, 18]


def test_page_on_tasks_shows_the_first_puzzle():
    shown = TASKS["sudoku-6-puzzle"].generate(1, seed=0).tokens[0].tolist()
    for heading, cells in (("puzzle  ", shown[1:37]), ("solution", shown[38:])):
        rows = (" ".join(map(str, cells[start : start + 6])) for start in range(0, 36, 6))
        assert f"{heading} {'   '.join(rows)}" in page("tasks.md")


PYTHON = ("concepts.md", "own-network.md", "watching.md")
LONGER = ("own-method.md", "own-task.md", "adapting.md")


@pytest.mark.parametrize("name", [*PYTHON, *(pytest.param(name, marks=pytest.mark.slow) for name in LONGER)])
def test_python_of_a_page_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks((ROOT / "docs" / name).read_text(), "python"))
    assert code
    execute(code.replace("steps=200", "steps=20"), name)
    assert capsys.readouterr().out or "assert" in code


@pytest.mark.slow
def test_python_of_the_page_on_hugging_face_runs(tmp_path):
    pytest.importorskip("peft")
    lines = blocks(page("hugging-face.md"), "python")
    assert len(lines) == 9
    settings = {"cwd": tmp_path, "env": ENVIRONMENT | {"HF_HOME": str(tmp_path / "home")}}
    command = [sys.executable, "-c", "".join(lines)]
    done = subprocess.run(command, **settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "torch.Size([2, 36, 7])" in done.stdout
    assert "torch.Size([2, 36]) 35 [" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "block", "module"), [("own-task.md", 0, "my_task"), ("own-method.md", 1, "my_method")]
)
def test_commands_of_a_page_run_with_its_module(name, block, module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    text = (ROOT / "docs" / name).read_text()
    (tmp_path / f"{module}.py").write_text(blocks(text, "python")[block])
    typed = [line for line in commands(text) if f"{module}:" in line]
    assert len(typed) >= 2
    for command in typed:
        assert main(shlex.split(command)[1:]) in (0, 1), command  # 1 is an unsolved puzzle
    if name == "own-task.md":
        rows = (tmp_path / "runs/mine/results.jsonl").read_text().splitlines()
        assert [json.loads(row)["valid"] > 95 for row in rows] == [True, True]


@pytest.mark.slow
def test_tutorial_runs_from_its_first_command_to_its_last(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    parts = re.findall(r"```(bash|python)\n(.*?)```", page("tutorial.md"), re.S)
    assert " ".join(kind for kind, _ in parts) == "bash bash bash python bash python bash python"
    for kind, block in parts:
        if kind == "bash":
            run([line for line in block.splitlines() if line], tmp_path)
        else:
            execute(block, "tutorial")
    assert (tmp_path / "runs/four/curve.png").stat().st_size > 5_000
    out = capsys.readouterr().out
    assert re.search(r"^step 100: loss [\d.]+ nats per token$", out, re.M)
    assert len(re.findall(r"^step \d+: row [1-4] column [1-4] is [1-4]; latents", out, re.M)) == 14


@pytest.mark.slow
@pytest.mark.usefixtures("brief_look")
def test_readme_commands_run(tmp_path):
    """The make targets that run tests or checks are left out."""
    (tmp_path / "README.md").write_text(README)
    typed = [command for command in COMMANDS if command.startswith("latent-tokens")]
    others = {command.split()[0] for command in COMMANDS} - {"latent-tokens"}
    assert others == {"git", "cd", "python3", "source", "pip", "make"}
    assert len(typed) >= 5
    run([f"{command} {OF_README.get(command.split()[1], '')}" for command in typed], tmp_path)
    targets = {command.split()[1] for command in COMMANDS if command.startswith("make")}
    demonstrations = targets - {"test", "check", "setup"}
    assert demonstrations
    run([f"make {target} DEMO=smoke OUT={tmp_path / target}" for target in demonstrations], ROOT)


@pytest.mark.slow
def test_readme_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(README, "python")
    assert "num_samples=100" in block
    execute(block.replace("num_samples=100", "num_samples=4"), "readme")
    assert capsys.readouterr().out


@pytest.mark.slow
def test_examples_of_docstrings_run():
    """Those with a prompt. The others train, or use the Hub. Two use a data set."""
    model = latent_tokens.load("sudoku-6-scdm")
    names = {name: getattr(latent_tokens, name) for name in latent_tokens.__all__}
    names |= {"torch": torch, "np": np, "net": model.net, "model": model, "task": model.task}
    names |= {"semi_causal": semi_causal, "DataLoader": DataLoader}
    run = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    examples = {name: example(inspect.getdoc(thing)) for name, thing in public().items()}
    prompted = {name for name, code in examples.items() if ">>>" in code}
    assert len(prompted) > 40
    for name in prompted - {"load_data", "make_data"}:
        test = doctest.DocTestParser().get_doctest(examples[name] + "\n", dict(names), name, None, None)
        run.run(test)
    assert run.failures == 0


def test_public_names_to_keep_resolve():
    lines = (ROOT / "tests" / "data" / "public_names.txt").read_text().splitlines()
    fates = dict(line.split() for line in lines if not line.startswith("#"))
    kept = [name for name, fate in fates.items() if fate == "keep"]
    assert set(fates.values()) <= {"keep", "research", "gone"}
    assert set(latent_tokens.__all__) <= set(fates)
    assert len(kept) > 60
    assert [name for name in kept if not hasattr(latent_tokens, name)] == []
