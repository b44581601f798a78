"""The script that measures which candidate to decode, and its table and figure in docs/results.md."""

import json
import sys

import pytest

from helpers.documentation import ROOT

sys.path.append(str(ROOT / "scripts"))

import confidence
from confidence import Setting

FEW = [
    Setting("sudoku-6-mdm", "top_prob", "all", "all"),
    Setting("sudoku-6-mdm", "entropy", "all", "all"),
    Setting("sudoku-6-scdm", "entropy", 8, "all"),
]


def test_settings_are_different_and_of_both_sizes():
    listed = confidence.settings()
    assert len(set(listed)) == len(listed)
    assert {each.model for each in listed} == {
        f"sudoku-{side}-{m}" for side in (6, 9) for m in ("mdm", "scdm")
    }


@pytest.mark.slow
def test_each_row_is_measured_once_and_rendered(tmp_path, monkeypatch):
    page = tmp_path / "results.md"
    page.write_text("Before.\n\n<!-- table confidence -->\n<!-- end -->\n\nAfter.\n")
    rows = tmp_path / "confidence" / "rows.jsonl"
    values = {"PAGE": page, "ROWS": rows, "FIGURE": tmp_path / "a.png", "SAMPLES": 4, "settings": lambda: FEW}
    for name, value in values.items():
        monkeypatch.setattr(confidence, name, value)
    for arguments in ([], [], ["--render"]):
        monkeypatch.setattr(sys, "argv", ["confidence.py", *arguments])
        confidence.main()
    stored = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [(row["run"], row["order"], row["candidates"], row["latents"]) for row in stored] == FEW
    assert all(row["num_samples"] == 4 and "intercalates" in row for row in stored if row["valid"])
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("Before.", "After.")
    (line,) = (line for line in lines if "| entropy |" in line and "mdm" in line)
    assert f"{stored[1]['valid']:.1f} (" in line
    assert (tmp_path / "a.png").stat().st_size > 5_000


def test_table_of_the_page_is_that_of_the_rows():
    stored = confidence.rows()
    assert len(stored) == len(confidence.settings())
    assert confidence.table(stored) in confidence.PAGE.read_text(encoding="utf-8")
