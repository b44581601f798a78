"""latent-tokens page: one file with models in it, what it refuses, and how its scripts are joined."""

import json
import re
import webbrowser

import pytest

from helpers.page import model
from latent_tokens import TASKS, TrainConfig, fit
from latent_tokens.cli import main
from latent_tokens.commands.page import BUNDLED
from latent_tokens.page.document import site_of
from latent_tokens.page.inline import SOURCES, script_of

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
    assert file.stat().st_size <= 2_400_000
    page = contents(file, "contents")
    assert [entry["name"] for entry in page["entries"]] == list(BUNDLED)
    assert contents(file, "weights-0")["config"]["task"]["name"] == "sudoku-6"
    assert page["record"]["model"] == "sudoku-6-scdm"
    assert contents(file, "traces") == []
    assert opened == []


def test_page_has_the_named_runs_in_their_order_and_opens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    fit(TrainConfig(task="sudoku-4", method="sidm", out=tmp_path / "four", **TINY))
    assert main(["page", "four", "sudoku-6-mdm", "four", "-o", "own.html", "--open"]) == 0
    file = tmp_path / "own.html"
    entries = contents(file, "contents")["entries"]
    assert [(entry["name"], entry["side"], entry["method"]) for entry in entries] == [
        ("four", 4, "sidm"),
        ("sudoku-6-mdm", 6, "mdm"),
    ]
    assert contents(file, "contents")["record"] is None  # it is of sudoku-6-scdm
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
    assert len(sources) == len(scripts) + 1 == 2
    assert sources[0].startswith("'sha256-")
    assert sources[1] == "'wasm-unsafe-eval'"


def test_site_has_every_model_and_the_weights_of_the_first(tmp_path):
    files = site_of([model("sudoku-6-scdm"), model("sudoku-9-scdm")])
    assert list(files) == ["index.html", "sudoku-9-scdm.json"]
    assert len(files["index.html"]) < 2_500_000
    assert "connect-src 'self'" in files["index.html"]
    assert json.loads(files["sudoku-9-scdm.json"])["config"]["task"]["name"] == "sudoku-9"


MODULES = {
    "a": 'import { b } from "./b.js";\nimport { c } from "./c.js";\n\nexport const a = b + c();\n',
    "b": "export const b = 1;\n",
    "c": 'import { b } from "./b.js";\n\nexport async function c() {}\nexport class D {}\n',
}


def joined(folder, **changes):
    """The modules of a folder as one script."""
    for name, source in {**MODULES, **changes}.items():
        (folder / f"{name}.js").write_text(source)
    return script_of("a", folder)


def test_modules_are_joined_in_the_order_of_their_imports(tmp_path):
    script = joined(tmp_path)
    parts = ["const b = 1;", "async function c() {}", "class D {}", "const a = b + c();"]
    assert [script.count(part) for part in parts] == [1] * 4
    assert sorted(parts, key=script.index) == parts
    assert not re.search(r"^(import|export)\b", script, re.M)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"b": 'import { a } from "./a.js";\nexport const b = a;\n'},
            "a.js: imports itself",
        ),
        ({"c": "const b = 2;\nexport const c = b;\n"}, "c.js: b is also in b.js"),
        ({"b": "export default 1;\n"}, "b.js: 'export default 1;' cannot be joined"),
        ({"b": 'import * as d from "./c.js";\n'}, "b.js: 'import * as d"),
        ({"b": 'export { c } from "./c.js";\n'}, "b.js: 'export { c }"),
        ({"b": "const { b, c } = {};\n"}, "b.js: 'const { b, c } = {};'"),
    ],
)
def test_modules_of_another_form_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        joined(tmp_path, **changes)


def test_sources_of_the_page_stay_small():
    lines = sum(path.read_text().count("\n") for path in SOURCES.glob("*.js"))
    assert lines <= 4_800, "the page has at most 4,800 lines of JavaScript"
