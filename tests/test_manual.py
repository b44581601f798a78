"""The manual: its figures, its page of commands and its notebook match the code."""

import json
import re
import sys
import tomllib

import nbformat
import numpy as np
import pytest

from helpers.documentation import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import cli_page
import figures
import notebook

DOCS = ROOT / "docs"
NUMBER = r"\d+(?:\.\d+)?"


def test_command_line_page_is_written_from_the_parsers():
    assert (DOCS / "cli.md").read_text() == cli_page.page(), "run python scripts/cli_page.py"


@pytest.mark.parametrize("name", figures.DRAWN)
def test_figure_was_drawn_from_the_numbers_of_the_code(name):
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
    paths = [re.findall(r' d="([^"]+)"', text) for text in (drawn, (DOCS / "latents.svg").read_text())]
    assert len(paths[0]) > 50
    assert paths[0] == paths[1]


@pytest.mark.slow
def test_notebook_prints_its_stored_outputs(tmp_path):
    """Words are equal, and numbers up to the rounding of another CPU."""
    kept = notebook.shown(nbformat.read(notebook.TOUR, as_version=4))
    shown = notebook.shown(notebook.executed(notebook.TOUR, tmp_path))
    assert len(kept) >= 7
    for before, now in zip(kept, shown, strict=True):
        assert before
        assert re.sub(NUMBER, "0", before) == re.sub(NUMBER, "0", now)
        texts = (text.replace(",", "") for text in (before, now))
        numbers = [np.array(re.findall(NUMBER, text), float) for text in texts]
        assert np.allclose(*numbers, rtol=0.02, atol=8)


def test_notebook_was_run_with_this_version_and_has_no_times():
    tour = nbformat.read(notebook.TOUR, as_version=4)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert notebook.shown(tour)[0] == f"latent-tokens {version}\n"
    assert not any(cell.metadata for cell in tour.cells)
    outputs = [output for cell in tour.cells for output in cell.get("outputs", [])]
    assert not any(map(notebook.is_progress, outputs))
