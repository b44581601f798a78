"""The pages that state facts against the code: results, decisions, formats, concepts and troubleshooting."""

import inspect
import json
import re
import shlex
from dataclasses import fields
from typing import get_type_hints

import pytest
import torch

import latent_tokens
from helpers.documentation import ROOT
from latent_tokens import (
    METHODS,
    TASKS,
    Decoding,
    TrainConfig,
    Transformer,
    evaluate,
    fit,
    from_pretrained,
)
from latent_tokens.cli import main
from latent_tokens.configs import SamplingConfig
from latent_tokens.core.decoding import candidates_of
from latent_tokens.evaluation.rows import Row
from latent_tokens.evaluation.settings import decoding_for
from latent_tokens.paper.scales import SCALES

torch.set_num_threads(1)
DOCS = ROOT / "docs"


def tables(page):
    """Return the tables of a page, each a list of rows, and each row a dict by the names of the columns."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", page, re.M):
        heads, _, *rows = [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block.splitlines()
        ]
        found.append([dict(zip(heads, row, strict=True)) for row in rows])
    return found


def names(cell):
    """Return the names in code font of a cell."""
    return re.findall(r"`([^`]+)`", cell)


def measured(choice):
    """Return the stored row that a row of the table of goals states."""
    path = re.search(r"\((.+)\)", choice["source"])[1]
    rows, *_ = tables((DOCS / path).read_text())
    k, *policy = choice["k"].split(", ")
    n = choice["n"] if choice["n"].isdigit() or choice["n"] == "all" else ""
    (row,) = [
        row
        for row in rows
        if (row["method"], row["order"], row.get("n", "")) == (*names(choice["method"]), choice["order"], n)
        and row.get("variant", "") in (policy or ("", f"k={k}", "default"))
        and row["task"] in ("sudoku-6", "sudoku-6, infilling puzzles")
    ]
    return row


(CHOICES,) = (table for table in tables((DOCS / "results.md").read_text()) if "you want" in table[0])


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice["you want"])
def test_choice_states_a_measured_row(choice):
    row = measured(choice)
    assert choice["valid or solved"] == f"{row['ours']}%"
    assert choice["95% interval"] == row["95% interval"].replace(" - ", "-")
    assert choice["tokens"] == row["relative cost"]


def test_page_on_the_paper_states_measured_shares():
    """Every percentage of its table is that of a row of three seeds."""
    ours = {
        row["ours"]
        for name in ("figure-1", "table-ar-mtp")
        for row in tables((ROOT / "results" / "cpu" / f"{name}.md").read_text())[0]
        if row["task"] == "sudoku-6" and len(row["each seed"].split()) == 3
    }
    (table,) = tables((DOCS / "paper.md").read_text())
    stated = [share for row in table for share in re.findall(r"([\d.]+)%", row["here"])]
    assert len(stated) == 8
    assert set(stated) <= ours


def test_defaults_of_the_page_on_choosing():
    page = " ".join((DOCS / "results.md").read_text().split())
    assert "**The default n of `scdm` and `esolm` is 0.**" in page
    defaults = [METHODS[name].default_latents for name in ("scdm", "esolm", "mdm", "ar-mtp", "sidm", "arm")]
    assert defaults == [0, 0, "all", "all", 0, 0]
    (esolm,) = [
        row
        for row in tables((ROOT / "results/cpu/figure-text.md").read_text())[0]
        if (row["method"], row["n"]) == ("esolm", "64")
    ]
    less = esolm["difference to n = 0"].split()[0].removeprefix("-")
    assert f"{less} nats per token, at {esolm['relative cost']} of the tokens" in page


def test_table_of_defaults_states_the_defaults():
    table = {
        row.split(" | ")[0].strip("| "): row
        for row in (DOCS / "decisions.md").read_text().splitlines()
        if row.startswith("| ")
    }
    training = vars(TrainConfig("sudoku-4", "scdm"))
    network = {
        name: given.default for name, given in inspect.signature(Transformer.__init__).parameters.items()
    }
    for row, found in (("`TrainConfig`, `latent-tokens train`", training), ("`Transformer(...)`", network)):
        assert f'`gelu="{found["gelu"]}"` | `positions="{found["positions"]}"`' in table[row]
    assert Decoding().candidates is None
    in_python = table["`Decoding(...)` in Python"]
    assert "| 8, or 1 if the order leaves no choice | the method's own |" in in_python
    adaptive = decoding_for(METHODS["scdm"], TASKS["sudoku-6"], SamplingConfig())
    fixed = decoding_for(METHODS["scdm"], TASKS["sudoku-6"], SamplingConfig(order="uniform"))
    assert (candidates_of(METHODS["scdm"], adaptive), fixed.candidates, adaptive.latents) == (8, 1, None)
    assert "| 8, or 1 if" in table["`latent-tokens evaluate` and `sample`, `EvalConfig`"]
    budgets = SCALES["cpu"].budgets
    tasks = ("sudoku-gen", "sudoku-puzzle", "zebra", "countdown", "sudoku-large", "sudoku-gen-9x9")
    assert [budgets[task].candidates for task in tasks] == [4, 4, 8, 8, 8, 8]
    assert all(METHODS[name].latents == 0 for name in ("sidm", "scdm", "esolm", "arm"))
    assert all(METHODS[name].latents is None for name in ("mdm", "ar-mtp", "ar-mtp-window-4", "ar-ntp-4"))


def test_page_on_methods_lists_every_field():
    listed, *_ = tables((DOCS / "own-method.md").read_text())
    assert sorted(names(row["field"])[0] for row in listed) == sorted(
        field.name for field in fields(METHODS["scdm"])
    )


@pytest.mark.slow
def test_formats_list_every_key_of_a_run(tmp_path):
    """A run of two steps has no file and no key that the page does not list, and its rows have the listed."""
    settings = TrainConfig(
        "sudoku-4", "scdm", tmp_path / "run", size="pico", steps=2, batch_size=4, num_train=8,
        num_validation=8, precision="fp32",
    )  # fmt: skip
    run = fit(settings)
    (row,) = evaluate(from_pretrained(run), TASKS["sudoku-4"], num_samples=2)
    pages = {next(iter(table[0])): table for table in tables((DOCS / "formats.md").read_text())}
    listed = {
        heading: [name for line in table for name in names(line[heading])] for heading, table in pages.items()
    }
    files = {re.sub(r"\d{8}-[0-9a-f]{16}", "STEP-HASH", path.name) for path in run.iterdir()}
    assert files <= set(listed["file"])
    assert set(json.loads((run / "config.json").read_text())) <= set(listed["key of config.json"])
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {key for line in metrics for key in line} <= set(listed["key of metrics.jsonl"])
    assert set(row) <= set(listed["key of a row"])
    assert sorted(get_type_hints(Row)) == sorted(listed["key of a row"])


def test_glossary_names_exist():
    flags = set(re.findall(r"`(--[a-z-]+)`", (DOCS / "cli.md").read_text()))
    (terms,) = (table for table in tables((DOCS / "concepts.md").read_text()) if "term" in table[0])
    assert len({row["term"] for row in terms}) == len(terms) > 25
    for row in terms:
        typed = [name.split()[0] for name in names(row["command line"])]
        assert all(flag in flags for flag in typed if flag.startswith("-")), row
        assert set(names(row["row"])) <= set(get_type_hints(Row)), row
        for name in names(row["Python"]):
            first, *rest = name.split(".")
            if first in latent_tokens.__all__:
                kind = getattr(latent_tokens, first)
                assert all(part in dir(kind) or part in kind.__dataclass_fields__ for part in rest), row
            else:
                assert name in ("known", "mask_id"), row


ERRORS = re.findall(r"^\$ latent-tokens (.*)\n(.*)$", (DOCS / "troubleshooting.md").read_text(), re.M)


@pytest.mark.parametrize(("command", "printed"), ERRORS, ids=[command for command, _ in ERRORS])
def test_error_of_troubleshooting_is_printed(command, printed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/four").mkdir(parents=True)
    (tmp_path / "runs/four/config.json").write_text("{}")
    (tmp_path / "book.txt").write_text("A short text.\n")
    assert main(shlex.split(command)) == 2
    assert capsys.readouterr().err.splitlines()[-1] == printed


def test_symptoms_of_troubleshooting_are_messages_of_the_package():
    """Those in code font. The others are of the shell, of pip and of torch.compile."""
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    symptoms = [
        name
        for table in tables((DOCS / "troubleshooting.md").read_text())
        for row in table
        for name in names(row["symptom"])
    ]
    others = {"latent-tokens: command not found", "--compile"}
    others |= {"No matching distribution found for latent-tokens"}
    assert len(symptoms) - len(others) >= 5
    for symptom in set(symptoms) - others:
        parts = re.split(r": .*|\(.*", symptom)
        assert max(parts, key=len).strip() in source, symptom
