"""Tasks and methods of a user by name: module:Name, and entry points of installed packages."""

import json
import re
import sys
from dataclasses import replace

import pytest

from helpers.refusals import refused
from latent_tokens import METHODS, TASKS, TrainConfig, fit, from_pretrained, load, load_method, train
from latent_tokens.checkpoints import stored_methods
from latent_tokens.checkpoints.stored_methods import method_from, method_to
from latent_tokens.cli import main
from latent_tokens.core.method import name_of
from latent_tokens.data.config import DataConfig
from latent_tokens.data.datasets import make_data
from latent_tokens.plugins import installed
from latent_tokens.tasks import configured, task_named

MODULE = """
from dataclasses import dataclass, replace
import numpy as np
from latent_tokens import METHODS, Examples, TaskBase

class Pairs(TaskBase):
    length = 8
    vocab = "abcd"
    num_train = 40

    def generate(self, count, seed, first=0):
        rows = [np.random.default_rng((seed, first + i)).integers(4, size=4) for i in range(count)]
        return Examples.padded([row.repeat(2).tolist() for row in rows], 2, self.length)

    def verify(self, tokens):
        return [] if (tokens[::2] == tokens[1::2]).all() else ["two of a pair differ"]

@dataclass
class Colored(Pairs):
    colors: int = 3
    name: str = "colored"

class Half(TaskBase):
    length = 8

    def generate(self, count, seed, first=0): ...
    def verify(self, tokens): ...

def near_rule(q, k, c):
    return (k < c) | ((k <= q) & (k >= q - 2))

four = Colored(4)
near = replace(METHODS["scdm"], attention=near_rule)
near_short = replace(near, window=4)
near_named = replace(near, window=5, name="five")
short = replace(METHODS["scdm"], window=4)
number = 3
"""
SMALL = ["--size", "pico", "--steps", "1", "--num-validation", "2", "--threads", "1"]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module in the current directory, which is not on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.setattr(stored_methods, "LOADED", {})
    monkeypatch.setattr(stored_methods, "TYPED", {})
    name = f"own_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(MODULE)
    yield name
    sys.modules.pop(name, None)


def run(capsys, *arguments):
    """Return the exit code, the output and the last line of the errors of a command."""
    code = main([*map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err.splitlines()[-1] if captured.err else ""


def test_dotted_task_and_method_work_on_every_command(module, tmp_path, capsys, monkeypatch):
    own = ["--task", f"{module}:Pairs", "--method", f"{module}:near"]
    code, out, _ = run(capsys, "train", own[1], own[3], "--out", "run", "--weight", "flat", *SMALL)
    assert (code, out) == (0, "run\n")
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["task"] == {"name": "Pairs", "module": f"{module}:Pairs"}
    assert config["method"]["attention"] == f"{module}:near.attention"
    assert config["training"]["num_train"] == 40

    monkeypatch.setattr(stored_methods, "LOADED", {})  # as in another process
    code, out, _ = run(capsys, "evaluate", "run", *own, "--num-samples", 2, "--latents", 1, "--json")
    assert code == 0
    assert (json.loads(out)["task"], json.loads(out)["method"]) == ("Pairs", f"{module}:near")
    assert run(capsys, "sample", "run", *own)[1].count("valid") == 2
    code, out, _ = run(capsys, "solve", "aabb....", "--run", "run", *own)
    assert code in (0, 1)
    assert out.startswith("aabb")
    assert run(capsys, "trace", "run", "aabb....", *own, "-o", "trace.html")[0] == 0
    recorded = re.search(r'id="traces">(.*?)</script>', (tmp_path / "trace.html").read_text(), re.S)[1]
    (start,) = [events["start"] for events in json.loads(recorded)]
    assert (start["task"], start["kind"]) == ("Pairs", "sequence")
    assert start["tokens"] == [0, 0, 1, 1, None, None, None, None]
    code, _, line = run(capsys, "likelihood", "run", *own[2:], "--text", "a.txt")
    assert (code, "learned Pairs, which is not text. Use a text model." in line) == (2, True)
    assert run(capsys, "export", "run", "model", *own[2:])[:2] == (0, "model\n")

    # Next to a model with a built-in method.
    run(capsys, "train", own[1], "scdm", "--out", "other", *SMALL)
    rows = run(capsys, "evaluate", "run", "other", *own, "--num-samples", 2, "--json")[1].splitlines()
    assert [json.loads(row)["method"] for row in rows] == [f"{module}:near", "scdm"]
    compared = ["--compare", "other", "-o", "compared.html"]
    assert run(capsys, "trace", "run", "aabb....", *own, *compared)[0] == 0
    code, _, line = run(capsys, "evaluate", "other", *own)
    assert (code, "the model has another method, scdm. Leave it out." in line) == (2, True)
    assert name_of(from_pretrained("model").method) == f"{module}:near"


def test_dotted_names_are_those_of_a_run_directory(module):
    assert load_method(f"{module}:short") == replace(METHODS["scdm"], window=4)
    config = TrainConfig(f"{module}:Pairs", f"{module}:short")
    assert config.folder.name == f"{module}.Pairs-{module}.short-nano-0"


def test_task_with_other_settings_than_the_models_is_refused(module, tmp_path, capsys):
    config = TrainConfig("mine", "scdm", tmp_path / "four", "pico", steps=1, num_train=8, num_validation=2)
    out = fit(config, task=task_named(f"{module}:four"))
    fine = ["--num-train", 8, "--num-validation", 2, "--num-test", 2, "--processes", 1]
    run(capsys, "data", f"{module}:four", "--out", "data", *fine)
    code, _, line = run(capsys, "train", f"{module}:Colored", "scdm", "--data", "data", *SMALL[:4])
    assert (code, "data: has colors=4, and colored has colors=3. Make the data" in line) == (2, True)
    code, _, line = run(capsys, "sample", out, "--task", f"{module}:Colored")
    fix = "Leave it out, or name an instance with this setting, as module:name."
    assert (code, f"has colors=3, and the model learned colors=4. {fix}" in line) == (2, True)
    assert run(capsys, "sample", out, "--task", f"{module}:four", "--num-samples", "1")[0] == 0

    padded = configured("sudoku-4", {"padding": "paper"})
    out = fit(replace(config, task="sudoku-4", out=tmp_path / "padded"), task=padded)
    with refused("has padding=none, and the model learned padding=paper. Leave it out"):
        load(out, task=TASKS["sudoku-4"])
    assert load(out, task=padded).task is padded


def test_task_with_other_settings_than_its_data_set_is_refused(tmp_path):
    data, run = tmp_path / "data", tmp_path / "run"
    padded = configured("sudoku-4", {"padding": "paper"})
    make_data(DataConfig("sudoku-4", data, num_train=8, num_validation=2, num_test=2, padding="paper"))
    settings = {"data": data, "size": "pico", "steps": 1}
    with refused("has padding=paper, and the task padding=none. Use one of both"):
        train(TASKS["sudoku-4"], "scdm", out=run, **settings)
    assert not run.exists()
    for number, task in enumerate((padded, "sudoku-4")):
        assert train(task, "scdm", out=tmp_path / str(number), **settings).task.length == padded.length


def test_dotted_task_makes_a_data_set_that_trains(module, capsys):
    task = f"{module}:Pairs"
    counts = ["--num-train", 8, "--num-validation", 2, "--num-test", 2, "--processes", 1]
    assert run(capsys, "data", task, "--out", "data", *counts)[0] == 0
    assert run(capsys, "data", task, "--show", 1)[1].strip().isalpha()
    assert run(capsys, "train", task, "scdm", "--data", "data", *SMALL[:4], "--out", "run")[0] == 0
    evaluated = run(capsys, "evaluate", "run", "--task", task, "--data", "data", "--num-samples", 2, "--json")
    assert json.loads(evaluated[1])["problems"] == "data"


def test_stored_model_imports_no_code_by_itself(module, capsys, monkeypatch):
    own = ["--task", f"{module}:Pairs", "--method", f"{module}:near"]
    run(capsys, "train", own[1], own[3], "--out", "run", *SMALL)
    monkeypatch.setattr(stored_methods, "LOADED", {})
    monkeypatch.delitem(sys.modules, module)
    method = f"opening a model imports no code. Add --method {module}:near"
    for command, fix in (("evaluate", method), ("export", method), ("page", f"Add --task {module}:Pairs")):
        code, _, line = run(capsys, command, "run", *["model"] * (command == "export"))
        assert (code, fix in line) == (2, True)
    with refused(f"Add --method {module}:near where a command has it. In Python call load_method first"):
        from_pretrained("run")
    assert module not in sys.modules
    code, _, line = run(capsys, "sample", "run", *own[2:])
    assert (code, f"its task {module}:Pairs is code of another module" in line) == (2, True)


@pytest.mark.parametrize("name", ["near_short", "near_named"])
def test_method_is_stored_by_its_own_name_also_if_another_shares_its_function(
    module, name, capsys, monkeypatch
):
    load_method(f"{module}:near")
    method = load_method(f"{module}:{name}")
    assert method_to(method)["attention"] == f"{module}:{name}.attention"
    train("sudoku-4", method, out="run", size="pico", steps=1, num_validation=2, threads=1)
    monkeypatch.setattr(stored_methods, "LOADED", {})
    assert run(capsys, "sample", "run", "--method", f"{module}:{name}")[0] == 0


REFUSED = [  # a command, and its answer
    ("train MODULE:Pair scdm", "TASK 'MODULE:Pair': MODULE has no Pair. Did you mean Pairs?"),
    ("train MODULE:number scdm", "is not a task. Inherit from latent_tokens.TaskBase"),
    ("train MODULE:Half scdm", "is not a task. Inherit from latent_tokens.TaskBase"),
    ("train MODULEx:Pairs scdm", "neither in the current directory nor installed"),
    ("train MODULEx.inner:Pairs scdm", "neither in the current directory nor installed"),
    ("train MODULE: scdm", "is not of the form module:Name"),
    ("train MODULE:Pairs MODULE:number", "has the type int. Name a Method"),
    ("train broken:Pairs scdm", "(ZeroDivisionError: division by zero, in broken.py, line 1)"),
    ("train needy:Pairs scdm", "No module named 'no_such_package'"),
    ("data MODULE:Pairs --clues 3", "MODULE:Pairs has no such setting. Leave it out"),
    ("evaluate sudoku-6-scdm --task MODULE:Pairs", "has name=Pairs, and the model learned name=sudoku-6"),
    ("evaluate sudoku-6-scdm --method MODULE:short", "the model has another method, scdm"),
]


def test_names_that_cannot_be_loaded_are_refused_in_one_line(module, tmp_path, capsys):
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "needy.py").write_text("import no_such_package")
    for command, message in REFUSED:
        code, _, line = run(capsys, *command.replace("MODULE", module).split())
        assert (code, message.replace("MODULE", module) in line, len(line) < 400) == (2, True, True)


def test_entry_points_of_an_installed_package_are_names(module, tmp_path, monkeypatch):
    package = tmp_path / "own_package-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: own-package\nVersion: 1.0\n")
    names = f"[latent_tokens.tasks]\npairs = {module}:Pairs\n[latent_tokens.methods]\nnear = {module}:near\n"
    (package / "entry_points.txt").write_text(names)
    monkeypatch.syspath_prepend(str(tmp_path))
    installed.cache_clear()
    try:
        assert task_named("pairs").vocab_size == 4
        assert load_method("near").name == "near"
        row = method_to(load_method("near"))
        monkeypatch.setattr(stored_methods, "LOADED", {})
        assert name_of(method_from(row)) == "near"
        with refused("task=pair: must be one of ", " text, module:Name. Did you mean pairs"):
            task_named("pair")
    finally:
        installed.cache_clear()
