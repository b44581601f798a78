"""The manual: its Python runs, its figures and its page of commands match the code. And the notebook."""

import json
import re
import shlex
import sys
import tomllib

import numpy as np
import pytest

from helpers.documentation import ROOT, blocks, commands, run
from latent_tokens.cli import main

sys.path.insert(0, str(ROOT / "scripts"))
import cli_page
import figures
import notebook

DOCS = ROOT / "docs"
SHORTER = {
    "--steps 600 --warmup 20 --evaluate-every 200": "--steps 6 --warmup 2 --evaluate-every 3 --num-train "
    "64 --num-validation 8",
    "--num-samples 500": "--num-samples 4",
    "range(300)": "range(100)",
    'SIZES["nano"]': 'SIZES["pico"]',
}


PAGES = ["concepts.md", "cost.md", "own-method.md", "own-network.md", "own-task.md", "adapting.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = blocks((DOCS / page).read_text(), "python")
    assert found
    names = {"__name__": page}
    for block in found:
        exec(compile(block, page, "exec"), names)
    assert capsys.readouterr().out or "assert" in "".join(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "block", "name"), [("own-task.md", 0, "my_task"), ("own-method.md", 1, "my_method")]
)
def test_commands_of_a_page_run_with_its_module(page, block, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    text = (DOCS / page).read_text()
    (tmp_path / f"{name}.py").write_text(blocks(text, "python")[block])
    typed = [line for line in commands(text) if f"{name}:" in line]
    assert len(typed) >= 2
    for command in typed:
        assert main(shlex.split(command)[1:]) in (0, 1), command  # 1 is an unsolved puzzle


@pytest.mark.slow
def test_the_tutorial_runs_from_its_first_command_to_its_last(tmp_path, monkeypatch, capsys):
    page = (DOCS / "tutorial.md").read_text()
    monkeypatch.chdir(tmp_path)
    for long, short in SHORTER.items():
        assert long in page
        page = page.replace(long, short)
    parts = re.findall(r"```(bash|python)\n(.*?)```", page, re.S)
    assert [kind for kind, _ in parts] == [
        "bash",
        "bash",
        "bash",
        "python",
        "bash",
        "python",
        "bash",
        "python",
    ]
    for kind, block in parts:
        if kind == "bash":
            run([line for line in block.splitlines() if line], tmp_path)
        else:
            exec(compile(block, "tutorial.md", "exec"), {"__name__": "tutorial"})
    assert (tmp_path / "runs/four/curve.png").stat().st_size > 5_000
    out = capsys.readouterr().out
    assert re.search(r"^step 100: loss [\d.]+ nats per token$", out, re.M)
    assert len(re.findall(r"^step \d+: row [1-4] column [1-4] is [1-4]; latents", out, re.M)) == 14


def test_command_line_page_is_written_from_the_parsers():
    assert (DOCS / "cli.md").read_text() == cli_page.page(), "run python scripts/cli_page.py"


@pytest.mark.parametrize("name", figures.DRAWN)
def test_a_figure_was_drawn_from_what_the_code_says_now(name):
    measured, _ = figures.DRAWN[name]
    assert figures.held(DOCS / "figures" / f"{name}.svg") == json.loads(json.dumps(measured()))


def test_figure_stores_the_data_that_it_draws(tmp_path):
    """If a slot attends to one slot less, one cell is paler, and the file records it."""
    data, pale = figures.masks(), f"fill: {figures.COLORS['left out'].lower()}"
    figures.save("masks", data, tmp_path / "same.svg")
    data["mdm"]["mask"][0][0] = 0
    figures.save("masks", data, tmp_path / "other.svg")
    counts = [(tmp_path / f"{name}.svg").read_text().count(pale) for name in ("same", "other")]
    assert counts[1] == counts[0] + 1
    assert figures.held(tmp_path / "other.svg") == data != figures.held(tmp_path / "same.svg")


def test_hero_figure_is_drawn_from_the_bundled_results(tmp_path):
    drawn = figures.draw_bundled_figure(tmp_path / "latents.png")[1].read_text()
    kept = (DOCS / "latents.svg").read_text()
    paths = [re.findall(r' d="([^"]+)"', figure) for figure in (drawn, kept)]
    assert len(paths[0]) > 50
    assert paths[0] == paths[1]


@pytest.mark.slow
def test_the_notebook_shows_what_it_shows(tmp_path):
    """Return whether words are equal, and numbers equal up to the rounding of another machine."""
    import nbformat

    kept = notebook.shown(nbformat.read(notebook.TOUR, as_version=4))
    shown = notebook.shown(notebook.executed(notebook.TOUR, tmp_path))
    assert len(kept) >= 7
    for before, now in zip(kept, shown, strict=True):
        assert before
        number = r"\d+(?:\.\d+)?"
        assert re.sub(number, "0", before) == re.sub(number, "0", now)
        numbers = [
            np.array([float(found) for found in re.findall(number, text.replace(",", ""))])
            for text in (before, now)
        ]
        assert np.allclose(*numbers, rtol=0.02, atol=8)


def test_the_notebook_was_run_with_this_version():
    import nbformat

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first, *_ = notebook.shown(nbformat.read(notebook.TOUR, as_version=4))
    assert first == f"latent-tokens {project['version']}\n"


def test_the_notebook_holds_no_time():
    import nbformat

    tour = nbformat.read(notebook.TOUR, as_version=4)
    assert not any(cell.metadata for cell in tour.cells)
    assert not any(
        notebook.is_progress(output)
        for cell in tour.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
