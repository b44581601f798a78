"""The manual states facts of the code: figures, commands, rows, errors, formats, and its notebook."""

import json
import re
import shlex
import sys
import tomllib
from dataclasses import fields
from typing import get_type_hints

import nbformat
import numpy as np
import pytest

import latent_tokens
from helpers.documentation import ROOT
from helpers.runs import tiny_run
from latent_tokens import METHODS, TASKS, evaluate, fit, from_pretrained
from latent_tokens.cli import main
from latent_tokens.evaluation.rows import Row

sys.path.insert(0, str(ROOT / "scripts"))
import cli_page
import figures
import notebook

DOCS = ROOT / "docs"
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
    measured = {
        row["ours"]
        for name in ("figure-1", "table-ar-mtp")
        for row in tables(ROOT / "results" / "cpu" / f"{name}.md")[0]
        if row["task"] == "sudoku-6" and len(row["each seed"].split()) == 3
    }
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
