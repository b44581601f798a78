"""The page as files: its models, what it refuses, its policy, and how its scripts are joined."""

import json
import re
import runpy
import webbrowser
from dataclasses import replace

import pytest
import yaml
from PIL import Image

from helpers.documentation import ROOT
from helpers.page import SIX, decoded, model
from helpers.refusals import refused
from helpers.runs import tiny_run
from latent_tokens import METHODS, SIZES, TASKS, Transformer, fit
from latent_tokens.checkpoints.files import find
from latent_tokens.cli import main
from latent_tokens.commands.page import BUNDLED
from latent_tokens.page import models
from latent_tokens.page.document import page_with, read_asset
from latent_tokens.page.inline import script_of
from latent_tokens.palette import PAGE
from latent_tokens.trace.record import LoadedModel


@pytest.fixture(scope="module")
def six():
    return model("sudoku-6-scdm")


@pytest.fixture
def addresses(tmp_path, monkeypatch):
    """Return the addresses that the browser opens, in an empty current directory."""
    opened = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(webbrowser, "open", opened.append)
    return opened


def contents(page, name):
    """Return the JSON in an element of a page."""
    return json.loads(
        re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.S)[1]
    )


def test_page_has_the_bundled_models_and_its_own_scripts_only(tmp_path, addresses, capsys):
    assert main(["page"]) == 0
    file = tmp_path / "latent-tokens.html"
    assert capsys.readouterr().out == f"latent-tokens.html  ({file.stat().st_size / 1e6:.1f} MB)\n"
    assert file.stat().st_size <= 2_400_000
    assert addresses == []
    page = file.read_text()
    assert [entry["name"] for entry in contents(page, "contents")["entries"]] == list(BUNDLED)
    assert contents(page, "weights-0")["config"]["task"]["name"] == "sudoku-6"
    assert contents(page, "contents")["record"]["model"] == "sudoku-6-scdm"
    assert contents(page, "traces") == []

    # The policy allows one script and WebAssembly, and no request.
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', page)
    directives = dict(directive.split(" ", 1) for directive in policy.split("; "))
    assert directives["default-src"] == "'none'"
    assert "connect-src" not in directives
    assert re.fullmatch(r"'sha256-\S+' 'wasm-unsafe-eval'", directives["script-src"])
    assert len(re.findall(r"<script>", page)) == 1


def test_page_has_the_named_runs_in_their_order_and_opens(tmp_path, addresses):
    fit(tiny_run(tmp_path / "four", "sidm", steps=1))
    assert main(["page", "four", "sudoku-6-mdm", "four", "-o", "own.html", "--open"]) == 0
    file = tmp_path / "own.html"
    page = contents(file.read_text(), "contents")
    entries = [(entry["name"], entry["side"], entry["method"]) for entry in page["entries"]]
    assert entries == [("four", 4, "sidm"), ("sudoku-6-mdm", 6, "mdm")]
    assert page["record"] is None  # it is of sudoku-6-scdm
    assert addresses == [file.as_uri()]
    before = file.read_bytes()
    assert main(["page", "four", "-o", "own.html"]) == 2
    assert file.read_bytes() == before
    assert main(["page", "four", "-o", "own.html", "--replace"]) == 0
    assert file.read_bytes() != before


def test_page_refuses_another_task_in_one_line(tmp_path, addresses, capsys):
    fit(tiny_run(tmp_path / "run", task="countdown-3", steps=1))
    capsys.readouterr()
    assert main(["page", "run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("latent-tokens: run: A page decodes with models of sudoku-4, ")
    assert line.endswith(" or record one decode: latent-tokens trace RUN PUZZLE -o FILE.")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_models_that_a_page_cannot_have_have_a_reason(six, monkeypatch):
    def reason(**changes):
        net = Transformer(SIZES["pico"], 6, 36)
        net.method, net.folder = METHODS["scdm"], find(six.name)
        for name, value in changes.items():
            setattr(net, name, value)
        return models.why_recorded([LoadedModel("changed", net, TASKS["sudoku-6"])])

    own_rule = replace(METHODS["scdm"], attention=lambda query, key, num_clean: key <= query)
    assert reason() == ""
    assert "saved models of the built-in network" in reason(folder=None)
    assert "built-in attention masks" in reason(method=own_rule)
    assert models.why_recorded([six, six]) == ""  # whose weights count once
    monkeypatch.setattr(models, "MOST_WEIGHTS", (find(six.name) / "model.safetensors").stat().st_size - 1)
    assert models.why_recorded([six]).startswith("The weights have 1.6 MB, more than the ")


def test_recorded_page_has_its_traces_as_text_and_states_why_it_is_fixed(six):
    recorded = decoded(six, SIX, latents=4, order="blockwise:6")
    sneaky = {**recorded, "start": {**recorded["start"], "model": "</script><script>alert(1)</script><!--"}}
    page = page_with([sneaky, recorded], models=[six])
    assert contents(page, "traces") == [sneaky, recorded]
    assert "<script>alert" not in page
    assert contents(page, "contents")["entries"] == []
    assert "A page does not decode in the order blockwise:6." in contents(page, "contents")["reason"]
    mdm = model("sudoku-6-mdm")
    page = page_with([decoded(mdm, SIX, latents=4, off_distribution=True)], models=[mdm])
    assert "A page does not decode off-distribution." in contents(page, "contents")["reason"]
    with refused("more than 2 MB"):
        page_with([recorded] * 500)


def test_site_is_a_space_that_fetches_all_models_but_one(tmp_path):
    runpy.run_path(str(ROOT / "scripts" / "site.py"))["main"](tmp_path)
    files = {path.name: path for path in tmp_path.iterdir()}
    head = yaml.safe_load((ROOT / "space" / "README.md").read_text().split("---\n")[1])
    assert (head["sdk"], head["license"]) == ("static", "apache-2.0")
    assert len(head["short_description"]) <= 60
    page = files[head["app_file"]].read_text()
    assert len(page) < 2_500_000
    assert "connect-src 'self'" in page
    for entry in contents(page, "contents")["entries"][1:]:
        weights = json.loads(files[f"{entry['name']}.json"].read_text())
        assert weights["config"]["task"]["name"] == entry["task"]
    address = re.search(r'<meta property="og:image" content="([^"]+)">', page)[1]
    assert address.endswith(".github.io/latent-tokens/page/card.png")
    stated = [int(re.search(rf'"og:image:{side}" content="(\d+)"', page)[1]) for side in ("width", "height")]
    with Image.open(files["card.png"]) as card:
        assert list(card.size) == stated


def test_page_css_has_the_colors_of_the_palette():
    light = read_asset("page.css").partition("}")[0]
    assert dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", light)) == PAGE


MODULES = {
    "a": 'import { b } from "./b.js";\nimport { c } from "./c.js";\n\nexport const a = b + c();\n',
    "b": "export const b = 1;\n",
    "c": 'import { b } from "./b.js";\n\nexport async function c() {}\nexport class D {}\n',
}


def joined(folder, **changes):
    """Return the modules of a folder as one script."""
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
        ({"b": 'import { a } from "./a.js";\nexport const b = a;\n'}, "a.js: imports itself"),
        ({"c": "const b = 2;\nexport const c = b;\n"}, "c.js: b is also in b.js"),
        ({"b": "export default 1;\n"}, "b.js: 'export default 1;' cannot be joined"),
        ({"b": 'import * as d from "./c.js";\n'}, "b.js: 'import * as d"),
        ({"b": 'export { c } from "./c.js";\n'}, "b.js: 'export { c }"),
        ({"b": "const { b, c } = {};\n"}, "b.js: 'const { b, c } = {};'"),
    ],
)
def test_modules_of_another_form_are_refused(tmp_path, changes, message):
    with refused(message):
        joined(tmp_path, **changes)
