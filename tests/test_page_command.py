"""latent-tokens page: one file with models in it, and what it refuses."""

import json
import re
import webbrowser

import pytest

from latent_tokens import TASKS, TrainConfig, fit
from latent_tokens.cli import main
from latent_tokens.commands.page import BUNDLED

TINY = {"size": "pico", "steps": 1, "batch_size": 4, "num_train": 8, "num_validation": 8, "precision": "fp32"}


def contents(file, name):
    """Return the JSON in an element of a page."""
    text = file.read_text()
    return json.loads(
        re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', text, re.S)[1]
    )


def test_page_has_the_bundled_models_in_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert main(["page"]) == 0
    file = tmp_path / "latent-tokens.html"
    assert capsys.readouterr().out == f"latent-tokens.html  ({file.stat().st_size / 1e6:.1f} MB)\n"
    assert file.stat().st_size < 5_000_000
    assert [entry["name"] for entry in contents(file, "entries")] == list(BUNDLED)
    assert list(contents(file, "weights")) == list(BUNDLED)
    assert contents(file, "record")["model"] == "sudoku-6-scdm"
    assert contents(file, "traces") == []
    assert opened == []


def test_page_has_the_named_runs_in_their_order_and_opens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    fit(TrainConfig(task="sudoku-4", method="sidm", out=tmp_path / "four", **TINY))
    assert main(["page", "four", "sudoku-6-mdm", "four", "-o", "own.html", "--open"]) == 0
    file = tmp_path / "own.html"
    entries = contents(file, "entries")
    assert [(entry["name"], entry["side"], entry["method"]) for entry in entries] == [
        ("four", 4, "sidm"),
        ("sudoku-6-mdm", 6, "mdm"),
    ]
    assert contents(file, "record") is None  # it is of sudoku-6-scdm
    assert opened == [file.as_uri()]
    before = file.read_bytes()
    assert main(["page", "four", "-o", "own.html"]) == 2
    assert file.read_bytes() == before
    assert main(["page", "four", "-o", "own.html", "--replace"]) == 0
    assert file.read_bytes() != before


@pytest.mark.parametrize("task", ["zebra-3", "countdown-3"])
def test_page_refuses_other_tasks_in_one_line(tmp_path, monkeypatch, capsys, task):
    monkeypatch.chdir(tmp_path)
    fit(TrainConfig(task=TASKS[task].name, method="scdm", out=tmp_path / "run", **TINY))
    capsys.readouterr()
    assert main(["page", "run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("latent-tokens: run: A page decodes with models of sudoku-4, ")
    assert line.endswith(" or record one decode: latent-tokens trace RUN PUZZLE -o FILE.")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_page_runs_its_own_scripts_and_requests_nothing(tmp_path):
    file = tmp_path / "page.html"
    assert main(["page", "sudoku-6-scdm", "-o", str(file)]) == 0
    text = file.read_text()
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', text)
    directives = dict(directive.split(" ", 1) for directive in policy.split("; "))
    assert directives["default-src"] == "'none'"
    assert "connect-src" not in directives
    sources = directives["script-src"].split()
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert len(sources) == len(scripts) + 1 == 4
    assert all(source.startswith("'sha256-") for source in sources[:-1])
    assert sources[-1] == "'wasm-unsafe-eval'"
