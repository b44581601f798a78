"""The page as files: its models, its policy, how its scripts are joined, and its measured examples."""

import json
import re
import runpy
import sys
import webbrowser
from dataclasses import replace

import pytest
import torch
import yaml
from PIL import Image

from helpers.documentation import ROOT
from helpers.page import SIX, decoded, model, untrained
from helpers.refusals import refused, refused_command
from helpers.runs import tiny_run
from latent_tokens import METHODS, fit, from_pretrained, save_pretrained
from latent_tokens.address import addresses as addresses_of
from latent_tokens.checkpoints.files import find
from latent_tokens.cli import main
from latent_tokens.commands.page import PAGE_MODELS
from latent_tokens.configs import SamplingConfig
from latent_tokens.evaluation.compare import mcnemar
from latent_tokens.evaluation.report import ORDER_NAMES
from latent_tokens.page import document, models
from latent_tokens.page.document import page_with, read_asset, script_of, stored_curve
from latent_tokens.palette import PAGE
from latent_tokens.sizes import Size
from latent_tokens.storage import sha256_of
from latent_tokens.trace.examples import COMPARISONS, PAGE_RECORD, compared, measured, puzzles, solved
from latent_tokens.trace.record import DecodeRequest, LoadedModel, trace

sys.path.append(str(ROOT / "scripts"))

import page_examples


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
    element = rf'<script type="application/json" id="{name}">(.*?)</script>'
    return json.loads(re.search(element, page, re.S)[1])


def test_page_has_the_bundled_models_and_its_own_scripts_only(tmp_path, addresses, capsys):
    assert main(["page"]) == 0
    file = tmp_path / "latent-tokens.html"
    assert capsys.readouterr().out == f"latent-tokens.html  ({file.stat().st_size / 1e6:.1f} MB)\n"
    assert file.stat().st_size <= 3_200_000
    assert ("og:image" in file.read_text()) == bool(addresses_of())
    assert addresses == []
    page = file.read_text()
    assert [entry["name"] for entry in contents(page, "contents")["entries"]] == list(PAGE_MODELS)
    assert contents(page, "weights-0")["config"]["task"]["name"] == "sudoku-6"
    assert contents(page, "contents")["record"]["model"] == "sudoku-6-scdm"
    assert contents(page, "traces") == []

    # The policy allows one script and WebAssembly, and no request.
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', page)
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy
    assert re.search(r"script-src 'sha256-\S+' 'wasm-unsafe-eval'(;|$)", policy)
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
    line = refused_command(capsys, "page run")
    assert line.startswith("latent-tokens: run: A page decodes with models of sudoku-4, ")
    assert line.endswith(" or record one decode: latent-tokens trace RUN PUZZLE -o FILE.")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_models_that_a_page_cannot_have_have_a_reason(six, tmp_path, monkeypatch):
    own = untrained(
        "sudoku-6", replace(METHODS["scdm"], attention=lambda query, key, num_clean: key <= query)
    )
    assert "saved models of the built-in network" in models.why_recorded([own])
    own.net.folder = find(six.name)
    assert "built-in attention masks" in models.why_recorded([own])
    assert models.why_recorded([six, six]) == ""  # whose weights count once
    own.net.method = six.net.method
    own.net.answer_tokens = [0, 1]
    assert "without parts or answer_tokens" in models.why_recorded([own])
    own.net.answer_tokens = None
    own.net.method = METHODS["mdm-left"]
    assert "not with readout=left" in models.why_recorded([own])
    own.net.method = six.net.method
    own.net.size = Size(20, 2, 1)
    assert "widths that are multiples of 8" in models.why_recorded([own])
    half = LoadedModel(six.name, from_pretrained(six.name), six.task)
    save_pretrained(half.net, tmp_path, dtype=torch.float16)
    half.net.folder = tmp_path
    assert "float32 or bfloat16" in models.why_recorded([half])
    monkeypatch.setattr(models, "MOST_WEIGHTS", (find(six.name) / "model.safetensors").stat().st_size - 1)
    assert models.why_recorded([six]).startswith("The weights have 1.6 MB, more than the ")


@pytest.mark.parametrize(
    ("name", "latents"), [("ar-mtp-window-4", 3), ("mdm", "all"), ("sidm", 0), ("scdm", 0)]
)
def test_entry_of_a_model_has_its_own_number_of_latent_tokens(tmp_path, name, latents):
    net = untrained("sudoku-6", name).net
    save_pretrained(net, tmp_path / name, about={"task": {"name": "sudoku-6", "source": "solver"}})
    entry = models.model_entry(model(str(tmp_path / name)))
    assert entry["latents"] == latents
    assert entry["latent_control"] == net.method.latent_control


def test_recorded_page_has_its_traces_as_text_and_states_why_it_is_fixed(six):
    recorded = decoded(six, SIX, latents=4, order="blockwise:6", confidence="entropy")
    sneaky = {**recorded, "start": {**recorded["start"], "model": "</script><script>alert(1)</script><!--"}}
    page = page_with([sneaky, recorded], "", [six])
    assert contents(page, "traces") == [sneaky, recorded]
    assert "<script>alert" not in page
    assert contents(page, "contents")["entries"] == []
    assert "A page does not decode in the order blockwise:6 entropy." in contents(page, "contents")["reason"]
    mdm = model("sudoku-6-mdm")
    page = page_with([decoded(mdm, SIX, latents=4, off_distribution=True)], "", [mdm])
    assert "A page does not decode off-distribution." in contents(page, "contents")["reason"]
    with refused("more than 2 MB"):
        page_with([recorded] * 500, "", [six])


def test_site_is_a_space_that_fetches_all_models_but_one(tmp_path, monkeypatch):
    monkeypatch.setattr(document, "addresses", lambda: addresses_of("one"))
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
    assert '<meta property="og:image" content="https://one.github.io/latent-tokens/page/card.png">' in page
    assert '<a href="https://one.github.io/latent-tokens">Manual</a>' in page
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


def test_modules_are_joined_in_the_order_of_their_imports(tmp_path):
    for name, source in MODULES.items():
        (tmp_path / f"{name}.js").write_text(source)
    script = script_of("a", tmp_path)
    parts = ["const b = 1;", "async function c() {}", "class D {}", "const a = b + c();"]
    assert [script.count(part) for part in parts] == [1] * 4
    assert sorted(parts, key=script.index) == parts
    assert not re.search(r"^(import|export)\b", script, re.M)


@pytest.mark.parametrize("entry", ["page", "worker"])
def test_modules_of_the_page_share_no_name_and_can_be_joined(entry):
    script = script_of(entry)
    assert not re.findall(r"^(?:import|export)\b.*|^(?:const|let) [\[{].*", script, re.M)
    names = re.findall(r"^(?:async )?(?:function\*?|const|let|class) ([\w$]+)", script, re.M)
    assert len(names) > 20
    assert len(names) == len(set(names))


# The example puzzles and counts of the page: they were measured with the bundled weights.

KINDS = {(False, True): "gained", (True, False): "lost", (True, True): "both", (False, False): "neither"}
RECORD = json.loads(PAGE_RECORD.read_text())
SOLVED_FROM_LEFT = [25, 43, 52, 73, 76]  # of the hundred boards at n = 0, 1, 2, 4 and all


def test_records_are_of_the_bundled_weights():
    for record in (*measured().values(), RECORD):
        weights = find(record["model"]) / "model.safetensors"
        assert record["sha256"] == sha256_of(weights), "run python scripts/page_examples.py"


@pytest.mark.parametrize("record", measured().values(), ids=["sudoku-6", "sudoku-9"])
def test_counts_add_up_and_are_in_the_manual(record):
    assert sum(record[kind] for kind in COMPARISONS) == record["puzzles"]
    assert record["solved"]["0"] == record["lost"] + record["both"]
    assert record["solved"]["all"] == record["gained"] + record["both"]
    shares = " | ".join(f"{100 * count / record['puzzles']:.1f}%" for count in record["solved"].values())
    counts = f"{record['gained']} | {record['lost']} |"
    row = f" {record['givens']} givens | {record['candidates']} | {shares} | {counts}"
    assert row in (ROOT / "docs" / "watching.md").read_text()


@pytest.mark.parametrize("name", ["README.md", "docs/watching.md"])
def test_counts_of_one_cell_are_in_the_manual(name):
    counts = RECORD["counts"]
    p_value = mcnemar(counts["corrected"], counts["spoiled"])
    manual = " ".join((ROOT / name).read_text().split())
    for stated in (
        rf"{counts['right']} (times|predictions)",
        rf"{counts['right_with_one']} (times )?with one",
        rf"{counts['right_with_all']} (times )?with all",
        rf"correct {counts['corrected']} (predictions )?and spoil {counts['spoiled']} \(p = {p_value:.3f}",
    ):
        assert re.search(stated, manual), stated


@pytest.mark.slow
@pytest.mark.parametrize("record", measured().values(), ids=["sudoku-6", "sudoku-9"])
def test_example_labels_are_the_verdicts_of_the_model(record):
    loaded = model(record["model"])
    setting = {"candidates": record["candidates"], "seed": record["seed"]}
    for example in {example["kind"]: example for example in record["examples"]}.values():
        problem = loaded.task.encode(example["puzzle"])
        assert int(problem.known.sum()) == record["givens"]
        assert loaded.task.count_solutions(problem, most=2) == 1
        for n, right in example["solved"].items():
            latents = n if n == "all" else int(n)
            assert decoded(loaded, example["puzzle"], latents=latents, **setting)["end"]["right"] == right
        assert example["kind"] == KINDS[example["solved"]["0"], example["solved"]["all"]]


def test_solved_in_a_batch_equals_single_decodes(six):
    problems = puzzles(six.task, 8, 14, 3)
    setting = SamplingConfig(0, 4)
    requests = (DecodeRequest(six, problems.take(slice(i, i + 1)), setting) for i in range(8))
    single = [trace(request)["end"]["right"] for request in requests]
    batch = solved(six, problems, setting, lambda by, figures: None)
    assert batch.tolist() == single
    assert len(set(single)) == 2
    counts = {"gained": single.count(False), "lost": single.count(True), "both": 0, "neither": 0}
    assert compared(batch, ~batch) == counts


@pytest.mark.parametrize(("name", "without", "with_one"), [("corrected", 0, 4), ("spoiled", 0, 2)])
def test_board_of_the_first_scene_is_predicted_as_recorded(six, name, without, with_one):
    shown = RECORD[name]
    puzzle = six.task.encode(shown["puzzle"])
    tokens, known = torch.from_numpy(puzzle.tokens).long(), torch.from_numpy(puzzle.known)
    tokens[0, shown["target"]] = shown["answer"]
    target, others = torch.tensor([shown["target"]]), torch.tensor([shown["others"]])
    boards = page_examples.OneCellBoards(tokens, known, target, others)
    counts, corrected, spoiled = page_examples.measure(six.net, boards, six.task)
    assert {"corrected": corrected, "spoiled": spoiled}[name] == shown
    assert (counts["corrected"], counts["spoiled"]) == (name == "corrected", name == "spoiled")
    assert shown["predictions"]["without"][0][0] == without
    at = shown["others"].index(shown["latent"])
    assert shown["predictions"]["with_one"][at][0][0] == with_one


def test_stored_bits_are_the_verdicts_of_the_model(six):
    hundred = RECORD["hundred"]
    most = len(hundred["solved"]) - 1
    assert most == 36 - hundred["givens"] - hundred["candidates"]
    assert {len(bits) for bits in hundred["solved"]} == {len(hundred["puzzles"])} == {100}
    assert {board.count(".") for board in hundred["puzzles"]} == {36 - hundred["givens"]}
    setting = {key: hundred[key] for key in ("candidates", "order")}
    for n, puzzle in [(0, 0), (3, 57), (8, 24), (most, 0), (most, 99)]:
        end = decoded(six, hundred["puzzles"][puzzle], latents=n, seed=RECORD["seed"], **setting)["end"]
        assert end["right"] == (hundred["solved"][n][puzzle] == "1")
        assert end["processed"] == hundred["processed"][n]
    assert [hundred["solved"][n].count("1") for n in (0, 1, 2, 4, most)] == SOLVED_FROM_LEFT


def test_orders_of_the_hundred_are_in_the_manual_and_of_the_model(six):
    rows = RECORD["hundred"]["orders"]
    from_left = [row["solved"] for row in rows if row["order"] == "left_to_right"]
    assert list(from_left[0].values()) == [SOLVED_FROM_LEFT[index] for index in (0, 3, 4)]
    manual = (ROOT / "docs" / "watching.md").read_text()
    for row in rows:
        counts = " | ".join(map(str, row["solved"].values()))
        name = ORDER_NAMES[row["order"]]
        assert f"| {row['givens']} | {name} | {row['candidates']} | {counts} |" in manual
    boards = page_examples.with_few_givens(six.task, 100)
    assert page_examples.texts_of(boards) == RECORD["hundred"]["puzzles"]


def test_first_example_is_from_left_to_right_as_its_label(six):
    first = models.model_entry(six)["examples"][0]
    assert first["settings"] == {"n": "0,4", "k": "1", "order": "left_to_right"}
    verdicts = [
        decoded(six, first["puzzle"], latents=n, candidates=1, order="left_to_right")["end"]["right"]
        for n in (0, 4)
    ]
    assert verdicts == [False, True]
    assert first["label"] == "left to right: solved with 4 latent tokens, wrong with none"
    others = [models.model_entry(model(name))["examples"][0] for name in ("sudoku-6-mdm", "sudoku-9-scdm")]
    assert others[0] == {**first, "caption": ""}
    assert others[1]["settings"] == {}


def test_plotted_points_are_those_of_the_bundled_models():
    points = stored_curve()
    assert [point["latents"] for point in points if point["method"] == "scdm"] == [0, 2, 4, 8, 16, "all"]
    others = {point["method"]: point["accuracy"] for point in points if point["method"] != "scdm"}
    assert others == pytest.approx({"mdm": 0.779, "sidm": 0.418, "ar-mtp": 0.875})
    assert all(point["low"] <= point["accuracy"] <= point["high"] for point in points)


@pytest.mark.slow
def test_few_puzzles_write_the_entries_of_all(monkeypatch, tmp_path):
    stored = {"MEASURED": page_examples.MEASURED, "PAGE_RECORD": PAGE_RECORD}
    for name in stored:
        monkeypatch.setattr(page_examples, name, tmp_path / name)
    page_examples.main(["--scale", "smoke"])
    for name, path in stored.items():
        record, complete = (json.loads(file.read_text()) for file in (tmp_path / name, path))
        assert record.keys() == complete.keys()
        assert record != complete
