"""The table of claims: its overview, what an open claim needs, and the page that has it."""

import shutil
import sys
from pathlib import Path

from helpers.documentation import ROOT
from latent_tokens.configs import ReproduceConfig
from latent_tokens.paper.claims import claims_table, decided, models_of, overview
from latent_tokens.paper.experiments import Cell
from latent_tokens.paper.recipes import of_cells
from latent_tokens.paper.reproduce import reproduce
from latent_tokens.paper.run import measured

sys.path.append(str(ROOT / "scripts"))

import results_page

RUNS = Path("runs/paper")
ROWS = ROOT / "results" / "cpu" / "rows.jsonl"
STORED = measured(ROWS)


def test_models_are_grouped_by_their_seeds():
    cells = [
        Cell("sudoku-gen", "mdm", "uniform"),
        Cell("sudoku-gen", "sidm", "uniform"),
        Cell("sudoku-gen", "mdm", "top_prob", k=8),
    ]
    listed = of_cells(cells, "cpu", RUNS, 2)
    assert models_of(listed) == "mdm, sidm (0, 1)"
    assert models_of(listed[1:4]) == "mdm (1); sidm (0, 1)"


def test_an_open_claim_names_its_models_and_command():
    without = {name: row for name, row in STORED.items() if not row["model"].startswith("sudoku-6-arm-2-")}
    table = claims_table("cpu", RUNS, without).splitlines()
    (of_claim,) = (line for line in table if line.startswith("| sudoku-6 | ar-mtp > arm |"))
    needed = "arm (2): `latent-tokens reproduce figure-1 --scale cpu`"
    assert of_claim.endswith(f"| no claim: 2 seeds | {needed} |")
    (decided_one,) = (line for line in table if line.startswith("| sudoku-6 | mdm > sidm, top-prob |"))
    assert decided_one.endswith(" | yes |  |")
    (of_text,) = (line for line in table if line.startswith("| text | mdm < esolm n=0 |"))
    assert "| mdm, esolm (1, 2): " in of_text
    assert of_text.endswith("`latent-tokens reproduce figure-text --scale cpu --seeds 3` |")


def test_the_overview_has_each_claim_once_per_task():
    listed = decided("cpu", RUNS, STORED, None, ROWS)
    headings, *table = overview(listed)
    texts = list(dict.fromkeys(each.claim.text for each in listed))
    assert [row[0].removesuffix(" (implied)") for row in table] == texts
    assert sum(len(cell.split("; ")) for row in table for cell in row[1:] if cell) == len(listed)
    cells = {row[0]: dict(zip(headings, row, strict=True)) for row in table}
    assert cells["mdm top-prob > ar-mtp"]["the reverse"].startswith("sudoku-6 -15.5 (")
    assert cells["ar-mtp > arm"]["reproduced"].startswith("sudoku-6 +45.3 (")
    assert cells["scdm n=all > sidm (implied)"]["undecided"].startswith("sudoku-6 +1.1 (")


def test_the_page_has_the_table_of_the_stored_results():
    page = results_page.PAGE.read_text(encoding="utf-8")
    assert results_page.filled(page) == page
    assert results_page.filled(page.replace("| mdm > sidm", "| sidm > mdm", 1)) == page


def test_stored_claims_are_those_of_the_rows(tmp_path):
    (tmp_path / "cpu").mkdir()
    shutil.copy(ROWS, tmp_path / "cpu")
    assert reproduce(ReproduceConfig("claims", out=tmp_path)) == (ROWS.parent / "claims.md").read_text()
