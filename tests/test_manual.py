"""The manual: its commands and its Python run, and what it states are facts of the code."""

import doctest
import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import fields
from typing import get_type_hints

import nbformat
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import latent_tokens
from helpers.documentation import ENVIRONMENT, ROOT, blocks, commands, run
from helpers.runs import tiny_run
from latent_tokens import METHODS, TASKS, evaluate, fit, from_pretrained
from latent_tokens.cli import main
from latent_tokens.core.attention import semi_causal
from latent_tokens.evaluation.rows import Row

sys.path.append(str(ROOT / "scripts"))

import cli_page
import figures
import run_notebook
from lint_docs import example, public

DOCS = ROOT / "docs"
RESULTS = ROOT / "results" / "cpu"
README = (ROOT / "README.md").read_text()
COMMANDS = [command.split("#")[0].strip() for command in commands(README)]
# Shorter runs than a reader has, in the same commands and lines of Python.
SHORTER = {
    "bench.py --sizes nano --lengths 16": "bench.py --sizes nano --lengths 6",
    "--text README.md": "--text start.md",
    # The board of the large GIF, with 8 masked cells: 8 steps to draw instead of 45.
    ".942....51...34..9.2..9..8..429...13..5.6.89.9..3.....839.25.4...74.9.3.45..7..2.": (
        ".942....51...34279523796481642958713375162894918347652839625147267419538451873926"
    ),
    "--steps 600 --warmup 20 --evaluate-every 200": (
        "--steps 6 --warmup 2 --evaluate-every 3 --num-train 64 --num-validation 8"
    ),
    "--num-samples 500": "--num-samples 4",
    "--num-samples 1000": "--num-samples 4",
    "range(300)": "range(100)",
    'SIZES["nano"]': 'SIZES["pico"]',
}
OF_README = {
    "train": "--steps 4 --num-train 64 --num-validation 8 --save-every 2",
    "evaluate": "--num-samples 4",
    "data": "--num-train 64",
    "reproduce": "--scale smoke",
}


def page(name):
    """Return a page of the manual with shorter runs."""
    text = (DOCS / name).read_text()
    for long, short in SHORTER.items():
        text = text.replace(long, short)
    return text


def execute(code, name):
    exec(compile(code, name, "exec"), {"__name__": name})


def test_each_shortened_line_is_on_a_page():
    manual = "".join(path.read_text() for path in DOCS.glob("*.md"))
    assert [long for long in SHORTER if long not in manual] == []


@pytest.mark.slow
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
    (tmp_path / "docs").symlink_to(DOCS)
    (tmp_path / "results" / "cpu").mkdir(parents=True)
    shutil.copy(RESULTS / "rows.jsonl", tmp_path / "results" / "cpu")
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
    code = "\n".join(blocks((DOCS / name).read_text(), "python"))
    assert code
    execute(code.replace("steps=200", "steps=20"), name)
    assert capsys.readouterr().out or "assert" in code


@pytest.mark.slow
def test_python_of_the_page_on_hugging_face_runs(tmp_path):
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
    text = (DOCS / name).read_text()
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
    assert " ".join(kind for kind, _ in parts) == "bash bash bash python bash bash python bash python"
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
def test_readme_commands_run(tmp_path):
    """The make targets that run tests or checks are left out."""
    (tmp_path / "README.md").write_text(README)
    typed = [command for command in COMMANDS if command.startswith("latent-tokens")]
    others = {command.split()[0] for command in COMMANDS} - {"latent-tokens"}
    assert others == {"python3", "source", "pip", "make"}
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
        code = examples[name] + "\n"
        run.run(doctest.DocTestParser().get_doctest(code, dict(names), name, None, None))
    assert run.failures == 0


def test_public_names_to_keep_resolve():
    lines = (ROOT / "tests" / "data" / "public_names.txt").read_text().splitlines()
    fates = dict(line.split() for line in lines if not line.startswith("#"))
    kept = [name for name, fate in fates.items() if fate == "keep"]
    assert set(fates.values()) <= {"keep", "research", "gone"}
    assert set(latent_tokens.__all__) <= set(fates)
    assert len(kept) > 60
    assert [name for name in kept if not hasattr(latent_tokens, name)] == []


# Facts: figures, commands, rows, errors, formats, and the notebook.

NUMBER = r"\d+(?:\.\d+)?"


def tables(page):
    """Return the tables of a page, each a list of rows, and each row a dict by the names of the columns."""
    parsed = []
    for block in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.M):
        lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
        heads, _, *rows = [[cell.strip() for cell in line] for line in lines]
        parsed.append([dict(zip(heads, row, strict=True)) for row in rows])
    return parsed


def names(cell):
    """Return the names in code font of a cell."""
    return re.findall(r"`([^`]+)`", cell)


def test_command_line_page_is_written_from_the_parsers():
    assert (DOCS / "cli.md").read_text() == cli_page.page(), "run python scripts/cli_page.py"


def test_built_manual_has_the_meaning_of_every_flag():
    """The page lists the names, and `make docs` explains them from the help."""
    page = (DOCS / "cli.md").read_text()
    explained = cli_page.explained(page)
    assert "Flags:" not in explained
    for listed, shown in zip(*(text.split("\n## ")[1:] for text in (page, explained)), strict=True):
        rows = re.findall(r"^\| `(-.*?)` \| (.*) \|$", shown, re.M)
        flags = {flag for names, _ in rows for flag in re.findall(r"--[a-z-]+", names)}
        assert flags == set(re.findall(r"`(--[a-z-]+)`", listed.partition("```")[0]))
        assert all(len(meaning.split()) >= 2 for _, meaning in rows)


@pytest.mark.parametrize("name", figures.DRAWN)
def test_figure_was_drawn_from_the_numbers_of_the_code(name):
    measured, _ = figures.DRAWN[name]
    assert figures.held(DOCS / "figures" / f"{name}.svg") == json.loads(json.dumps(measured()))


def test_figure_stores_the_data_that_it_draws(tmp_path):
    """If a slot attends to one slot less, one cell is paler, and the file records it."""
    data, pale = figures.masks(), f"fill: {figures.COLORS['left out'].lower()}"
    num_pale = (DOCS / "figures" / "masks.svg").read_text().count(pale)
    data["mdm"]["mask"][0][0] = 0
    figures.save("masks", data, tmp_path / "masks.svg")
    assert (tmp_path / "masks.svg").read_text().count(pale) == num_pale + 1
    assert figures.held(tmp_path / "masks.svg") == data


def test_hero_figure_is_drawn_from_the_bundled_results(tmp_path):
    drawn = figures.draw_bundled_figure(tmp_path / "latents.png")[1].read_text()
    paths = [re.findall(r' d="([^"]+)"', text) for text in (drawn, (DOCS / "latents.svg").read_text())]
    assert len(paths[0]) > 50
    assert paths[0] == paths[1]


def test_figures_are_written_into_their_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["figures.py", str(tmp_path / "figures")])
    monkeypatch.setattr(figures, "DRAWN", {"cost": figures.DRAWN["cost"]})
    figures.main()
    expected = {f"{name}{dark}.svg" for name in ("cost", "latents") for dark in ("", "-dark")} | {
        "latents.png"
    }
    assert {path.name for path in (tmp_path / "figures").iterdir()} == expected
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]


def test_scripts_do_not_have_the_names_of_packages_that_the_manual_installs():
    # Tests import scripts by name, and an installed package of that name would come first.
    texts = [page.read_text() for page in (*DOCS.glob("*.md"), ROOT / "README.md")]
    packages = set(re.findall(r"pip install ([a-z][a-z_]+)", "\n".join(texts)))
    assert "notebook" in packages
    assert not packages & {script.stem for script in (ROOT / "scripts").glob("*.py")}


@pytest.mark.slow
def test_notebook_prints_its_stored_outputs(tmp_path):
    """Words are equal, and numbers up to the rounding of another CPU."""
    kept = run_notebook.shown(nbformat.read(run_notebook.TOUR, as_version=4))
    shown = run_notebook.shown(run_notebook.executed(run_notebook.TOUR, tmp_path))
    assert len(kept) >= 7
    for before, now in zip(kept, shown, strict=True):
        assert before
        assert re.sub(NUMBER, "0", before) == re.sub(NUMBER, "0", now)
        texts = (text.replace(",", "") for text in (before, now))
        numbers = [np.array(re.findall(NUMBER, text), float) for text in texts]
        assert np.allclose(*numbers, rtol=0.02, atol=8)


def test_notebook_was_run_with_this_version_and_has_no_times():
    tour = nbformat.read(run_notebook.TOUR, as_version=4)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run_notebook.shown(tour)[0] == f"latent-tokens {version}\n"
    assert not any(cell.metadata for cell in tour.cells)
    outputs = [output for cell in tour.cells for output in cell.get("outputs", [])]
    assert not any(map(run_notebook.is_progress, outputs))
    code = "\n".join(cell.source for cell in tour.cells)
    assert set(re.findall(r"\blt\.(\w+)", code)) <= set(latent_tokens.__all__)
    assert not re.search(r"latent_tokens\.|from latent_tokens import", code)


def test_choices_of_the_page_on_results_state_measured_rows():
    (choices,) = (table for table in tables(DOCS / "results.md") if "you want" in table[0])
    for choice in choices:
        rows, *_ = tables(DOCS / re.search(r"\((.+)\)", choice["source"])[1])
        k, *policy = choice["k"].split(", ")
        n = choice["n"] if choice["n"].isdigit() or choice["n"] == "all" else ""
        (row,) = [
            row
            for row in rows
            if (row["method"], row["order"], row.get("n", ""))
            == (*names(choice["method"]), choice["order"], n)
            and row.get("variant", "") in (policy or ("", f"k={k}", "default"))
            and row["task"] in ("sudoku-6", "sudoku-6, infilling puzzles")
        ]
        assert choice["valid or solved"] == f"{row['ours']}%"
        assert choice["95% interval"] == row["95% interval"].replace(" - ", "-")
        assert choice["tokens"] == row["relative cost"]


def test_page_on_the_paper_states_measured_shares():
    """Every percentage of its table is that of a row of three seeds."""
    rows = [row for name in ("figure-1", "table-ar-mtp") for row in tables(RESULTS / f"{name}.md")[0]]
    rows = [row for row in rows if row["task"] == "sudoku-6" and len(row["each seed"].split()) == 3]
    measured = {row["ours"] for row in rows}
    (table,) = tables(DOCS / "paper.md")
    stated = [share for row in table for share in re.findall(r"([\d.]+)%", row["here"])]
    assert len(stated) == 8
    assert set(stated) <= measured


def test_page_on_methods_lists_every_field():
    listed, *_ = tables(DOCS / "own-method.md")
    expected = {field.name for field in fields(METHODS["scdm"])}
    assert {names(row["field"])[0] for row in listed} == expected


@pytest.mark.slow
def test_formats_list_every_key_of_a_run(tmp_path):
    run = fit(tiny_run(tmp_path / "run", steps=2))
    (row,) = evaluate(from_pretrained(run), TASKS["sudoku-4"], num_samples=2)
    listed = {}
    for table in tables(DOCS / "formats.md"):
        heading = next(iter(table[0]))
        listed[heading] = {name for line in table for name in names(line[heading])}
    files = {re.sub(r"\d{8}-[0-9a-f]{16}", "STEP-HASH", path.name) for path in run.iterdir()}
    assert files <= listed["file"]
    assert set(json.loads((run / "config.json").read_text())) <= listed["key of config.json"]
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {key for line in metrics for key in line} <= listed["key of metrics.jsonl"]
    assert set(row) <= listed["key of a row"] == set(get_type_hints(Row))


def test_glossary_names_exist():
    flags = set(re.findall(r"`(--[a-z-]+)`", (DOCS / "cli.md").read_text()))
    (terms,) = (table for table in tables(DOCS / "concepts.md") if "term" in table[0])
    assert len(terms) > 25
    for row in terms:
        typed = {name.split()[0] for name in names(row["command line"])}
        assert {name for name in typed if name.startswith("-")} <= flags, row
        assert set(names(row["row"])) <= set(get_type_hints(Row)), row
        for name in set(names(row["Python"])) - {"known", "mask_id"}:
            first, *rest = name.split(".")
            kind = getattr(latent_tokens, first)
            assert all(part in dir(kind) or part in kind.__dataclass_fields__ for part in rest), row


ERRORS = re.findall(r"^\$ latent-tokens (.*)\n(.*)$", (DOCS / "troubleshooting.md").read_text(), re.M)


@pytest.mark.parametrize(("command", "printed"), ERRORS, ids=[command for command, _ in ERRORS])
def test_error_of_troubleshooting_is_printed(command, printed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/four").mkdir(parents=True)
    (tmp_path / "runs/four/config.json").write_text("{}")
    (tmp_path / "book.txt").write_text("A short text.\n")
    assert main(shlex.split(command)) == 2
    assert capsys.readouterr().err.splitlines()[-1] == printed
